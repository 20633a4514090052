"""Every reason in whole sentences: the field's words, singular and plural right, and its own numbers only."""

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given, settings

from penstock.core.model import reasons as r
from penstock.core.units import HOUR, MICRO, MINUTE, NEVER
from penstock.explain.sentences import Say, sentence
from penstock.formatting import instant
from tests.core.samples import made

NOON = 12 * HOUR
TOLD: list[tuple[Any, str]] = [
    (r.OwnedFree(0, 1), "1 GPU was free."),
    (r.OwnedFree(5 * MINUTE, 8), "8 GPUs were free after 5 min in the queue."),
    (
        r.EndsAlike(0, 2, 3 * HOUR, 0),
        "2 GPUs were free. No other job uses its node; this one is expected to run 3 h.",
    ),
    (
        r.WaitsForOwned(10 * MINUTE, HOUR, 1, None),
        (
            "Queued for up to 10 min, until day 1, 12:00: 1 GPU free (too few, or on several nodes). No rented offer "
            "fits now."
        ),
    ),
    (
        r.WaitWorth(
            cost=17_900_000, value_per_hour=20 * MICRO, patience_ms=3_222_000, expected_run_ms=7 * HOUR, soonest_ms=0,
            ahead=6, free_gpus=0, about_ms=8 * HOUR, worst_ms=20 * HOUR,
        ),
        (
            "Queued for up to 54 min, until day 1, 12:00: 0 GPUs free, 6 jobs ahead. Owned GPUs come free in about "
            "8 h, as often later as sooner. Bursting now costs about $17.90 for 7 h; an hour of its delay costs "
            "$20.00, so 54 min of delay cost as much."
        ),
    ),
    (
        r.WaitWorth(
            cost=20 * MICRO, value_per_hour=MICRO, patience_ms=12 * HOUR, expected_run_ms=HOUR, soonest_ms=0,
            ahead=1, free_gpus=0, about_ms=8 * MINUTE, worst_ms=20 * MINUTE, leave_at=NOON, dearer_permille=2500,
        ),
        (
            "Queued for up to 12 h, until day 1, 12:00: 0 GPUs free, 1 job ahead. Its start is expected in about 8 "
            "min, nine times in ten within 20 min. Bursting now costs about $20.00 for 1 h; an hour of its delay "
            "costs $1.00, and money counts 2.50 times for the month's budget, so 50 h of delay cost as much; it "
            "may wait 12 h. To meet its deadline it must burst by day 1, 12:00."
        ),
    ),
    (
        r.WaitWorth(MICRO, 0, HOUR, HOUR, 0, 0, 0),
        (
            "Queued for up to 1 h, until day 1, 12:00: 0 GPUs free, first in the queue. Bursting now costs about "
            "$1.00 for 1 h; delay costs nothing, and the longest wait is 1 h."
        ),
    ),
    (
        r.PatienceOver(
            0, 0, HOUR, MICRO, "", 0, barred_by="class experiment runs on rented GPUs only (policy.yaml:26)"
        ),
        (
            "It may not use owned GPUs: class experiment runs on rented GPUs only (policy.yaml:26); its policy lets no "
            "job wait. It costs about $1.00 for 1 h."
        ),
    ),
    (
        r.OnlyOwned(0, "data class secret may not go to cloud"),
        "Queued for owned GPUs: 0 GPUs free. It cannot burst: data class secret may not go to cloud.",
    ),
    (
        r.NothingSuits("lab", "none of the 3 nodes of lab/a100 suits it: 3 have less than 1 rdma/ib"),
        "Queued until something changes at lab: none of the 3 nodes of lab/a100 suits it: 3 have less than 1 rdma/ib.",
    ),
    (
        r.NothingSuits("lab", "no offer of lab has GPU L4", "class inference stays at home", "policy.yaml:4"),
        (
            "Queued until something changes at lab: no offer of lab has GPU L4. It cannot burst: class inference stays "
            "at home (policy.yaml:4)."
        ),
    ),
    (
        r.StartFailed(
            offer="lab/a100", attempt="a.1", cause="unfit", words="no node for it: 2 Insufficient cpu", failures=1,
            took_ms=MINUTE, gpus=8, cost=0, retry_at=0, nodes=2,
        ),
        (
            "Not started at lab/a100: no node for it: 2 Insufficient cpu. The start failed after 1 min: 8 GPUs cost "
            "$0.00. It is not tried on these 2 nodes again before something changes there."
        ),
    ),
    (
        r.Backfills(HOUR, 7, "wide", 4 * HOUR, "ends", 2 * HOUR, learned=True),
        (
            "Backfills GPUs that are reserved for wide at day 1, 04:00: 19 of 20 such jobs end by day 1, 02:00. 7 "
            "GPUs were free after 1 h in the queue."
        ),
    ),
    (
        r.Backfills(0, 1, "wide", 4 * HOUR, "beside", 9 * HOUR, learned=False),
        "Backfills GPUs that are reserved for wide: both fit. 1 GPU was free.",
    ),
    (
        r.Backfills(0, 2, "wide", 4 * HOUR, "gives_way", 0, learned=False),
        (
            "Backfills GPUs that are reserved for wide, not before day 1, 04:00: it goes back to the queue when "
            "that job can start. 2 GPUs were free."
        ),
    ),
    (
        r.GivesWay("wide", 8, NOON),
        (
            "Preempted: its nodes are reserved for wide (8 GPUs), which can start now. It was to end by day 1, 12:00."
        ),
    ),
    (
        r.WaitedLongest(13 * HOUR, 12 * HOUR, 2 * HOUR),
        (
            "It cannot burst and has been queued for 13 h; the limit is 12 h. The reserved nodes are expected to be "
            "free in 2 h."
        ),
    ),
    (
        r.PatienceOver(12 * MINUTE, 10 * MINUTE, HOUR, 8 * MICRO, "cloud/b", 9 * MICRO),
        (
            "Owned GPUs were full; it was queued for 12 min, and its policy allows 10 min. It costs about $8.00 for 1 "
            "h; cloud/b costs $9.00."
        ),
    ),
    (
        r.PatienceOver(0, 0, HOUR, 8 * MICRO, "", 0),
        "Owned GPUs were full; its policy lets no job wait. It costs about $8.00 for 1 h.",
    ),
    (
        r.NotWorthWaiting(54 * MINUTE, 18 * MICRO, 20 * MICRO, 54 * MINUTE, 2 * MINUTE, 7 * HOUR, "", 0),
        (
            "Owned GPUs were full (free in 2 min at best); it was queued for 54 min. It costs about $18.00 for 7 "
            "h; an hour of its delay costs $20.00, so 54 min of delay cost as much."
        ),
    ),
    (
        r.NotWorthWaiting(0, 18 * MICRO, 20 * MICRO, 108 * MINUTE, 0, HOUR, "c", MICRO, passed_over="d"),
        (
            "Owned GPUs were full. It costs about $18.00 for 1 h; an hour of its delay costs $20.00, and money "
            "counts 2.00 times for the month's budget, so 1 h 48 min of delay cost as much; c costs $1.00, but a "
            "limit on money, a later end or the job's order of GPU models spoke against it. d is cheaper, but "
            "preemptions or copies there could delay it beyond the limit."
        ),
    ),
    (
        r.JoinsNode(0, 1, 0, HOUR, 2 * MICRO, "cloud", 8 * MICRO),
        (
            "The node has 1 free GPU, and no job uses it. It costs about $2.00 for 1 h; a node of its own at cloud "
            "costs $8.00."
        ),
    ),
    (
        r.QueueFull(1, 0, MICRO),
        "1 job is queued, and the policy allows 0: the newest one bursts. It costs about $1.00.",
    ),
    (
        r.LostNode("a.1", 30 * MINUTE, 5 * MINUTE, MICRO),
        "Resumes after a.1 was preempted: 30 min of work kept, 5 min repeated. It costs about $1.00 to the end.",
    ),
    (
        r.CapBinds("team:a", "2026-11", 100 * MICRO, 90 * MICRO, 5 * MICRO, 20 * MICRO),
        "Budget reached: team:a may spend $100.00 in 2026-11; $90.00 is spent, $5.00 is held, and this needs $20.00.",
    ),
    (
        r.RateBinds("team:a", 10 * MICRO, 8 * MICRO, 4 * MICRO),
        "Spending rate reached: team:a may spend $10.00/h; what runs costs up to $8.00/h, and this needs $4.00/h.",
    ),
    (r.PeriodUnknown(0), "Queued: the budget of the month it would be charged to is not open yet."),
    (
        r.Paced("org", "2026-11", 100 * MICRO, 40 * MICRO, 38 * MICRO, 5 * MICRO),
        (
            "Queued until day 1, 12:00, or until owned GPUs are free: the budget of org is released evenly, $40.00 of "
            "$100.00 in 2026-11 so far; $38.00 is spent or held, and this needs about $5.00."
        ),
    ),
    (
        r.NoRoomThere("cloud/spot", NOON),
        "Queued: no rented offer it may use has capacity. Penstock tries cloud/spot again day 1, 12:00.",
    ),
    (r.PlacementsPaused(), "Queued: a person paused all new starts."),
    (
        r.AimsAtDelay(12 * MINUTE, 15 * MINUTE, 1, 20 * MICRO),
        "The mean delay of 1 job was 12 min; the target is 15 min. The cost of delay was $20.00/h.",
    ),
    (
        r.AimsAtSpend(30 * MICRO, 25 * MICRO, 900 * MICRO, 20 * MICRO),
        (
            "Jobs cost $30.00 since the last adjustment; the target of $900.00 allows $25.00 for that time. The cost "
            "of delay was $20.00/h."
        ),
    ),
    (r.MoveAsked("cloud/a", 30 * MINUTE), "A person moved it from cloud/a; 30 min of work kept."),
    (
        r.ComesHome(2 * HOUR, 8 * MICRO, 5 * MINUTE, MICRO),
        (
            "Moves to owned GPUs: about 2 h left, which would cost $8.00 if rented; the move delays it by 5 min, which "
            "costs $1.00."
        ),
    ),
    (
        r.CheaperElsewhere(2 * HOUR, 8 * MICRO, 3 * MICRO, 5 * MINUTE, MICRO),
        (
            "Moves to cheaper GPUs: about 2 h left, $3.00 there instead of $8.00; the move delays it by 5 min, which "
            "costs $1.00."
        ),
    ),
    (
        r.MovesTogether("wide", 8, 5 * MICRO, MICRO),
        "Moves so that wide (8 GPUs) fits: together the moves save $5.00 and cost $1.00.",
    ),
    (
        r.Displaced("stays", 1, MICRO),
        "Makes room for stays (1 GPU), which cannot burst. Its rent of about $1.00 is charged to that job's budget.",
    ),
    (r.Preempted("b", 5, 0), "Preempted by b, which has priority 5; its own priority is 0."),
    (
        r.ClassPreempted("b", "critical", "experiment", "policy.yaml:7"),
        "Preempted by b: class critical may stop jobs of class experiment (policy.yaml:7).",
    ),
    (
        r.AboveShare("vision", 16, 8, "speech", 3 * MICRO, "policy.yaml:2"),
        (
            "Its team vision has 16 owned GPUs for a share of 8, and team speech waits for its own (policy.yaml:2). "
            "It costs about $3.00."
        ),
    ),
    (
        r.ShareReturned("s", "speech", "vision", 16, 8, 3 * MICRO, "policy.yaml:2"),
        (
            "Makes room for s of team speech: team vision has 16 owned GPUs for a share of 8 (policy.yaml:2). The "
            "rent, about $3.00, is its own."
        ),
    ),
    (
        r.OnlyOwned(0, "class inference stays on owned GPUs", "policy.yaml:4"),
        "Queued for owned GPUs: 0 GPUs free. It cannot burst: class inference stays on owned GPUs (policy.yaml:4).",
    ),
    (r.TooWide(999, 8, "lab/owned"), "Refused: it needs 999 GPUs at once; the largest offer, lab/owned, has 8."),
    (
        r.NothingAllowed("lab/a", "GPU A100 is not one it can use", "built in"),
        "Refused: no offer may run it. lab/a: GPU A100 is not one it can use (built in).",
    ),
    (
        r.RoomMade(5 * MINUTE, 1, ("b", "c")),
        "2 jobs make room for it (b, c); 1 GPU was free after 5 min in the queue.",
    ),
    (
        r.ScopeFrozen("org", 3 * MICRO),
        "Budget frozen. Providers billed $3.00 more than was held for org. A person must look at it first.",
    ),
    (
        r.LeaseNotRenewed(
            "pods/spot",
            5 * MINUTE,
            r.CapBinds("org", "month 1", cap=9 * MICRO, spent=5 * MICRO, held=4 * MICRO, needed=MICRO),
        ),
        (
            "Moves from pods/spot to owned GPUs, 5 min of work kept: its lease there was not renewed. org may spend "
            "$9.00 in month 1; $5.00 is spent, $4.00 is held, and this needs $1.00."
        ),
    ),
    (
        r.CapBinds("org", "month 1", cap=9 * MICRO, spent=MICRO, held=4 * MICRO, needed=3 * MICRO, kept_free=2 * MICRO),
        (
            "Budget reached: org may spend $9.00 in month 1; $1.00 is spent, $4.00 is held, $2.00 is kept free, and "
            "this needs $3.00."
        ),
    ),
    (r.CancelAsked(), "A person cancelled it."),
    (r.SuspendAsked(), "A person suspended it."),
    (r.NoMoreWork(5 * MINUTE), "Node returned: idle for 5 min."),
    (
        r.NotStarting("lab/owned", "no node for it: 0/3 nodes match its node selector"),
        "Not started yet at lab/owned: no node for it: 0/3 nodes match its node selector.",
    ),
    (
        r.StartFailed(
            offer="lab/owned", attempt="a.2", cause="missing", words='config map "x" not found', failures=2,
            took_ms=2 * MINUTE, gpus=1, cost=0, retry_at=NOON,
        ),
        (
            'Not started at lab/owned: config map "x" not found. The start failed after 2 min, the 2nd time in a '
            "row: 1 GPU cost $0.00. It is not tried there again before day 1, 12:00."
        ),
    ),
    (
        r.StartFailed(
            offer="cloud", attempt="a.1", cause="lost", words="", failures=1, took_ms=MINUTE, gpus=8, cost=MICRO,
            retry_at=0,
        ),
        "Lost at cloud. That was 1 min after its start, before it made progress: 8 GPUs cost $1.00.",
    ),
    (
        r.StartFailed(
            offer="cloud", attempt="a.7", cause="in_vain", words="", failures=7, took_ms=3 * HOUR, gpus=8,
            cost=24 * MICRO, retry_at=NOON,
        ),
        (
            "Ended at cloud after 3 h before any work was kept, 7 times in a row. This try cost $24.00. It is not "
            "tried there again before day 1, 12:00."
        ),
    ),
    (
        r.PatienceOver(12 * MINUTE, 10 * MINUTE, HOUR, 8 * MICRO, "", 0, failed_at="lab/owned"),
        (
            "Its start at lab/owned failed; it was queued for 12 min, and its policy allows 10 min. It costs about "
            "$8.00 for 1 h."
        ),
    ),
    (
        r.AwaitsApproval("big", "role:approver", "cloud", 32 * MICRO, NOON, "policy.yaml:31"),
        (
            "Queued: bursting to cloud for about $32.00 needs approval by an approver before day 1, 12:00 (rule big, "
            "policy.yaml:31). Owned GPUs that become free are used meanwhile."
        ),
    ),
    (
        r.AwaitsApproval("odd", "board", "cloud", 32 * MICRO, NOON, "", "no such field: quote.price"),
        (
            "Queued: bursting to cloud for about $32.00 needs approval by a board before day 1, 12:00 (rule odd). "
            "Owned GPUs that become free are used meanwhile. The rule cannot be evaluated, so it asks: no such field: "
            "quote.price."
        ),
    ),
    (
        r.ApprovalDenied("big", "role:approver", "cloud", 32 * MICRO, "denied", "t-ada", "Too dear", "policy.yaml:31"),
        "May not burst: t-ada denied bursting to cloud for about $32.00 (rule big, policy.yaml:31). Too dear.",
    ),
    (
        r.ApprovalDenied("big", "role:approver", "cloud", 32 * MICRO, "unanswered", "", "", "policy.yaml:31"),
        (
            "May not burst: bursting to cloud for about $32.00 needs approval by an approver, and nobody answered in "
            "time (rule big, policy.yaml:31)."
        ),
    ),
    (r.NeverStarted(), "Node returned: the job it was rented for does not start there."),
    (
        r.TakesWarmNode(0, 0, 5 * MINUTE, HOUR, 2 * MICRO, "cloud", 8 * MICRO),
        "A warm node was ready for 5 min. It costs about $2.00 for 1 h; a node of its own at cloud costs $8.00.",
    ),
    (
        r.TakesWarmNode(0, 2 * MINUTE, 0, HOUR, 2 * MICRO, "", 0),
        "A warm node is starting, and ready in 2 min. It costs about $2.00 for 1 h.",
    ),
    (
        r.KeptWarm(1, 0, "team:platform", NOON, "s.yaml:9"),
        "Kept warm until day 1, 12:00 on the budget of team:platform; its pool had 0 of 1 node.",
    ),
    (
        r.WantedSoon(2, 1, "org", 5 * MINUTE, 24_000, 28_000, 33_000, 8_000, 8_000, 0, "s.yaml:9"),
        (
            "Kept warm on the budget of org; its pool had 1 of 2 nodes. Within its start of 5 min, 24.0 GPUs will very "
            "likely be wanted (P50 28.0, P90 33.0). Wanted now: 8.0, of which 8.0 by jobs that burst by "
            "then; 0.0 are free."
        ),
    ),
    (
        r.WarmEnds(5 * MINUTE, "hours"),
        "Warm node returned: the hours of its pool are over. It was idle for 5 min.",
    ),
    (
        r.ClusterNeeded("team:platform", 100_000, 15 * MINUTE, "s.yaml:9"),
        "A job needs it. It takes about 15 min to come, and costs $0.10/h on the budget of team:platform.",
    ),
    (
        r.ClusterWanted("org", 100_000, NOON),
        "A person wants it until day 1, 12:00. It costs $0.10/h on the budget of org.",
    ),
    (r.ClusterEnds(10 * MINUTE, "idle"), "Cluster returned: nothing uses it. It was unused for 10 min."),
    (r.ClusterEnds(0, "asked"), "Cluster returned: a person sent it away."),
    (
        r.LeaseEnds("cloud/a100", NOON),
        "Stops with a checkpoint: the lease of its node at cloud/a100 ends at day 1, 12:00 for good.",
    ),
    (
        r.NodeTakenSoon("cloud/a100", "Karpenter ends its node"),
        "Stops with a checkpoint: its node at cloud/a100 will be taken away (Karpenter ends its node).",
    ),
    (
        r.NoTriggerHolds(
            0, "pods", 8 * MICRO,
            (
                r.TriggerSeen("queued_jobs", 20, 1, "p.yaml:1"), r.TriggerSeen("expected_wait", 2 * HOUR, HOUR, ""),
                r.TriggerSeen("utilisation", 950, 975, "", 15 * MINUTE, 5 * MINUTE),
                r.TriggerSeen("deadline_at_risk", 1, NOON, ""), r.TriggerSeen("deadline_at_risk", 1, 0, ""),
            ),
        ),
        (
            "Queued: it would burst to pods for about $8.00, but no trigger of the policy holds: 1 job "
            "is queued, it holds from 20 (p.yaml:1); the expected wait is 1 h, it holds from 2 h; 97.5 % of owned GPUs "
            "are in use for 5 min, it holds from 95 % for 15 min; to meet its deadline it must burst by day 1, 12:00; "
            "it has no deadline."
        ),
    ),
    (
        r.BurstAllowed(
            r.QueueFull(3, 2, MICRO), r.TriggerSeen("queued_jobs", 2, 3, "p.yaml:1"),
            (r.TooDear("dear", 9 * MICRO, 5 * MICRO, 0, "p.yaml:2"),),
        ),
        (
            "3 jobs are queued, and the policy allows 2: the newest one bursts. It costs about $1.00. Trigger of the "
            "policy: 3 jobs are queued, it holds from 2 (p.yaml:1). Passed over: dear costs about $9.00, and one job "
            "may cost $5.00 (p.yaml:2)."
        ),
    ),
    (
        r.TooDear("dear", 9 * MICRO, 10 * MICRO, 4 * MICRO, "p.yaml:2"),
        (
            "Queued: dear costs about $9.00, and one job may cost $10.00, $4.00 of it is spent or held "
            "(p.yaml:2)."
        ),
    ),
    (
        r.TeamAtLimit("red", 6, 4, 8, "p.yaml:3"),
        "Queued: red may have 8 GPUs at once; it has 6, and this needs 4 (p.yaml:3).",
    ),
    (
        r.EgressSpent("red", "2026-11", 4_900_000_000_000, 200_000_000_000, 5_000_000_000_000, "p.yaml:3"),
        (
            "Queued: red may bring 5.00 TB out of rented sites in 2026-11; 4.90 TB is counted, and its "
            "output is 200.0 GB (p.yaml:3)."
        ),
    ),
    (
        r.InQuietHours("22:00-12:00 UTC", NOON, "p.yaml:4"),
        "Queued: nothing new is rented until day 1, 12:00, in quiet hours (p.yaml:4).",
    ),
    (
        r.HeadroomKept("lab", 1, "", NOON, "p.yaml:5", r.OnlyOwned(1, "data stays")),
        (
            "Queued for owned GPUs: 1 GPU free (too few, or on several nodes). It cannot burst: data stays. Until day "
            "1, 12:00 1 GPU of lab is kept free for others (p.yaml:5)."
        ),
    ),
    (
        r.RanTooLong("experiment", 2 * HOUR, 2 * HOUR, "p.yaml:6"),
        "Failed: it has run 2 h, and jobs of class experiment may run 2 h (p.yaml:6).",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("why", "text"), TOLD, ids=lambda reason: getattr(reason, "kind", ""))
def test_a_reason_is_told_so(why: Any, text: str) -> None:
    assert sentence(why, Say("USD", NOON)) == text


def test_an_estimate_whose_time_is_over_is_thrown_away() -> None:
    """A job was told "Its start was estimated 7 h 24 min ago: in 1 min (p50), 5 min (p90)", seven hours too late."""
    why = r.WaitWorth(8 * MICRO, 4 * MICRO, 9 * HOUR, HOUR, 0, 1, 0, about_ms=MINUTE, worst_ms=5 * MINUTE)
    assert "Its start was expected 3 min ago." in sentence(why, Say("USD", NOON, 4 * MINUTE))
    told = sentence(why, Say("USD", NOON, 7 * HOUR))
    assert "expected" not in told.lower(), told


def test_every_reason_is_told_here() -> None:
    assert {type(why) for why, _ in TOLD} == set(r.REASONS.values())


#: What may never come, and has words for that.
MAY_NEVER_COME = {(r.KeptWarm, "until_at"), (r.StartFailed, "retry_at")}
LATEST = NEVER - 24 * HOUR


def in_time(content: Any, name: str = "", *, never_comes: bool, owner: type | None = None) -> Any:
    """The same with no number as far away as NEVER, but those that may never come, and `never_comes`."""
    if dataclasses.is_dataclass(content) and not isinstance(content, type):
        kind = type(content)
        fields = {each.name: getattr(content, each.name) for each in dataclasses.fields(content)}
        return kind(**{f: in_time(field, f, never_comes=never_comes, owner=kind) for f, field in fields.items()})
    if isinstance(content, tuple):
        return tuple(in_time(part, never_comes=never_comes) for part in content)
    if isinstance(content, int) and not isinstance(content, bool):
        return NEVER if never_comes and (owner, name) in MAY_NEVER_COME else max(-LATEST, min(content, LATEST))
    return content


@pytest.mark.parametrize("never_comes", [False, True], ids=["comes", "never comes"])
@pytest.mark.parametrize("kind", r.REASONS.values(), ids=list(r.REASONS))
def test_no_sentence_has_one_of_many_or_an_instant_that_never_comes(kind: type, never_comes: bool) -> None:
    @settings(max_examples=20)
    @given(made(kind))
    def check(drawn: Any) -> None:
        text = sentence(in_time(drawn, never_comes=never_comes), Say("USD", NEVER))
        assert not re.search(r"(?<![-\d.,])1 (GPUs|jobs)\b|(?<![-\d.,])[02-9] (GPU|job)\b", text), text
        assert instant(NEVER) not in text, text

    check()

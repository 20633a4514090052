"""Applies what a policy file says of the moment: hours, limits of teams and classes, and since when GPUs are busy. Part
of `apply`; `decide/limits` and `decide/triggers` read it.

Without such a policy all of this is empty, and none of it is called but `govern`.
"""

from heapq import heappop, heappush
from typing import Final

from penstock.core.fold.money import bind_to_jobs
from penstock.core.fold.queue import ask_all, cap_of
from penstock.core.fold.state import Attempt, Node, State
from penstock.core.fold.suited import for_anybody
from penstock.core.model import ranks
from penstock.core.model.events import HoursOpened
from penstock.core.model.governance import ClassRule, Governance, TeamRule
from penstock.core.units import PERMILLE, Instant

#: Scopes of jobs that wait, beside those of money: for a trigger; and, before a team's name, for its limit on GPUs, or
#: on what leaves rented sites.
HELD: Final = "burst_when"
GPUS: Final = "gpus:"
EGRESS: Final = "egress:"


def govern(state: State) -> None:
    """A policy is in force: count anew what it limits. Called before jobs are judged by it."""
    governance = state.policy.governance
    if state.gated:
        _forget_answers(state)
    state.team_rules = {rule.team: rule for rule in governance.teams if _has_limit(rule)}
    state.team_shares = any(rule.share_permille is not None for rule in governance.teams)
    state.class_rules = {rule.name: rule for rule in governance.classes if _is_asked(rule, governance)}
    state.class_stops = ranks.stoppable(governance.classes)
    state.class_heights = ranks.heights(state.class_stops)
    state.delay_costs = {rule.name: rule.cost_of_delay for rule in governance.classes if rule.cost_of_delay is not None}
    prices = governance.never_above is not None and governance.never_above.per_job is not None
    state.gated = bool(governance.burst_when or governance.quiet_hours or state.team_rules or prices)
    state.governed = bool(state.gated or governance.headroom)
    state.at_once = _count_gpus(state)
    state.egress = _count_egress(state)
    used = [quiet.id for quiet in governance.quiet_hours] + [kept.id for kept in governance.headroom]
    used += [offer.warm.hours.id for offer in state.warm.offers.values() if offer.warm and offer.warm.hours]
    state.hours = {window: hours for window, hours in state.hours.items() if window in used}
    levels = [trigger.threshold for trigger in governance.burst_when if trigger.kind == "utilisation"]
    state.busy_since = {level: since for level, since in state.busy_since.items() if level in levels}
    _cap_jobs(state)
    state.run_ends = []
    for attempt in state.attempts.values():
        if attempt.started_at is not None:
            began(state, attempt)


def _forget_answers(state: State) -> None:
    """What jobs wait for by the old policy's word: they are asked again, and told by the new one's."""
    for scope in [scope for scope in state.short if scope.startswith((HELD, GPUS, EGRESS, "job:"))]:
        for job in state.short.pop(scope).values():
            job.short_of = ""


def _has_limit(rule: TeamRule) -> bool:
    limits = (rule.gpus_at_once, rule.per_job, rule.egress_bytes_per_month)
    return any(limit is not None for limit in limits)


def _is_asked(rule: ClassRule, governance: Governance) -> bool:
    """Others are only judged once for each shape: while jobs run, nobody asks."""
    return rule.longest_ms is not None or (rule.where == "rented" and bool(governance.burst_when))


# --- hours -----------------------------------------------------------------------------------------------------------


def hours_opened(state: State, event: HoursOpened) -> None:
    known = {hours: None for hours in state.hours.get(event.window, ()) if hours[1] > event.at}
    known[event.starts_at, event.ends_at] = None
    state.hours[event.window] = tuple(sorted(known))


def open_until(state: State, window: str, now: Instant) -> Instant | None:
    """When a window that is open now closes; None: it is not open."""
    return next((ends for starts, ends in state.hours.get(window, ()) if starts <= now < ends), None)


def pass_time(state: State, at: Instant) -> None:
    """From the last step until now the state was as it is: note since when GPUs are busy. Where headroom ended
    meanwhile, free GPUs are free for all again.
    """
    governance = state.policy.governance
    busy = -1
    for trigger in governance.burst_when:
        if trigger.kind == "utilisation":
            busy = utilisation(state) if busy < 0 else busy
            if busy < trigger.threshold:
                state.busy_since.pop(trigger.threshold, None)
            else:
                state.busy_since.setdefault(trigger.threshold, state.at)
    for rule in governance.headroom:
        if any(state.at < ends <= at for _, ends in state.hours.get(rule.id, ())):
            state.changes.freed = True


def utilisation(state: State) -> int:
    """Of standing GPUs that can be reached, in thousandths; those of other people's pods count as used."""
    total = free = 0
    for every in state.pools.values():
        pool = for_anybody(every)
        if pool.open:
            total += pool.per_node * pool.up.bit_count()
            free += pool.free_gpus
            if pool.kept:
                free += sum([gpus for node, gpus in enumerate(pool.free) if pool.up & pool.kept & 1 << node])
    return (total - free) * PERMILLE // total if total else PERMILLE


# --- limits of teams -------------------------------------------------------------------------------------------------


def placed(state: State, attempt: Attempt, rented: bool) -> None:
    """Call when a start is promised. One that takes over from another of its job has GPUs only then."""
    job = attempt.job
    team = job.spec.team
    if team in state.at_once and job.attempt is attempt:
        state.at_once[team] += attempt.width
    if rented and job.spec.output_bytes:
        _count_output(state, attempt, job.spec.output_bytes)


def took_over(state: State, attempt: Attempt) -> None:
    team = attempt.job.spec.team
    if team in state.at_once:
        state.at_once[team] += attempt.width


def left(state: State, attempt: Attempt, never_ran: bool) -> None:
    """Call before the attempt is over. What never ran brings nothing out."""
    job = attempt.job
    team = job.spec.team
    if team in state.at_once and job.attempt is attempt:
        state.at_once[team] -= attempt.width
        _ask_who_fits(state, team)
    if never_ran and job.spec.output_bytes and not state.standing(attempt.offer):
        _count_output(state, attempt, -job.spec.output_bytes)
        if EGRESS + team in state.short:
            state.changes.note_rare().room[EGRESS + team] = None


def _ask_who_fits(state: State, team: str) -> None:
    """Jobs that waited for the team's limit, and fit into it now: they may start on standing GPUs, or burst."""
    waiting = state.short.get(GPUS + team)
    if waiting:
        room = (state.team_rules[team].gpus_at_once or 0) - state.at_once[team]
        asked = []
        for job in waiting.values():
            if job.spec.gpus <= room:
                room -= job.spec.gpus
                asked.append(job)
        ask_all(state, asked)


def _count_output(state: State, attempt: Attempt, size_bytes: int) -> None:
    """In the month in which it was promised."""
    team = attempt.job.spec.team
    rule = state.team_rules.get(team)
    if rule is not None and rule.egress_bytes_per_month is not None:
        key = (team, state.ledger.period_at(attempt.promised_at))
        state.egress[key] = max(0, state.egress.get(key, 0) + size_bytes)


def _count_gpus(state: State) -> dict[str, int]:
    counts = {team: 0 for team, rule in state.team_rules.items() if rule.gpus_at_once is not None}
    for attempt in state.attempts.values() if counts else ():
        if attempt.job.spec.team in counts and attempt.job.attempt is attempt:
            counts[attempt.job.spec.team] += attempt.width
    return counts


def _count_egress(state: State) -> dict[tuple[str, str], int]:
    """What was counted stays; for a team that had no limit, what its attempts of now will bring out."""
    limited = [team for team, rule in state.team_rules.items() if rule.egress_bytes_per_month is not None]
    counts = {key: size for key, size in state.egress.items() if key[0] in limited}
    known = {team: None for team, _ in counts}
    for attempt in state.attempts.values() if limited else ():
        spec = attempt.job.spec
        if spec.team in limited and spec.team not in known and spec.output_bytes and not state.standing(attempt.offer):
            key = (spec.team, state.ledger.period_at(attempt.promised_at))
            counts[key] = counts.get(key, 0) + spec.output_bytes
    return counts


def _cap_jobs(state: State) -> None:
    """Each job's own cap, or its team's for one job. What a job has cost before counts, and what is held for it."""
    ledger = state.ledger
    for job in state.jobs.values():
        scope, cap = "job:" + job.id, cap_of(state, job.spec)
        if cap == ledger.caps.get(scope):
            continue
        if cap is not None and (scope, "") not in ledger.accounts:
            ledger.open_job(scope, cap, job.spent)
        else:
            ledger.set_cap(scope, cap, None)
    if any(rule.per_job is not None for rule in state.team_rules.values()):
        bind_to_jobs(state)
        state.changes.note_rare().stale = True


# --- limits of classes, and of idle nodes ----------------------------------------------------------------------------


def began(state: State, attempt: Attempt) -> None:
    """It runs: it must stop, with time for a last checkpoint, before its job has run as long as its class may."""
    rule = state.class_rules.get(attempt.job.spec.job_class)
    if rule is not None and rule.longest_ms is not None and attempt.started_at is not None:
        left_ms = rule.longest_ms - attempt.job.ran_ms - attempt.job.spec.grace_ms
        heappush(state.run_ends, (attempt.started_at + max(0, left_ms), attempt.seq, attempt))
        drop_stale_run_ends(state)


def drop_stale_run_ends(state: State) -> None:
    """Call when an attempt stops or is over: the heap's first entry must always be valid."""
    ends = state.run_ends
    while ends and ends[0][2].phase != "running":
        heappop(ends)


def rests(state: State, node: Node) -> None:
    """Nothing is on the node, and other jobs of its payer may still use it."""
    kept = state.policy.governance.idle_nodes_end_after_ms is not None
    if kept and node.open and node.phase == "idle":  # a warm node is not open: its pool keeps it
        state.idle[node.id] = node

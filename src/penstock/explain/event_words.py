"""Events: who may hear of each, in which words, and with which icon. One row for each event, in one table.

`penstock events`, `/v1/events`, its stream and the page's feed read it. An event is for operators only until its row
says otherwise, and of an event that is for everybody, a team hears the fields that its row names and no others.
"""

from typing import Any, Final, Literal, TypeAlias

from penstock.core.ids import job_concerned
from penstock.core.model import events as e
from penstock.core.values import value

#: `operators`: tokens of all teams. `team`: also the team whose job, attempt, node or hold it is about, or whose cap.
#: `everybody`: also all teams, with the fields that the row shows.
Audience: TypeAlias = Literal["operators", "team", "everybody"]


@value
class EventWords:
    """How one kind of event is told."""

    to: Audience = "operators"
    says: str = ""  # `{event.…}`, `{because}`, `{kept}` or `{percent}` in it; empty: the job's story has the words
    icon: str = ""  # in the page's feed; empty: it is not there
    feed: str = ""  # what the feed says after the job's name; empty: the first sentence of the event itself
    shows: tuple[str, ...] = ()  # the fields that every team may see of what is for everybody, as in `site.id`


OPERATORS_ONLY: Final = EventWords()
EVENTS: Final[dict[type, EventWords]] = {
    # --- what is everybody's: sites, offers, and whether Penstock starts anything
    e.PolicySet: EventWords(
        "everybody", "Policy {event.policy.name} is in force.", "note", shows=("revision", "policy.name")
    ),
    e.Paused: EventWords("everybody", "A person paused new starts.", "wait", "A person paused new starts"),
    e.Resumed: EventWords("everybody", "A person resumed new starts.", "start", "A person resumed new starts"),
    e.PeriodOpened: EventWords(
        "everybody", "The budgets of {event.period} are open.", shows=("period", "starts_at", "ends_at")
    ),
    e.SiteJoined: EventWords("everybody", "Site {event.site.id} joined.", "note", shows=("site.id",)),
    e.SiteRemoved: EventWords(
        "everybody", "Site {event.site} was removed from the sites file.", "note", shows=("site",)
    ),
    e.SiteLost: EventWords("everybody", "Site {event.site} cannot be reached.", "alarm", shows=("site",)),
    e.SiteBack: EventWords("everybody", "Site {event.site} is back.", "done", shows=("site",)),
    e.NodesSeen: EventWords("everybody", "{event.offer} reported its nodes.", shows=("offer",)),
    e.NodesUnsuited: EventWords("operators", "{event.offer} reported which nodes do not suit every job."),
    e.NodesChanged: EventWords("operators", "Nodes of {event.offer} changed, which some jobs wait for."),
    e.GuaranteeChanged: EventWords(
        "everybody",
        "How what is rented at {event.offer} ends without Penstock: {event.guarantee}. {event.words}",
        shows=("offer", "guarantee", "words"),
    ),
    e.OfferClosed: EventWords(
        "everybody",
        "{event.offer} had no capacity; Penstock tries it again later.",
        "no",
        shows=("offer", "until_at", "refusals"),
    ),
    e.OfferOpened: EventWords("everybody", "Penstock tries {event.offer} again.", shows=("offer",)),
    # --- what is about one job, and money of one team
    e.JobSubmitted: EventWords("team"),
    e.JobRefused: EventWords("team", icon="no", feed="was refused"),
    e.JobFailed: EventWords("team", icon="no", feed="has failed"),
    e.WaitPromised: EventWords("team", icon="wait", feed="is queued"),
    e.ReservePromised: EventWords("team", icon="wait", feed="has nodes reserved"),
    e.StartPromised: EventWords("team", icon="start"),
    e.RetryPromised: EventWords("team"),
    e.StopPromised: EventWords("team", icon="back", feed="is stopping"),
    e.AttemptQueued: EventWords("team", "Queued at its site: {event.words}."),
    e.AttemptPlaced: EventWords("team", "Its cluster put it on other nodes than Penstock preferred."),
    e.AttemptStarted: EventWords("team", "Running."),
    e.AttemptStuck: EventWords("team", "Its site has not started it yet: {event.words}", "no", "has not started yet"),
    e.AttemptRefused: EventWords("team", "The site did not start it. {event.words}", "no", "was not started"),
    e.AttemptCheckpointed: EventWords("team", "Wrote a checkpoint; {kept} of work kept."),
    e.AttemptProgressed: EventWords("team", "{percent} % done, as the job reports."),
    e.AttemptEnded: EventWords("team", icon="done", feed="has ended"),
    e.AttemptStopped: EventWords("team", "Stopped; {kept} of work kept."),
    e.AttemptLost: EventWords("team", "Preempted: it lost its node; {kept} of work kept.", "lost", "was preempted"),
    e.NodeReady: EventWords("team", "Its node is ready."),
    e.NodeNotice: EventWords("team", "Its node will be taken away. {event.words}"),
    e.NodeRefused: EventWords("team", "The provider has no such node now. {event.words}"),
    e.NodeLost: EventWords("team", "Its node was lost."),
    e.NodeGone: EventWords("team", "Its node was returned."),
    e.ReleasePromised: EventWords("team", "{because}"),
    e.CancelRequested: EventWords("team", icon="no", feed="was cancelled by a person"),
    e.SuspendRequested: EventWords("team", icon="wait", feed="was suspended by a person"),
    e.ResumeRequested: EventWords("team", icon="start", feed="was resumed by a person"),
    e.MoveRequested: EventWords("team", icon="burst"),
    e.ApprovalAsked: EventWords("team", icon="wait", feed="asks for approval"),
    e.ApprovalAnswered: EventWords("team", icon="note"),
    e.LogRead: EventWords("team", "Somebody who sees all teams read its log."),
    e.ExecStarted: EventWords("team", "A person runs a command in it."),
    e.CapSet: EventWords("team", "The cap of {event.scope} was set.", "note"),
    e.CapRaiseAsked: EventWords(
        "team", "A person asks for a higher cap of {event.scope}; another must approve it.", "wait"
    ),
    e.CapRaiseDenied: EventWords("team", "A person denied a higher cap of {event.scope}.", "no"),
    e.LeaseRenewed: EventWords("team", "The lease of {event.hold} was renewed."),
    e.RenewalDenied: EventWords(
        "team", "The lease of {event.hold} is not renewed. {because}", "no", "cannot renew its lease"
    ),
    e.LeaseCalledBack: EventWords(
        "team", "The lease of {event.hold} gets shorter: a cap was lowered.", "no", "has a shorter lease"
    ),
    e.LeaseShortened: EventWords("team", "The shorter lease of {event.hold} is confirmed."),
    e.Settled: EventWords("team", "{event.hold} was charged, and the rest of its hold returned."),
    e.OverrunFound: EventWords("team", "The provider metered more for {event.hold} than was held."),
    e.DeadlineSet: EventWords("team", "{event.thing} confirms when it will end by itself."),
    e.Metered: EventWords("team", "The provider's own meter of {event.thing} was read."),
    # --- what names several teams, their money, their data, or the policy's numbers
    e.PayerChanged: EventWords("operators", "{because}"),
    e.WarmPromised: EventWords("operators", "A node is rented ahead at {event.offer}. {because}"),
    e.WarmShort: EventWords("operators", "The warm pool of {event.offer} has too few nodes. {because}", "no"),
    e.ClusterPromised: EventWords("operators", "A cluster is asked for at {event.site}. {because}", "start"),
    e.ClusterShort: EventWords("operators", "Site {event.site} has no cluster. {because}", "no"),
    e.ClusterAsked: EventWords("operators", "A person wants the cluster of site {event.site}.", "note"),
    e.ClusterDismissed: EventWords("operators", "A person sent the cluster of site {event.site} away.", "note"),
    e.HoursOpened: EventWords("operators", "Hours of the policy: {event.window}."),
    e.ValueSet: EventWords("operators", "{because}"),
    e.DemandForecast: EventWords("operators", "GPUs wanted in the next hours were forecast."),
    e.ShapeJudged: EventWords("operators", "Penstock judged where jobs of one shape may run."),
    e.DataSetRegistered: EventWords("operators", "Data set {event.data_set.id} is registered."),
    e.ReplicaLanded: EventWords("operators", "A copy of data set {event.data_set} is at site {event.site}."),
    e.TokenIssued: EventWords("operators", "Token {event.token} was made."),
    e.TokenRevoked: EventWords("operators", "Token {event.token} was revoked."),
    e.LeaveRequested: EventWords("operators", "A person asked that {event.site} gets its Jobs back."),
    e.JournalRestored: EventWords(
        "operators", "A person let the journal go on from step {event.step} without what may have followed it.", "alarm"
    ),
    e.DetailsErased: EventWords("operators", "The name, addresses and words recorded about {event.who} were erased."),
    e.ClockJumped: EventWords("operators", "The clock of this machine jumped."),
    e.EventQuarantined: EventWords(
        "operators",
        "Penstock set aside {event.what} about {event.about}, a fact it cannot process: {event.error}.",
        "alarm",
    ),
    e.Woke: EventWords("operators", "Time passed."),
}
#: The same by the name of the kind, as the journal and the API have it.
BY_NAME: Final = {kind.__name__: words for kind, words in EVENTS.items()}
#: Kinds that the page's feed shows.
IN_FEED: Final = tuple(name for name, words in BY_NAME.items() if words.icon)


def words_of(event: object) -> EventWords:
    return EVENTS.get(type(event), OPERATORS_ONLY)


def is_for(event: object, team: str, team_of_job: str) -> bool:
    """True if this team may hear of the event. `team_of_job`: the team whose job it is about; empty: nobody's."""
    match words_of(event).to:
        case "everybody":
            return True
        case "team" if job_concerned(event):
            return team == team_of_job
        case "team":
            return getattr(event, "scope", "") == f"team:{team}"
        case _:
            return False


def shown(fields: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """An event's fields as every team may see them: its instant, and what these paths name."""
    seen: dict[str, Any] = {"at": fields["at"]}
    for path in paths:
        name, _, inner = path.partition(".")
        seen[name] = {inner: fields[name][inner]} if inner else fields[name]
    return seen

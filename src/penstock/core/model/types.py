"""The nouns: what sites offer and what people ask for. All are values; `state.py` holds what changes."""

from typing import Final, Literal, TypeAlias

from penstock.core.model.governance import NONE, Governance, Window
from penstock.core.units import DAY, GB, HOUR, MINUTE, PERMILLE, Instant, Millis, Money, ceil_div
from penstock.core.values import value

Term: TypeAlias = Literal["owned", "reserved", "on_demand", "spot"]
#: Paid for whether used or not: a start there costs nothing more, so it holds no money.
STANDING: Final = ("owned", "reserved")
#: Sold by the node (it is billed from the asking to the going), or by the attempt (we never see the nodes).
SoldBy: TypeAlias = Literal["node", "attempt"]
#: How a rented thing ends without us; `none` makes a cap there hold only while Penstock lives. `watchman` counts as
#: `none` until a site has proved it (`GuaranteeChanged`).
Guarantee: TypeAlias = Literal["max_run_time", "expire_after", "timer", "none", "job", "watchman"]
#: Classes that are known where no policy declares others. A class is a free name.
JOB_CLASSES: Final = ("experiment", "training", "inference", "critical", "interactive")


@value
class NodeShape:
    """One size of node that an offer has, and what one of them costs an hour."""

    gpus: int
    count: int | None = None  # how many there are; None: as many as one asks for
    list_per_hour: Money = 0  # for owned nodes: the full price, for showback
    contract_per_hour: Money | None = None
    most_per_hour: Money | None = None  # the most the provider can charge; a spot shape without one is not eligible
    marginal_per_hour: Money = 0  # what one more busy hour of a standing node costs: the price for choosing
    name: str = ""

    @property
    def price_per_hour(self) -> Money:
        return self.list_per_hour if self.contract_per_hour is None else self.contract_per_hour


@value
class Extras:
    """What a site charges beside the GPUs. The hourly ones are counted per node: too much rather than too little."""

    disk_per_hour: Money = 0
    address_per_hour: Money = 0
    cluster_per_hour: Money = 0
    nat_per_gb: Money = 0
    launch_fee: Money = 0

    @property
    def per_hour(self) -> Money:
        return self.disk_per_hour + self.address_per_hour + self.cluster_per_hour


@value
class Quoted:
    """The dated rate, with its margin, at which foreign prices became ours."""

    currency: str
    rate_ppm: int
    margin_ppm: int
    dated: str


@value
class WarmPool:
    """Nodes of an offer that are rented before a job asks for them, on a budget of their own."""

    nodes: int  # so many are kept; with a forecast, at most
    gpus: int  # of each
    scopes: tuple[str, ...]  # who pays while no job is on them
    hours: Window | None = None  # None: always
    forecast: bool = False  # only as many as are very likely to be wanted within their own start
    source: str = ""  # file and line


@value
class Offer:
    """One kind of capacity at a site."""

    id: str
    site: str
    term: Term
    shapes: tuple[NodeShape, ...]  # by GPUs, smallest first
    gpu_model: str = ""
    mig_profile: str = ""  # if set, a shape's `gpus` counts slices of this profile: a resource of its own
    sold_by: SoldBy = "node"
    start_ms: Millis = 0  # from asking until a job can run
    loss_ppm_per_hour: int = 0  # how often a node is lost, in millionths per hour
    limit_gpus: int | None = None  # the quota there
    extras: Extras = Extras()
    billing_step_ms: Millis = 1
    billing_minimum_ms: Millis = 0
    kill_ms: Millis = 0  # worst time from "stop" to "no longer billed"
    guarantee: Guarantee = "max_run_time"
    quoted: Quoted | None = None
    has: tuple[str, ...] = ()  # what its nodes have: labels, and GPU models that it stands in for, as `rules` reads it
    family: str = ""  # of its node type, as the cloud names it: `p5`
    closed: str = ""  # the file that closes it, with its line: no new attempt starts there; empty: it is open
    renewable: bool = True  # False: a node's deadline is fixed when it is rented: its one lease is for its whole life
    warm: WarmPool | None = None


@value
class TransientCluster:
    """How a site's cluster comes and goes: asked for when a job or a person needs it, and given back after its last
    attempt. It is rented as a node without GPUs.
    """

    offer: Offer  # what it costs, how long it takes to come, and who ends it without us; its id is SITE/cluster
    scopes: tuple[str, ...]  # who pays for it
    idle_ms: Millis  # how long it stays when nothing uses it
    most_ms: Millis  # its longest life
    source: str = ""  # file and line


@value
class EgressTier:
    up_to_gb: int | None
    per_gb: Money


@value
class Site:
    """A place that runs jobs. Location and operator's law are two things: an EU region of a US company has both."""

    id: str
    offers: tuple[Offer, ...]
    location: str = ""
    operator: str = ""
    law: str = ""
    grid_g_per_kwh: int = 0
    egress: tuple[EgressTier, ...] = ()  # what leaves this site
    ingress_per_gb: Money = 0
    front_door: bool = False
    has: tuple[str, ...] = ()  # what jobs need and find here, as `rules.meets` reads it; `*` for anything
    cloud: str = ""  # whose cloud it is: `aws`; empty: unknown, and on no list
    region: str = ""  # as that cloud names it: `eu-central-1`
    only: str = ""  # it takes only jobs that need this; empty: any
    cluster: TransientCluster | None = None  # None: its cluster is there


@value
class GpuChoice:
    """A GPU model the job can use, and how fast it runs there against the model its run time was given for."""

    model: str
    speed_permille: int = PERMILLE


@value
class DataSet:
    id: str
    size_bytes: int
    site: str  # where it lives
    data_class: str = ""  # empty: unknown, and goes nowhere else


@value
class PodCounts:
    """How the pods of an attempt ended, by the cluster's own count. The engine does not read it; home Jobs show it."""

    succeeded: int = 0
    failed: int = 0
    own_failures: int = 0  # of `failed`: by the program itself; these use up the Job's own `backoffLimit`
    completed_indexes: str = ""  # as Kubernetes writes them: `0-3,7`
    failed_indexes: str = ""
    reason: str = ""  # of the condition with which the attempt's Job ended: `BackoffLimitExceeded`
    message: str = ""


@value
class Origin:
    """The object at a front door that a job was submitted for: a Kubernetes Job, by its uid."""

    site: str  # whose front door it came through
    uid: str


# Needs of a job (`JobSpec.needs`) that only its nodes can meet, beside labels: how they are spelt.
NODE_WITH: Final = "a node with "  #: so much of something, beside GPUs: "a node with 60 cpu"
TOLERATES: Final = "tolerates "  #: taints; other jobs may not use nodes that have them


@value
class JobSpec:
    """What a person asked for. `gpus` is the width, or the least of a range; a range needs a scaling curve."""

    gpus: int
    team: str = "default"
    expected_run_ms: Millis | None = None  # at `gpus` wide and speed 1; None: nobody knows
    checkpoint_every_ms: Millis | None = None  # None: all work is lost with the attempt
    name: str = ""
    user: str = ""  # who asks, by an opaque id; a team's own name where nobody knows who
    project: str = ""
    job_class: str = "training"  # a free name; a policy may declare which there are
    priority: int = 0
    gpu_models: tuple[GpuChoice, ...] = ()  # empty: any
    models_ordered: bool = False  # an ordered preference instead of any-of
    mig_profile: str = ""
    scaling: tuple[tuple[int, int], ...] = ()  # (width, speed in thousandths of the speed at `gpus`), widest last
    interruptible: bool = True
    deadline_at: Instant | None = None
    penalty_per_hour: Money = 0
    data: tuple[str, ...] = ()
    data_class: str = ""  # of what it brings along: at hand at `home`, and elsewhere where a rule lets this class go
    output_bytes: int = 0  # what comes home at the end and at each move home
    cap: Money | None = None
    grace_ms: Millis = 2 * MINUTE  # to write a last checkpoint when told to stop
    restart_ms: Millis = 0  # what starting again from a checkpoint takes beside the site's own start
    lease_max_ms: Millis = 12 * HOUR
    count: int = 1  # an array: one submission, many jobs
    work: str = ""  # the digest of what runs, kept beside the journal; a simulated job has none
    home: str = ""  # the site where all it refers to is at hand; empty: nowhere in particular
    needs: tuple[str, ...] = ()  # what it refers to and any other site must have, like "volume scratch"
    origin: Origin | None = None  # what it was submitted for; None: a request to the API


@value
class Part:
    """How much of an amount belongs to one period."""

    period: str
    amount: Money


@value
class Terms:
    """What one rented thing costs: frozen with its hold, so that a later price list changes nothing."""

    price_per_hour: Money
    most_per_hour: Money
    fees: Money  # charged once
    egress: Money  # kept for what leaves at the end; part of the hold in every period the lease touches
    step_ms: Millis
    minimum_ms: Millis
    grace_ms: Millis
    kill_ms: Millis
    lease_max_ms: Millis
    renewable: bool = True


@value
class Hold:
    """Money promised for one rented thing."""

    id: str  # the attempt's or the node's own id
    scopes: tuple[str, ...]
    terms: Terms
    opened_at: Instant
    deadline_at: Instant  # the running thing ends by itself then; grace and kill are paid for beyond it
    renew_at: Instant
    parts: tuple[Part, ...]


@value
class NodeAsk:
    """A rented node to ask for, with the money that covers it."""

    node: str
    gpus: int
    hold: Hold


@value
class Waiting:
    """How long a job may wait for standing GPUs before it bursts.

    The baselines: patience = numerator x shape // denominator, with shape 1, gpus x run, or (gpus x run)^1.5.
    `worth`: as long as what bursting would cost is more than the waiting is worth, at `value_per_hour`.
    """

    kind: Literal["nowait", "constant", "compute", "power", "worth"] = "nowait"
    numerator: int = 0
    denominator: int = 1
    queue_cap: int | None = None  # more than this many waiting: the newest burst
    value_per_hour: Money = 0  # of one job's waiting; times its class's weight
    most_ms: Millis = DAY  # nobody waits longer because of us
    target_delay_ms: Millis = 0  # a mean delay to aim at: the value of waiting follows
    target_spend: Money = 0  # money a period to aim at, likewise
    look_every_ms: Millis = 6 * HOUR  # how often a target is looked at


@value
class DataRule:
    """Where data of a class may go beside the place it lives: sites, locations or laws by name, `*` for anywhere."""

    data_class: str
    sites: tuple[str, ...] = ()
    locations: tuple[str, ...] = ()
    laws: tuple[str, ...] = ()
    source: str = ""  # file and line; empty: of a sites file


@value
class Policy:
    """Everything a choice depends on that people decide. It comes in as an event and is kept with its revision."""

    name: str
    knob: str = ""
    currency: str = "USD"
    ordering: Literal["fifo", "priority", "fair"] = "fifo"  # fair: by priority, then who had least
    half_life_ms: Millis = DAY  # of what a team had, for fairness
    shares: tuple[tuple[str, int], ...] = ()  # of teams, in thousandths; a team that is not named counts one
    packing: Literal["first_fit", "best_fit", "ends_alike"] = "first_fit"  # the last: see `lookahead`
    backfill: bool = True  # may a later job start while an earlier one does not fit?
    waiting: Waiting = Waiting()
    estimator: Literal["recent", "life_table", "declared"] = "recent"  # the last: what jobs say is true
    home: bool = False  # do rented jobs come home when standing GPUs are free?
    defragment: bool = False  # may jobs on standing GPUs be moved together so that a wider one fits?
    share_nodes: bool = False  # may a burst join a rented node that has GPUs to spare?
    class_weights: tuple[tuple[str, int], ...] = ()  # thousandths; what waiting is worth, by class
    burst: bool = True  # False: owned only
    pace: bool = False  # is a period's money released evenly over it, and dearer the more of it is used?
    reserve: bool = False  # are nodes kept for a job that waited as long as anybody may, and cannot leave?
    preempt: bool = False  # may a job of higher priority stop an interruptible one of lower?
    displace: bool = False  # may a job that cannot leave push one that can out to a rented offer?
    data_rules: tuple[DataRule, ...] = ()
    exhausted: Literal["checkpoint_stop", "move_home"] = "checkpoint_stop"
    require_hard_caps: bool = False  # refuse rented offers whose guarantee is "none"
    least_lease_ms: Millis = 10 * MINUTE
    max_moves: int = 5
    settle_ms: Millis = 30 * MINUTE  # after a move a job stays at least this long
    least_left_ms: Millis = 30 * MINUTE  # with less than this left nothing comes home, whatever the price
    governance: Governance = NONE  # what a policy file says
    hard_caps_source: str = ""  # file and line that demand hard caps


def fill(shapes: tuple[NodeShape, ...], width: int) -> tuple[tuple[NodeShape, int], ...]:
    """The nodes a job of this width takes: whole nodes of the largest shape, and the smallest that holds the rest."""
    largest = shapes[-1]
    whole, rest = divmod(width, largest.gpus)
    last = next((shape for shape in shapes if shape.gpus >= rest), largest)
    if rest and last is largest:
        return ((largest, whole + 1),)
    return tuple(part for part in ((largest, whole), (last, 1 if rest else 0)) if part[1])


def egress_cost(tiers: tuple[EgressTier, ...], size_bytes: int) -> Money:
    """Graduated: each tier prices only the bytes within it, so more never costs less."""
    cost, below = 0, 0
    for tier in tiers:
        top = size_bytes if tier.up_to_gb is None else min(size_bytes, tier.up_to_gb * GB)
        cost += ceil_div(tier.per_gb * max(0, top - below), GB)
        below = max(below, top)
    return cost

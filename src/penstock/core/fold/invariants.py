"""Invariants: what must always be true of the state. Tests, `replay --check` and the auditor of benchmarks ask.

check(state)        # raises AssertionError with the first that is broken; linear in the state
"""

from penstock.core.fold.job_approvals import open_request
from penstock.core.fold.state import Attempt, Job, State
from penstock.core.fold.suited import barred
from penstock.core.ids import is_cluster
from penstock.core.units import NEVER, Money


def check(state: State) -> None:
    """Raise if an invariant is broken."""
    for pool in state.pools.values():
        pool.check()
    state.ledger.check()
    _check_jobs(state)
    _check_approvals(state)
    _check_lanes(state)
    _check_slots(state)
    _check_kept(state)
    _check_nodes(state)
    _check_warm(state)
    _check_clusters(state)
    for attempt in state.attempts.values():
        sold = attempt.offer.sold_by == "attempt" and not state.standing(attempt.offer)
        assert not sold or attempt.lease in state.ledger.leases, f"attempt {attempt.id} has no hold"
    _check_bills(state)
    _check_limits(state)
    for due_at, _, job in state.timers[:1]:
        assert job.until_at == due_at, f"the next timer, at {due_at}, is of job {job.id}, due at {job.until_at}"
    for due_at, _, offer, job in state.retries[:1]:
        assert (job.setbacks or {})[offer].retry_at == due_at, f"the next retry, at {due_at}, is not due for {job.id}"
    for due_at, name, lease in state.renewals[:1]:
        assert lease.renew_at == due_at, f"the next to renew, at {due_at}, is {name}, due at {lease.renew_at}"


def _check_jobs(state: State) -> None:
    live: dict[str, int] = {}
    for attempt in state.attempts.values():
        assert state.jobs.get(attempt.job.id) is attempt.job, f"attempt {attempt.id} of an ended job"
        if attempt.phase in ("starting", "running", "stopping"):
            live[attempt.job.id] = live.get(attempt.job.id, 0) + 1
    for job_id, count in live.items():
        assert count == 1, f"job {job_id} has {count} attempts at once"
    queued = sum(job.queued for job in state.jobs.values())
    assert queued == state.waiting, f"{state.waiting} waiting, but {queued} counted"
    for job in state.jobs.values():
        waits = job.phase in ("waiting", "paused")
        assert job.queued == (waits and job.id not in state.suspended), f"job {job.id} is {job.phase}"
        assert (job.attempt is None) == waits, f"job {job.id} is {job.phase}"
        backs = [(offer, back) for offer, back in sorted((job.setbacks or {}).items()) if back.retry_at > state.at]
        kept = tuple(offer for offer, back in backs if not back.nodes)
        assert job.shape.without == kept, f"job {job.id} is kept from {kept}, its shape from {job.shape.without}"
        unfit = tuple((offer, back.nodes) for offer, back in backs if back.nodes)
        assert job.shape.unfit == unfit, f"job {job.id} is kept from nodes {unfit}, its shape from {job.shape.unfit}"
        assert state.shapes.get(job.shape.key) is job.shape, f"job {job.id} has a shape of an earlier policy"
        assert job.queued or job.until_at == NEVER, f"job {job.id} is {job.phase}, with an answer due"


def _check_approvals(state: State) -> None:
    for name, known in state.approvals.items():
        job = state.jobs.get(name)
        assert job is not None, f"job {name} has ended, and its approvals are kept"
        assert not known.is_empty, f"job {name} has approvals that nobody asked for"
        assert all(rule in known.asked for rule in known.answers), f"job {name}: {known.answers}"
        assert job.queued or open_request(known, "", state.at) is None, f"job {name} is {job.phase}, and still asks"


def _check_lanes(state: State) -> None:
    """A queued job stands in one lane, or waits for its verdict; nobody else does."""
    placed: dict[Job, None] = {}
    for lane in state.lanes:
        assert lane.keys == sorted(lane.jobs), f"lane {lane.number} counts {lane.keys}"
        for key, job in lane.jobs.items():
            assert job.shape.lane is lane, f"job {job.id} is in lane {lane.number}, which is not its shape's"
            assert job.key == key, f"job {job.id}, whose place is {job.key}, stands in lane {lane.number} at {key}"
        placed |= dict.fromkeys(lane.jobs.values())
    for shape in state.shape_list:
        assert shape.lane is None or not shape.pending, f"shape {shape.number} is judged, and jobs wait for its verdict"
        placed |= shape.pending
    for job in placed:
        assert job.queued, f"job {job.id} is {job.phase}, and a lane has it"
    assert len(placed) == state.waiting, f"{state.waiting} waiting, but {len(placed)} in lanes"
    for known, starts in state.starts.items():
        count = sum([len(lane.jobs) for lane in state.lanes if lane.starts is starts])
        assert starts.waiting == count, f"{starts.waiting} wait for {known}, but {count} counted"
    capped = state.policy.waiting.queue_cap is not None
    assert not capped or len(state.newest) == state.waiting, f"{state.waiting} waiting, {len(state.newest)} of them new"
    assert all(job.queued for job in state.newest), "who has left the queue is among its newest"


def _check_nodes(state: State) -> None:
    on = {(node, attempt.id) for attempt in state.attempts.values() for node in attempt.nodes if node in state.nodes}
    for node in state.nodes.values():
        assert node.id in state.ledger.leases, f"node {node.id} is {node.phase} without a hold"
        assert sum(node.on.values()) <= node.gpus, f"node {node.id} of {node.gpus} GPUs has {node.on} on it"
        assert node.phase != "returning" or not node.on, f"node {node.id} is given back with {list(node.on)} on it"
        assert all((node.id, attempt) in on for attempt in node.on), f"node {node.id} has {node.on} on it"
        assert node.free == node.to_spare, f"node {node.id} has {node.to_spare} GPUs to spare, not {node.free}"
    assert len(on) == sum(len(node.on) for node in state.nodes.values()), "an attempt is not on its node"
    listed = [(key, node) for key, nodes in state.seats.items() for node in nodes.values()]
    assert all(key == (node.offer.id, node.payer, node.free) for key, node in listed), "a node is listed wrongly"
    assert len(listed) == sum(node.free > 0 for node in state.nodes.values()), "a node is not listed"


def _check_bills(state: State) -> None:
    """Every hold belongs to somebody."""
    held: dict[Attempt, Money] = {bill.owner: 0 for bill in state.bills.values() if bill.owner is not None}
    assert list(state.bills) == list(state.ledger.leases), "a hold has no bill"
    for name, lease in state.ledger.leases.items():
        owner = state.bills[name].owner
        ownerless = name in state.warm.nodes or is_cluster(name) or _is_returned(state, name)
        assert (owner is None) == ownerless, f"hold {name} has owner {owner}"
        if owner is not None:
            held[owner] += lease.held
    jobs: dict[Job, Money] = {}
    for attempt, amount in held.items():
        assert attempt.held == amount, f"attempt {attempt.id}: {attempt.held} held, {amount} in its holds"
        jobs[attempt.job] = jobs.get(attempt.job, 0) + amount
    for job, amount in jobs.items():
        assert job.held == amount, f"job {job.id}: {job.held} held, {amount} in its holds"


def _is_returned(state: State, name: str) -> bool:
    """A node that no job took, and that its pool has given back or lost."""
    node = state.nodes.get(name)
    return node is not None and node.phase == "returning" and not node.attempt


def _check_warm(state: State) -> None:
    for name in state.warm.nodes:
        assert name in state.nodes, f"node {name} is warm and gone"
        node = state.nodes[name]
        assert node.phase in ("asked", "idle"), f"node {name} is warm and {node.phase}"
        assert not node.on, f"node {name} is warm with {list(node.on)} on it"
        assert not node.open, f"node {name} is warm, and jobs may join it without paying"
        assert node.payer == state.ledger.leases[name].hold.scopes, f"node {name} is paid by {node.payer}"


def _check_clusters(state: State) -> None:
    """A site has at most one cluster, and what runs there has one."""
    clusters = state.clusters
    live = {node.offer.site: node.id for node in state.nodes.values() if is_cluster(node.id)}
    assert live == clusters.live, f"clusters are {live}, and known as {clusters.live}"
    assert len(live) == sum(is_cluster(name) for name in state.nodes), "a site has two clusters"
    for site, users in clusters.used_by.items():
        assert site in live, f"{list(users)} use a cluster at {site} that is not there"
        assert all(state.attempts[name].offer.site == site for name in users), f"{list(users)} are not all at {site}"
    for site in live:
        assert (site in clusters.unused_at) != bool(clusters.used_by.get(site)), f"{site}: is its cluster used?"


def _check_limits(state: State) -> None:
    """Counters of a policy file's limits are the sums they claim to be."""
    for team, gpus in state.at_once.items():
        now = [attempt for attempt in state.attempts.values() if attempt.job.attempt is attempt]
        counted = sum(attempt.width for attempt in now if attempt.job.spec.team == team)
        assert gpus == counted, f"{team} has {gpus} GPUs at once, but {counted} counted"
    for node in state.idle.values():
        assert not node.on, f"node {node.id} is idle with {list(node.on)} on it"
        assert node.phase == "idle", f"node {node.id} is idle and {node.phase}"
    for _, _, attempt in state.run_ends[:1]:
        assert attempt.phase == "running", f"the next to run too long, {attempt.id}, is {attempt.phase}"


def _check_kept(state: State) -> None:
    kept: dict[str, int] = {}
    for job in state.reserved.values():
        assert job.queued, f"nodes are kept for {job.id}, which is {job.phase}"
        assert job.reserved is not None, f"nothing is kept for {job.id}"
        offer, nodes = job.reserved
        for node in nodes:
            assert not kept.get(offer, 0) >> node & 1, f"{offer} node {node} is kept twice"
            kept[offer] = kept.get(offer, 0) | 1 << node
    for name, pool in state.pools.items():
        assert pool.kept == kept.get(name, 0), f"{name} keeps nodes for nobody"


def _check_slots(state: State) -> None:
    taken: dict[tuple[str, int], int] = {}
    for shape in state.shapes.values():
        for offer_id, bits in shape.barred.items() if shape.judged else ():
            assert bits == barred(state.pools[offer_id], shape, offer_id), f"shape {shape.number} at {offer_id}"
    for attempt in state.attempts.values():
        for node, gpus in attempt.slots:
            taken[attempt.offer.id, node] = taken.get((attempt.offer.id, node), 0) + gpus
    for offer_id, pool in state.pools.items():
        for node, free in enumerate(pool.free):
            used = taken.get((offer_id, node), 0)
            others = pool.others.get(node, 0) - pool.owed.get(node, 0)
            assert used + free + others == pool.per_node, (
                f"{offer_id} node {node}: {used} used, {free} free, {others} not ours"
            )

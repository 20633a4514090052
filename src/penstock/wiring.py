"""From options and a sites file to a running control plane: journal, drivers, plane, API. `penstock up` calls `up`.

Without a sites file this machine is the one site, owned, with a slot for each of its GPUs, or two if it has none.
"""

import asyncio
import contextlib
import ctypes
import functools
import gc
import hashlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.config import LocalSite, SitesFile, read_sites, this_machine, unmatched_caps
from penstock.core.errors import BadInput
from penstock.core.model.events import PolicySet
from penstock.core.values import value
from penstock.data.checkpoints import handed_out
from penstock.drivers.driver import Refused
from penstock.drivers.local import isolation, limits
from penstock.journal.head_memory import FILE, HeadMemory
from penstock.journal.journal import Fenced, Held, Journal, Reader, Unwritable
from penstock.journal.open import is_postgres, open_journal, open_reader, reachable
from penstock.live.clock import Clock, ClockMemory, clock_at
from penstock.live.config_facts import configured
from penstock.live.home_folder import close_file, make_home, secret_key, write_address
from penstock.live.periods import Periods
from penstock.live.plane import NotReady, Plane, Setup
from penstock.live.policy_changes import PolicyChanges
from penstock.live.site_changes import SiteChanges, digest_of
from penstock.live.space_reserve import SpaceReserve
from penstock.options import Options
from penstock.site_drivers import SiteDrivers, execution_cluster, extra, has_own_users

if TYPE_CHECKING:
    from fastapi import FastAPI

    from penstock.config.sites import ConfigMapKey
    from penstock.front.home_cluster import ExecutionCluster
    from penstock.front.home_jobs import HomeJobs
    from penstock.front.kueue.workloads import KueueWorkloads
    from penstock.front.manager import Manager
    from penstock.live.anchoring import Anchoring
    from penstock.web.access import Guard
    from penstock.web.tls import Certificate
    from penstock.web.tokens import Token, Tokens

#: Threads take turns this often: what is asked while the engine thinks is answered within a few of these.
TURN_SECONDS: Final = 0.001
M_ARENA_MAX: Final = -8  #: as malloc.h has it
ARENAS: Final = 2


def event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the loop that `up` runs in: uvloop, which answers with half the CPU, where there is one."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.new_event_loop
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made


async def up(options: Options, started: Callable[[str, str, str], None]) -> None:
    """Run until a signal. `started` is told the address, the token's file and a browser's way in, once all is up."""
    from penstock.web.server import address_of, bind

    _share_arenas()
    certificate = _certificate(options)
    sock = bind(options.listen, options.port)
    with contextlib.closing(sock), _for_us_alone() as umask:
        async with running(replace(options, umask=umask), sock, certificate) as (plane, invite):
            address = address_of(sock, tls=certificate is not None)
            write_address(options.home, address)
            started(address, str(options.home / "token"), f"{address}{invite()}")
            await _until_told(plane)


def _certificate(options: Options) -> "Certificate | None":
    """What TLS is served with; refuses to send tokens over a network that others may read, unless told to."""
    from penstock.web.server import is_loopback
    from penstock.web.tls import Certificate

    if bool(options.tls_cert) != bool(options.tls_key):
        raise BadInput("TLS needs both a certificate and its key; give --tls-cert and --tls-key.")
    if options.tls_cert:
        return Certificate(Path(options.tls_cert), Path(options.tls_key), options.home / "certificate.pem")
    if not is_loopback(options.listen) and not options.plain_http:
        raise BadInput(
            f"Others could read tokens on their way to {options.listen}; give --tls-cert and --tls-key, or say"
            " --plain-http if a proxy in front of Penstock encrypts."
        )
    return None


@contextlib.contextmanager
def _for_us_alone() -> Iterator[int]:
    """What we write is for us alone; the umask that we were given is for jobs."""
    before = os.umask(0o077)
    try:
        yield before
    finally:
        os.umask(before)


@contextlib.asynccontextmanager
async def running(
    options: Options, sock: socket.socket, certificate: "Certificate | None" = None
) -> AsyncIterator[tuple[Plane, Callable[[], str]]]:
    """A plane that serves its API on this socket, from before it is ready until it has let go; and browsers' links."""
    from penstock.web.server import serving
    from penstock.web.token_files import older_tokens

    sys.setswitchinterval(TURN_SECONDS)
    read = _read_files(options)
    make_home(options.home)
    older = older_tokens(options.home / "tokens.json")  # before anything is opened: a damaged file changes nothing
    where = options.journal or str(options.home / "journal.db")
    opened = _open_journal(options.home, where)
    _say_how_jobs_run(options, read.file)
    with contextlib.closing(opened) as journal, contextlib.closing(open_reader(where)) as reader:
        parts = await _assemble(options, read, journal, reader)
        plane, guard, app = parts.plane, parts.guard, parts.app
        with reachable():
            _know_tokens(guard.tokens, reader, options.home, older)
            _say(parts.anchoring.check())
            _say(filter(None, [journal.memory_trouble()]))
        async with (
            guard.denials.saved(),
            guard.tokens.followed(reader),
            serving(app, sock, certificate, proxies=options.proxies),
            _followed(certificate, plane),
        ):
            try:
                await _begin(plane)
                if plane.durability.has_failover:
                    _say([plane.durability.says])
                secret = await _record_tokens(guard.tokens, reader, options.home, older)
                async with _working(options, parts, reader):
                    yield plane, lambda: str(app.state.links.make(guard.tokens.find(secret)))
            finally:
                await plane.stop()
                await parts.anchoring.write()
                for home in parts.homes:  # also if it never came as far as their doors: starts go through them
                    await home.cluster.close()
                for kueue in parts.kueues:
                    await kueue.close()


@value
class _Files:
    """What the sites file and the policy file say at the start."""

    digest: str  # of the sites file
    base: SitesFile  # without the policy
    named: "ConfigMapKey | None"  # where the policy is instead
    file: SitesFile
    text: bytes  # of the policy


def _read_files(options: Options) -> _Files:
    digest = digest_of(options.sites)  # before it is read: a change meanwhile is a change
    base = _without_policy(options)
    named = _config_map(options, base)
    return _Files(digest, base, named, *_governed(options, base))


@value
class _Parts:
    """All that is made of them, before any of it works."""

    file: SitesFile
    named: "ConfigMapKey | None"
    clock: Clock
    homes: "list[HomeJobs]"
    kueues: "list[KueueWorkloads]"
    sites: SiteDrivers
    plane: Plane
    guard: "Guard"
    app: "FastAPI"
    policies: PolicyChanges
    changes: SiteChanges
    anchoring: "Anchoring"


async def _assemble(options: Options, read: _Files, journal: Journal, reader: Reader) -> _Parts:
    from penstock.live.anchoring import Anchoring
    from penstock.telemetry import Metrics
    from penstock.web.app import build, guard_of

    base, named, file, text, clock = read.base, read.named, read.file, read.text, _clock(options)
    homes = _homes(options, file)  # first: the drivers bind home Jobs as these show them, and doors work them off
    if named is not None:
        file, text = await _from_cluster(base, named, homes, reader)
    kueues = _kueues(options, file)
    sites = SiteDrivers(options, file, journal.installation, reader, clock, homes, kueues)
    plane = make_plane(options, file, text, journal, reader, clock, sites)
    guard = guard_of(options.home, plane)
    metrics = Metrics(lambda: plane.view, lambda: not plane.ready, reader.counts)
    app = build(plane, reader, guard, metrics, rehearsal=options.rehearse or bool(file.rehearsed))
    app.state.policies = policies = PolicyChanges(plane, base, named.title if named else options.policy, text)
    app.state.sites = changes = SiteChanges(plane, policies, sites, options.sites, read.digest)
    return _Parts(
        file=file,
        named=named,
        clock=clock,
        homes=homes,
        kueues=kueues,
        sites=sites,
        plane=plane,
        guard=guard,
        app=app,
        policies=policies,
        changes=changes,
        anchoring=Anchoring(
            options.anchors, journal, journal.answered, clock.now, plane.alarms.set, lambda: plane.lost
        ),
    )


@contextlib.asynccontextmanager
async def _working(options: Options, parts: _Parts, reader: Reader) -> AsyncIterator[None]:
    """We lead: what works beside the plane, while this lasts."""
    from penstock.live.retention import keep_sweeping

    file, plane, sites, homes = parts.file, parts.plane, parts.sites, parts.homes
    _say([*file.notes, *unmatched_caps(file), *[raised.says for raised in plane.raised_caps.values()]])
    _calm_the_collector()
    async with (
        _beside(keep_sweeping(sites.store, reader, parts.clock), parts.anchoring.run()),
        _reloading(*([] if parts.named else [parts.policies]), parts.changes),
        _policy_followed(parts.named, homes, parts.policies, parts.clock),
        _doors(parts, _elsewhere(file, homes), reader, options.home) as parts.app.state.manager,
    ):
        yield


def _open_journal(home: Path, where: str) -> Journal:
    """Open it, closed to other users if it is a file."""
    if not is_postgres(where):
        for ending in ("", "-wal", "-shm", "-lock"):
            close_file(Path(where + ending))
    with reachable():
        return open_journal(where, key=secret_key(home / "journal.key"), memory=HeadMemory(home / FILE))


@contextlib.asynccontextmanager
async def _followed(certificate: "Certificate | None", plane: Plane) -> AsyncIterator[None]:
    """Read the certificate again whenever its files change."""
    if certificate is None:
        yield
        return
    certificate.show()
    async with _beside(certificate.follow(functools.partial(plane.alarms.set, "certificate", "tls"))):
        yield


@contextlib.asynccontextmanager
async def _reloading(*files: PolicyChanges | SiteChanges) -> AsyncIterator[None]:
    """The policy file and the sites file are applied again when they change, and on SIGHUP."""
    given = [changes for changes in files if changes.path]
    if not given:
        yield
        return
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    with contextlib.suppress(NotImplementedError):  # not on Windows
        loop.add_signal_handler(signal.SIGHUP, signalled.set)
    try:
        async with _beside(*[changes.watch() for changes in given], _on_signal(signalled, given)):
            yield
    finally:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGHUP)


async def _on_signal(signalled: asyncio.Event, files: Sequence[PolicyChanges | SiteChanges]) -> None:
    while True:
        await signalled.wait()
        signalled.clear()
        for changes in files:
            _say([await changes.reload()])


@contextlib.asynccontextmanager
async def _beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these while the block does."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


def _know_tokens(tokens: "Tokens", reader: Reader, home: Path, older: "Sequence[Token]") -> None:
    """Those of the journal, of an older version's file, and our own commands': also while we stand by."""
    from penstock.web.token_files import own_secret

    tokens.hold(*older)
    if tokens.read(reader):
        own_secret(tokens, home / "token")


async def _record_tokens(tokens: "Tokens", reader: Reader, home: Path, older: "Sequence[Token]") -> str:
    """We lead: record what the journal does not have yet, and set the older version's file aside. Returns the secret
    of our own commands.
    """
    from penstock.web.token_files import own_secret, set_aside

    with reachable():
        await asyncio.to_thread(tokens.read, reader)
        known = {row.digest for row in await asyncio.to_thread(reader.tokens)} if older else set()
    tokens.hold(*(token for token in older if token.digest not in known), unrecorded=True)
    secret = own_secret(tokens, home / "token")
    try:
        await tokens.record()
    except NotReady as error:
        raise BadInput(str(error)) from None
    if (home / "tokens.json").exists():
        aside = set_aside(home / "tokens.json")
        sys.stderr.write(
            f"Notice: tokens are in the journal now; {home / 'tokens.json'} was imported and is called {aside.name}.\n"
        )
    return secret


def _clock(options: Options) -> Clock:
    """A real one begins with the time that the machine's boot clock makes it, where an earlier start has noted it."""
    if options.rehearse:
        return clock_at(options.speed)
    clock = clock_at(1)
    clock.memory = ClockMemory(options.home / "clock.json")
    if not options.accept_clock and (at := clock.memory.now()) is not None:
        clock.begin_at(at)
    return clock


def _say(notices: Iterable[str]) -> None:
    """What an operator should know of the sites file before relying on it."""
    for notice in notices:
        sys.stderr.write(f"Notice: {notice}\n")


async def _begin(plane: Plane) -> None:
    try:
        await plane.start()
    except (Held, Refused, Unwritable, Fenced) as error:  # fenced: it was stopped for longer than its lease lasts
        raise BadInput(str(error)) from None


@contextlib.asynccontextmanager
async def _doors(
    parts: _Parts, elsewhere: "list[ExecutionCluster]", reader: Reader, home: Path
) -> "AsyncIterator[Manager | None]":
    """Home clusters and Kueues are watched while this lasts."""
    if not parts.homes and not parts.kueues:
        yield None
        return
    from penstock.front.leave_file import import_leave_file
    from penstock.front.manager import Manager

    manager = Manager(parts.homes, parts.plane, reader, elsewhere, parts.kueues)

    def meet(cluster: "ExecutionCluster") -> None:
        elsewhere.append(cluster)
        manager.add(cluster)

    parts.sites.meet, parts.sites.part = meet, manager.forget
    with contextlib.suppress(NotReady):  # the file stays, and the next start asks again
        await import_leave_file(home / "leaving", manager)
    task = asyncio.create_task(manager.keep_open())
    try:
        yield manager
    finally:
        task.cancel()
        await asyncio.wait([task])
        for execution in elsewhere:
            await execution.cluster.close()


def _share_arenas() -> None:
    """glibc gives each thread an arena of its own, and we have thirty threads: what they give back stays in pieces, and
    memory grew by fourteen megabytes an hour. Elsewhere there is no such function.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def _calm_the_collector() -> None:
    """What was there at the start stays; walking through it again and again would keep everybody waiting. The rest is
    collected while it is young. Python walks through the old only when that has grown by a quarter.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


async def _until_told(plane: Plane) -> None:
    """Until SIGINT or SIGTERM, or until the plane ends by itself because somebody else writes its journal now."""
    signalled = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    waits: asyncio.Future[object] = asyncio.ensure_future(signalled.wait())
    ends: list[asyncio.Future[Any]] = [waits, plane.over]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()
    if plane.over.done() and isinstance(error := plane.over.exception(), Fenced):
        raise BadInput(f"{error}") from None
    if plane.over.done():
        plane.over.result()


# --- what there is ---------------------------------------------------------------------------------------------------


def make_plane(
    options: Options,
    file: SitesFile,
    text: bytes,
    journal: Journal,
    reader: Reader,
    clock: Clock,
    sites: SiteDrivers,
) -> Plane:
    """`text`: of the policy file; empty: there is none."""
    speed = options.speed if options.rehearse else 1
    setup = Setup(
        opening=configured(file),
        texts=((hashlib.sha256(text).hexdigest(), text),) if text else (),
        accept_raised_caps=options.accept_raised_caps,
        accept_clock=options.accept_clock,
        simulated=options.rehearse,
        holder=f"{socket.gethostname()}:{options.home.absolute()}",
        stand_by=options.stand_by,
        calendar=Periods(file.time_zone),
        lease_ms=30_000 * speed,
        teams=file.teams,
        data_teams=file.data_teams,
        queued=reader.queued,
        queued_by=reader.queued_by,
        reserve=_reserve(options),
        turns_away=sites.turns_away,
    )
    plane = Plane(journal, sites.all(file), setup, clock)
    sites.alarm = plane.alarms.set
    return plane


def _reserve(options: Options) -> SpaceReserve | None:
    """Of the journal's own disk; a database server looks after its own."""
    if is_postgres(options.journal):
        return None
    return SpaceReserve(Path(options.journal).absolute().parent if options.journal else options.home)


def _homes(options: Options, file: SitesFile) -> "list[HomeJobs]":
    """The clusters that people apply their Jobs to."""
    doors = [site.id for site in file.sites if site.front_door and not options.rehearse]
    homes = [(site, cluster) for site, cluster in file.kubernetes if site in doors]
    if not homes:
        return []
    with extra(homes[0][0]):
        from penstock.front.home_cluster import HomeCluster
        from penstock.front.home_jobs import HomeJobs
        from penstock.kube.access import connect

    key = secret_key(options.home / "users.key")
    return [
        HomeJobs(HomeCluster(site, connect(cluster.access), (cluster.namespace, *cluster.namespaces)), key)
        for site, cluster in homes
    ]


def _kueues(options: Options, file: SitesFile) -> "list[KueueWorkloads]":
    """The Kueues whose Workloads are governed."""
    if not file.kueue or options.rehearse:
        return []
    with extra(file.kueue[0].name):
        from penstock.front.kueue.workloads import KueueCluster, KueueWorkloads
        from penstock.kube.access import connect

    own = {queue.manager: site for site, queue in file.queues if not queue.cluster}
    return [
        KueueWorkloads(
            KueueCluster(
                manager.name, connect(manager.access), manager.check, manager.namespaces, own.get(manager.name, "")
            )
        )
        for manager in file.kueue
    ]


def _elsewhere(file: SitesFile, homes: "Sequence[HomeJobs]") -> "list[ExecutionCluster]":
    """The other clusters, where attempts of home Jobs run."""
    doors = [home.site for home in homes]
    clusters = [(site, cluster) for site, cluster in file.kubernetes if site not in doors] if homes else []
    return [execution_cluster(file, site, cluster) for site, cluster in clusters]


def _say_how_jobs_run(options: Options, file: SitesFile) -> None:
    """Whoever starts Penstock must know what its jobs can read."""
    if not options.rehearse:
        _say(_what_jobs_are_handed(file))
    sites = [site for site, _ in file.local if not options.rehearse]
    if not sites:
        return
    isolation.hide_from_jobs()
    isolation.be_ended_last()
    for words in _how_jobs_run(options, ", ".join(sites), dict(file.local)):
        sys.stderr.write(f"Notice: {words}\n")


def _what_jobs_are_handed(file: SitesFile) -> Iterator[str]:
    """The bucket's way in is Penstock's own: a role that may do more than that is every job's."""
    without_secret = [site for site, cluster in file.kubernetes if not cluster.secret]
    sites, names = [*(site for site, _ in file.local), *without_secret], handed_out()
    if sites and names:
        yield (
            f"Every job at {', '.join(sites)} sees {', '.join(names)} of Penstock's environment, to reach the bucket of"
            " its checkpoints: give Penstock keys that open this bucket and nothing else"
            + (", or name a Secret at the site ('secret')." if without_secret else ".")
        )


def _how_jobs_run(options: Options, sites: str, local: Mapping[str, LocalSite]) -> Iterator[str]:
    ours = f"run as uid {os.geteuid()}, as Penstock does"
    if options.trust_teams:
        yield f"Jobs at {sites} {ours}: they can read its tokens and all teams' files."
    elif why := isolation.missing():
        yield (
            f"Jobs at {sites} {ours} ({why}), and can read its files: each of these sites takes jobs of one team only."
            " --trust-teams lets several teams in."
        )
    else:
        yield (
            f"Each job at {sites} has a user of its own, from uid {isolation.FIRST_UID} on: it reads what every user of"
            " this machine may read, and writes in its own folder. --trust-teams runs jobs as root instead."
        )
    if any(site.memory for site in local.values()) and not (has_own_users(options) and limits.top()):
        yield "There are no cgroups of version 2 that Penstock can write: 'memory' of local sites limits nothing."


# --- without a sites file --------------------------------------------------------------------------------------------


def _governed(options: Options, file: SitesFile) -> tuple[SitesFile, bytes]:
    """What the sites file says with the policy file beside it, and that file's text; empty: there is none."""
    if not options.policy:
        return file, b""
    from penstock.config.document import read_regular
    from penstock.policy.file import governed, parse_policy

    raw = read_regular(options.policy)
    return governed(file, parse_policy(raw, options.policy, file)), raw


def _config_map(options: Options, file: SitesFile) -> "ConfigMapKey | None":
    """Where the policy comes from, unless a file has it."""
    named = None if options.rehearse else file.policy_config_map
    if named is not None and options.policy:
        raise BadInput(
            f"{options.sites} says that {named.title} has the policy ('policy_config_map'), and --policy says"
            f" {options.policy}; take one of them away."
        )
    return named


async def _from_cluster(
    file: SitesFile, named: "ConfigMapKey", homes: "Sequence[HomeJobs]", reader: Reader
) -> tuple[SitesFile, bytes]:
    """What is in force stays until the ConfigMap is heard; a first start reads it, and fails without it."""
    from penstock.front.policy_config_map import first_text
    from penstock.policy.file import governed, parse_policy

    with reachable():
        text = await asyncio.to_thread(_text_in_force, reader)
    cluster = next(home.cluster for home in homes if home.site == named.site)
    try:
        text = text or await first_text(cluster, named)
        return governed(file, parse_policy(text, named.title, file)), text
    except BadInput:
        for home in homes:
            await home.cluster.close()
        raise


def _text_in_force(reader: Reader) -> bytes:
    """The policy file that the journal has last; empty: there is none."""
    for happening in reader.feed(limit=1, kinds=("PolicySet",)):
        digest = happening.event.policy.governance.digest if isinstance(happening.event, PolicySet) else ""
        return (reader.blob(digest) or b"") if digest else b""
    return b""


@contextlib.asynccontextmanager
async def _policy_followed(
    named: "ConfigMapKey | None", homes: "Sequence[HomeJobs]", changes: PolicyChanges, clock: Clock
) -> AsyncIterator[None]:
    """The ConfigMap with the policy is watched while this lasts."""
    if named is None:
        yield
        return
    from penstock.front.policy_config_map import PolicyConfigMap

    cluster = next(home.cluster for home in homes if home.site == named.site)
    async with _beside(PolicyConfigMap(cluster, named, changes, clock.now).run()):
        yield


def _without_policy(options: Options) -> SitesFile:
    if options.sites:
        return read_sites(options.sites)
    if options.rehearse:
        from penstock.sim.scenario import rehearsal_sites

        return SitesFile("USD", rehearsal_sites())
    from penstock.drivers.local.gpus import device_uuids

    return this_machine(len(device_uuids()))

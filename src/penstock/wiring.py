"""From options and a sites file to a running control plane: journal, drivers, plane, API. `penstock up` calls `up`.

Without a sites file this machine is the one site, owned, with a slot for each of its GPUs, or two if it has none.
"""

import asyncio
import contextlib
import functools
import gc
import hashlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from penstock.config import LocalSite, SitesFile, read_sites, this_machine, unmatched_caps
from penstock.core.errors import BadInput
from penstock.core.model.types import Site
from penstock.core.values import value
from penstock.drivers.driver import Driver, Refused
from penstock.drivers.local import isolation, limits
from penstock.drivers.local.driver import LocalDriver
from penstock.drivers.local.store import PASSED_ON, LocalSettings
from penstock.journal.journal import Fenced, Held, Journal, Reader, Unwritable
from penstock.journal.open import is_postgres, open_journal, open_reader, reachable
from penstock.live.clock import Clock, ClockMemory, clock_at
from penstock.live.config_facts import configured
from penstock.live.home_folder import close_file, make_home, secret_key, write_address
from penstock.live.periods import Periods
from penstock.live.plane import NotReady, Plane, Setup
from penstock.live.policy_changes import PolicyChanges
from penstock.live.space_reserve import SpaceReserve

if TYPE_CHECKING:
    from penstock.front.home_cluster import ExecutionCluster
    from penstock.front.home_jobs import HomeJobs
    from penstock.front.manager import Manager
    from penstock.kube.maps import Maps
    from penstock.kube.node_selection import ClusterSite
    from penstock.sim.engine.rehearsal import Stage
    from penstock.web.tls import Certificate
    from penstock.web.tokens import Token, Tokens

#: Where jobs with users of their own have their folders: they may not enter the home folder.
JOBS: Final = Path("/var/lib/penstock-jobs")
#: Threads take turns this often: what is asked while the engine thinks is answered within a few of these.
TURN_SECONDS: Final = 0.001


@value
class Options:
    home: Path
    sites: str = ""  # a sites file; empty: this machine
    policy: str = ""  # a policy file; empty: as the sites file says
    journal: str = ""  # a file or postgresql://...; empty: in the home folder
    listen: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    rehearse: bool = False  # the sites' world is simulated
    speed: int = 1  # of a rehearsal: so many seconds in one
    stand_by: bool = False
    tls_cert: str = ""  # a certificate's file, with its key's; empty: plain HTTP
    tls_key: str = ""
    plain_http: bool = False  # also where others than this machine can read it
    proxies: str = ""  # addresses that are believed about their clients' addresses
    anchors: tuple[str, ...] = ()  # files that the journal's head is appended to; -: standard error
    accept_raised_caps: bool = False  # may the sites file raise a cap above the one in force?
    accept_clock: bool = False  # is the wall clock right, however far it is ahead?
    trust_teams: bool = False  # jobs of local sites run as our own user, whichever team's they are
    umask: int = 0o022  # of jobs that run as our own user


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
    from penstock.data.checkpoints import store_of
    from penstock.live.anchoring import Anchoring
    from penstock.live.retention import keep_sweeping
    from penstock.telemetry import Metrics
    from penstock.web.app import build, guard_of
    from penstock.web.server import serving
    from penstock.web.token_files import older_tokens

    sys.setswitchinterval(TURN_SECONDS)
    file = _sites(options)
    make_home(options.home)
    older = older_tokens(options.home / "tokens.json")  # before anything is opened: a damaged file changes nothing
    where = options.journal or str(options.home / "journal.db")
    opened = _open_journal(options.home, where)
    _say_how_jobs_run(options, file)
    with contextlib.closing(opened) as journal, contextlib.closing(open_reader(where)) as reader:
        clock = _clock(options)
        homes = _homes(options, file)  # first: the drivers bind home Jobs as these show them, and doors work them off
        plane = make_plane(options, file, journal, reader, clock, homes)
        guard = guard_of(options.home, plane)
        with reachable():
            _know_tokens(guard.tokens, reader, options.home, older)
        store = store_of(*_checkpoints(options, file, journal.installation))
        metrics = Metrics(lambda: plane.view, lambda: not plane.ready, reader.counts)
        app = build(plane, reader, guard, metrics, rehearsal=options.rehearse or bool(file.rehearsed))
        app.state.policies = policies = PolicyChanges(plane, _without_policy(options), options.policy)
        anchoring = Anchoring(options.anchors, journal, lambda: plane.claims.head, clock.now, plane.alarms.set)
        with reachable():
            anchoring.check()
        async with (
            guard.denials.saved(),
            guard.tokens.followed(reader),
            serving(app, sock, certificate, proxies=options.proxies),
            _followed(certificate, plane),
        ):
            try:
                await _begin(plane)
                secret = await _record_tokens(guard.tokens, reader, options.home, older)
                _say([*file.notes, *unmatched_caps(file), *[raised.says for raised in plane.raised_caps.values()]])
                _calm_the_collector()
                async with (
                    _beside(keep_sweeping(store, reader, clock), anchoring.run()),
                    _reloading(policies),
                    _doors(homes, _elsewhere(file, homes), plane, reader, options.home) as app.state.manager,
                ):
                    yield plane, lambda: str(app.state.links.make(guard.tokens.find(secret)))
            finally:
                await plane.stop()
                await anchoring.write()
                for home in homes:  # also if it never came as far as their doors: starts go through them
                    await home.cluster.close()


def _open_journal(home: Path, where: str) -> Journal:
    """Open it, closed to other users if it is a file."""
    if not is_postgres(where):
        for ending in ("", "-wal", "-shm", "-lock"):
            close_file(Path(where + ending))
    with reachable():
        return open_journal(where, key=secret_key(home / "journal.key"))


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
async def _reloading(changes: PolicyChanges) -> AsyncIterator[None]:
    """The policy file is applied again when it changes, and on SIGHUP."""
    if not changes.path:
        yield
        return
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    with contextlib.suppress(NotImplementedError):  # not on Windows
        loop.add_signal_handler(signal.SIGHUP, told.set)
    try:
        async with _beside(changes.watch(), _on_signal(told, changes)):
            yield
    finally:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGHUP)


async def _on_signal(told: asyncio.Event, changes: PolicyChanges) -> None:
    while True:
        await told.wait()
        told.clear()
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
    homes: "list[HomeJobs]", elsewhere: "list[ExecutionCluster]", plane: Plane, reader: Reader, home: Path
) -> "AsyncIterator[Manager | None]":
    """Home clusters are watched while this lasts."""
    if not homes:
        yield None
        return
    from penstock.front.manager import Manager

    manager = Manager(homes, plane, reader, home / "leaving", elsewhere)
    task = asyncio.create_task(manager.keep_open())
    try:
        yield manager
    finally:
        task.cancel()
        await asyncio.wait([task])
        for execution in elsewhere:
            await execution.cluster.close()


def _calm_the_collector() -> None:
    """What was there at the start stays; walking through it again and again would keep everybody waiting."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


async def _until_told(plane: Plane) -> None:
    """Until SIGINT or SIGTERM, or until the plane ends by itself because somebody else writes its journal now."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    waits: asyncio.Future[object] = asyncio.ensure_future(told.wait())
    ends: list[asyncio.Future[Any]] = [waits, plane.over]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()
    if plane.over.done() and isinstance(error := plane.over.exception(), Fenced):
        raise BadInput(f"{error}") from None
    if plane.over.done():
        plane.over.result()


# --- what there is ---------------------------------------------------------------------------------------------------


def make_plane(
    options: Options, file: SitesFile, journal: Journal, reader: Reader, clock: Clock, homes: "Sequence[HomeJobs]" = ()
) -> Plane:
    speed = options.speed if options.rehearse else 1
    setup = Setup(
        opening=configured(file),
        texts=_texts(options, file),
        accept_raised_caps=options.accept_raised_caps,
        accept_clock=options.accept_clock,
        holder=f"{socket.gethostname()}:{options.home.absolute()}",
        stand_by=options.stand_by,
        calendar=Periods(file.time_zone),
        lease_ms=30_000 * speed,
        teams=file.teams,
        data_teams=file.data_teams,
        queued=reader.queued,
        reserve=_reserve(options),
        turns_away=lambda spec: next(filter(None, (site.turns_away(spec.team) for site in local)), ""),
    )
    made = drivers(options, file, journal.installation, reader, clock)
    local = [driver for driver in made.values() if isinstance(driver, LocalDriver)]
    plane = Plane(journal, _gated(made, homes, reader), setup, clock)
    for driver in local:
        driver.alarm = plane.alarms.set
    return plane


def _reserve(options: Options) -> SpaceReserve | None:
    """Of the journal's own disk; a database server looks after its own."""
    if is_postgres(options.journal):
        return None
    return SpaceReserve(Path(options.journal).absolute().parent if options.journal else options.home)


def _gated(made: Mapping[str, Driver], homes: "Sequence[HomeJobs]", reader: Reader) -> Mapping[str, Driver]:
    """Where there is a front door, a home Job is bound before anything is started for it."""
    if not homes:
        return made
    from penstock.front.binding_driver import BindingDriver

    by_site = {home.site: home for home in homes}
    return {site: BindingDriver(driver, by_site, reader.story) for site, driver in made.items()}


def _homes(options: Options, file: SitesFile) -> "list[HomeJobs]":
    """The clusters that people apply their Jobs to."""
    doors = [site.id for site in file.sites if site.front_door and not options.rehearse]
    homes = [(site, cluster) for site, cluster in file.kubernetes if site in doors]
    if not homes:
        return []
    with _extra(homes[0][0]):
        from penstock.front.home_cluster import HomeCluster
        from penstock.front.home_jobs import HomeJobs
        from penstock.kube.access import connect

    key = secret_key(options.home / "users.key")
    return [
        HomeJobs(HomeCluster(site, connect(cluster.access), (cluster.namespace, *cluster.namespaces)), key)
        for site, cluster in homes
    ]


def _elsewhere(file: SitesFile, homes: "Sequence[HomeJobs]") -> "list[ExecutionCluster]":
    """The other clusters, where attempts of home Jobs run. Nothing is sent by these connections before we leave."""
    if not homes:
        return []
    from penstock.front.home_cluster import ExecutionCluster
    from penstock.kube.access import connect

    doors, maps = [home.site for home in homes], {maps.site: maps for maps in file.maps}
    return [
        ExecutionCluster(site, connect(cluster.access), _namespaces(cluster, maps.get(site)))
        for site, cluster in file.kubernetes
        if site not in doors
    ]


def _namespaces(cluster: "ClusterSite", maps: "Maps | None") -> tuple[str, ...]:
    """All that attempts run in there."""
    mapped = tuple(to for _, to in maps.namespaces) if maps else ()
    return tuple(dict.fromkeys((cluster.namespace, *cluster.namespaces, *mapped)))


def drivers(options: Options, file: SitesFile, installation: str, reader: Reader, clock: Clock) -> Mapping[str, Driver]:
    local, clusters = dict(file.local), dict(file.kubernetes)
    rehearsed = [site for site in file.sites if options.rehearse or site.id in file.rehearsed]
    stage = _stage(file, reader, clock) if rehearsed else None
    made: dict[str, Driver] = {}
    for site in file.sites:
        if stage is not None and site in rehearsed:
            made[site.id] = _rehearsal(site, stage)
        elif site.id in local:
            made[site.id] = _local(site, local[site.id], options, file, installation, reader, clock)
        elif site.id in clusters:
            made[site.id] = _kubernetes(site, clusters[site.id], file, options.home, installation, clock)
        else:
            raise BadInput(
                f"{options.sites}: site '{site.id}' says nothing of how it is reached; give it 'driver: local',"
                " 'driver: kubernetes' or 'driver: rehearsal', or start with --rehearse."
            )
    return made


def _local(
    site: Site, local: LocalSite, options: Options, file: SitesFile, installation: str, reader: Reader, clock: Clock
) -> Driver:
    from penstock.data.checkpoints import store_of

    own_users = has_own_users(options)
    settings = LocalSettings(
        notice_ms=local.notice_ms,
        grace_ms=local.grace_ms,
        losses=local.losses_ms,
        data=file.data_folders,
        pass_on=(*PASSED_ON, *local.pass_env),
        jobs=str(_jobs_folder(site.id, local, installation)) if own_users else "",
        one_team=not own_users and not options.trust_teams,
        log_bytes=local.log_bytes,
        memory=local.memory,
        processes=local.processes,
        cgroups=limits.top() if own_users else "",
        umask=0o077 if own_users else options.umask,
    )

    def team_of(job: str) -> str:
        row = reader.job(job)
        return row.team if row is not None else ""

    store = store_of(*_checkpoints(options, file, installation))
    folder = options.home / "sites" / site.id
    return LocalDriver(site, folder, installation, store, clock.now, settings, team_of)


def has_own_users(options: Options) -> bool:
    """True if each job of a local site has a user of its own."""
    return not options.trust_teams and not isolation.missing()


def _jobs_folder(site: str, local: LocalSite, installation: str) -> Path:
    return (Path(local.folder) if local.folder else JOBS) / installation / site


def _checkpoints(
    options: Options, file: SitesFile, installation: str
) -> tuple[Mapping[str, Path], Callable[[str], int]]:
    """Each site's folder for checkpoints, and whose they are."""
    folders = {site.id: options.home / "sites" / site.id for site in file.sites}
    if not has_own_users(options):
        return folders, lambda _: 0
    own = {site: _jobs_folder(site, local, installation) for site, local in file.local}
    return folders | own, lambda job: isolation.uid_of(installation, job)


def _say_how_jobs_run(options: Options, file: SitesFile) -> None:
    """Whoever starts Penstock must know what its jobs can read."""
    sites = [site for site, _ in file.local if not options.rehearse]
    if not sites:
        return
    isolation.hide_from_jobs()
    for words in _how_jobs_run(options, ", ".join(sites), dict(file.local)):
        sys.stderr.write(f"Notice: {words}\n")


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


def _kubernetes(
    site: Site, cluster: "ClusterSite", file: SitesFile, home: Path, installation: str, clock: Clock
) -> Driver:
    with _extra(site.id):
        from penstock.drivers.kubernetes.connection import KubernetesSettings
        from penstock.drivers.kubernetes.driver import KubernetesDriver
        from penstock.kube.access import connect
    from penstock.data.checkpoints import NoStore, bucket

    zone = ZoneInfo(file.time_zone)
    maps = next((maps for maps in file.maps if maps.site == site.id), None)
    settings = KubernetesSettings(
        namespace=cluster.namespace,
        namespaces=_namespaces(cluster, maps),
        places=cluster.places,
        shared=cluster.shared,
        secret=cluster.secret,
        maps=maps,
        grace_ms=cluster.grace_ms,
        room_ms=cluster.room_ms,
        scale_ms=cluster.scale_ms,
        hour=lambda: datetime.now(zone).hour,
    )
    folder, store = home / "sites" / site.id, bucket(cluster.secret) or NoStore()
    return KubernetesDriver(site, folder, installation, store, clock.now, lambda: connect(cluster.access), settings)


@contextlib.contextmanager
def _extra(site: str) -> Iterator[None]:
    """What clusters need is installed only where somebody has one."""
    try:
        yield
    except ImportError as error:
        needed = "pip install 'penstock[kubernetes]'"
        raise BadInput(f"Site '{site}' is a cluster, and {error.name} is not installed: {needed}.") from None


def _rehearsal(site: Site, stage: "Stage") -> Driver:
    from penstock.sim.engine.rehearsal import Rehearsal

    return Rehearsal(site.id, stage)


def _stage(file: SitesFile, reader: Reader, clock: Clock) -> "Stage":
    from penstock.core.model.types import JobSpec
    from penstock.sim.engine.rehearsal import Guessed, Stage, at_speed
    from penstock.sim.engine.world import Fault, World

    zero = clock.now()
    world = World(
        file.sites,
        Guessed(lambda job: reader.spec(job) or JobSpec(1)),
        faults=[Fault(zero + at, what, lasts) for at, what, lasts in file.faults],
        data={item.id: item for item in file.data},
    )
    return Stage(world, clock.now, at_speed(clock.now, clock.speed))


# --- without a sites file --------------------------------------------------------------------------------------------


def _sites(options: Options) -> SitesFile:
    """What the sites file says, and the policy file beside it."""
    file = _without_policy(options)
    if not options.policy:
        return file
    from penstock.policy.file import governed, read_policy

    return governed(file, read_policy(options.policy, file))


def _texts(options: Options, file: SitesFile) -> tuple[tuple[str, bytes], ...]:
    """The policy file's text, unless it has changed since it was read."""
    if not options.policy:
        return ()
    from penstock.config.document import read_bytes

    raw = read_bytes(options.policy)
    digest = hashlib.sha256(raw).hexdigest()
    return ((digest, raw),) if digest == file.governance.digest else ()


def _without_policy(options: Options) -> SitesFile:
    if options.sites:
        return read_sites(options.sites)
    if options.rehearse:
        from penstock.sim.scenario import rehearsal_sites

        return SitesFile("USD", rehearsal_sites())
    from penstock.drivers.local.gpus import found

    return this_machine(len(found()))

"""Makes the driver of each site, also while Penstock runs: a site may be added, and its offers may change. `wiring`
makes one `SiteDrivers`; `live.site_changes` calls it when the sites file changes.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from penstock.config import LocalSite, SitesFile
from penstock.core.errors import BadInput
from penstock.core.model.types import JobSpec, Site
from penstock.data.checkpoints import FolderStore, Store, store_of
from penstock.drivers.driver import Driver
from penstock.drivers.local import isolation, limits
from penstock.drivers.local.driver import LocalDriver
from penstock.drivers.local.store import PASSED_ON, LocalSettings
from penstock.extras import install
from penstock.journal.journal import Reader
from penstock.live.clock import Clock
from penstock.options import Options

if TYPE_CHECKING:
    from penstock.drivers.kubernetes.driver import KubernetesDriver
    from penstock.drivers.kubernetes.transient import TransientDriver
    from penstock.front.home_cluster import ExecutionCluster
    from penstock.front.home_jobs import HomeJobs
    from penstock.front.kueue.workloads import KueueWorkloads
    from penstock.kube.access import Access
    from penstock.kube.maps import Maps
    from penstock.kube.node_selection import ClusterSite, NodeSelection
    from penstock.sim.engine.rehearsal import Stage

#: Where jobs with users of their own have their folders: they may not enter the home folder.
JOBS: Final = Path("/var/lib/penstock-jobs")


class SiteDrivers:
    def __init__(
        self,
        options: Options,
        file: SitesFile,
        installation: str,
        reader: Reader,
        clock: Clock,
        homes: "Sequence[HomeJobs]" = (),
        kueues: "Sequence[KueueWorkloads]" = (),
    ) -> None:
        """`homes`: the front doors. Where there are any, a home Job is bound before anything is started for it.
        `kueues`: whose Workloads are governed.
        """
        self.options, self.installation, self.reader, self.clock = options, installation, reader, clock
        self.homes = {home.site: home for home in homes}
        self.kueues = {kueue.name: kueue for kueue in kueues}
        self.made: dict[str, Driver] = {}  #: by site, without what binds home Jobs
        self.clusters: dict[str, KubernetesDriver | TransientDriver] = {}  #: of these, those of clusters
        self.alarm: Callable[[str, str, str], None] = lambda _kind, _about, _text: None  #: set by `wiring`
        #: Called with clusters that are no home, where there are homes; set once the doors are open.
        self.meet: Callable[[ExecutionCluster], None] = lambda _: None
        self.part: Callable[[str], None] = lambda _: None  #: called with sites that are no longer there
        self.stage: Stage | None = None  #: of the sites that are rehearsed, from the first on
        self.own_users = has_own_users(options)
        user_of = (lambda job: isolation.uid_of(installation, job)) if self.own_users else (lambda _: 0)
        self.store: Store = store_of(self._folders(file), user_of)

    def all(self, file: SitesFile) -> dict[str, Driver]:
        return {site.id: self.make(file, site) for site in file.sites}

    def make(self, file: SitesFile, site: Site) -> Driver:
        """The driver of one site of this file, not opened yet. Raises `BadInput`."""
        local, clusters = dict(file.local), dict(file.kubernetes)
        if self.options.rehearse or site.id in file.rehearsed:
            made = self._rehearsal(file, site)
        elif site.id in local:
            made = self._local(file, site, local[site.id])
        elif site.id in dict(file.queues):
            made = self._kueue(file, site)
        elif site.id in clusters:
            made = self._kubernetes(file, site, clusters[site.id])
        else:
            raise BadInput(
                f"{self.options.sites}: site '{site.id}' says nothing of how it is reached; give it 'driver: local',"
                " 'driver: kubernetes', 'driver: kueue' or 'driver: rehearsal', or start with --rehearse."
            )
        self.made[site.id] = made
        return self._binding(made)

    def use(self, file: SitesFile, site: Site) -> None:
        """What a site that has a driver offers from now on. What runs there is not touched."""
        from penstock.sim.engine.rehearsal import Rehearsal

        driver = self.made[site.id]
        if isinstance(driver, LocalDriver):
            driver.use(site)
        elif isinstance(driver, Rehearsal):
            driver.stage.use(site)
        elif site.id in dict(file.queues):
            driver.use(site)  # type: ignore[attr-defined]  # a KueueDriver, whose module needs the extra
        elif site.id in self.clusters:
            self.clusters[site.id].use(site, dict(dict(file.kubernetes)[site.id].places))
            self.clusters[site.id].tell_all()  # how many nodes there are of it

    def joined(self, file: SitesFile, site: Site) -> None:
        """The journal has this new site. Before that it may still be refused, and `leave` would wait for it."""
        cluster = dict(file.kubernetes).get(site.id)
        elsewhere = bool(self.homes) and site.id not in self.homes and site.id in self.clusters
        if elsewhere and cluster is not None and cluster.transient is None:
            self.meet(execution_cluster(file, site.id, cluster))

    def forget(self, site: str) -> None:
        """Its driver is closed: it was removed, or never joined."""
        self.made.pop(site, None)
        self.clusters.pop(site, None)
        self.part(site)

    def needs_restart(self, before: SitesFile, after: SitesFile) -> list[str]:
        """What a running Penstock cannot take over from a changed sites file, a sentence each."""
        return list(_needs_restart(before, after))

    def turns_away(self, spec: JobSpec) -> str:
        """Why no local site ever takes this job; empty if they do."""
        # By its class: `isinstance` asks a protocol's metaclass, and takes longer than all the rest, for each job.
        local = [driver for driver in self.made.values() if driver.__class__ is LocalDriver]
        return next(filter(None, (driver.turns_away(spec.team) for driver in local)), "")

    def _binding(self, driver: Driver) -> Driver:
        if not self.homes:
            return driver
        from penstock.front.binding_driver import BindingDriver

        return BindingDriver(driver, self.homes, self.reader.story)

    # --- the kinds of drivers -----------------------------------------------------------------------------------------

    def _local(self, file: SitesFile, site: Site, local: LocalSite) -> Driver:
        options, own_users = self.options, self.own_users
        settings = LocalSettings(
            notice_ms=local.notice_ms,
            grace_ms=local.grace_ms,
            losses=local.losses_ms,
            data=file.data_folders,
            pass_on=(*PASSED_ON, *local.pass_env),
            jobs=str(_jobs_folder(site.id, local, self.installation)) if own_users else "",
            one_team=not own_users and not options.trust_teams,
            log_bytes=local.log_bytes,
            memory=local.memory,
            processes=local.processes,
            cgroups=limits.top() if own_users else "",
            umask=0o077 if own_users else options.umask,
        )
        if isinstance(self.store, FolderStore):
            self.store.add(site.id, self._folders(file)[site.id] / "checkpoints")
        folder = options.home / "sites" / site.id
        driver = LocalDriver(site, folder, self.installation, self.store, self.clock.now, settings, self._team_of)
        driver.alarm = self._alarm
        return driver

    def _alarm(self, kind: str, about: str, text: str) -> None:
        self.alarm(kind, about, text)

    def _team_of(self, job: str) -> str:
        row = self.reader.job(job)
        return row.team if row is not None else ""

    def _folders(self, file: SitesFile) -> dict[str, Path]:
        """Each site's folder, which has its checkpoints."""
        folders = {site.id: self.options.home / "sites" / site.id for site in file.sites}
        if self.own_users:
            folders |= {site: _jobs_folder(site, local, self.installation) for site, local in file.local}
        return folders

    def _kubernetes(self, file: SitesFile, site: Site, cluster: "ClusterSite") -> Driver:
        with extra(site.id):
            from penstock.drivers.kubernetes.connection import KubernetesSettings
            from penstock.drivers.kubernetes.driver import KubernetesDriver
            from penstock.drivers.kubernetes.transient import TransientDriver
            from penstock.kube.access import connect
        from penstock.data.checkpoints import NoStore, bucket

        zone = ZoneInfo(file.time_zone)
        maps = next((maps for maps in file.maps if maps.site == site.id), None)
        settings = KubernetesSettings(
            namespace=cluster.namespace,
            namespaces=namespaces(cluster, maps),
            places=cluster.places,
            shared=cluster.shared,
            secret=cluster.secret,
            maps=maps,
            grace_ms=cluster.grace_ms,
            room_ms=cluster.room_ms,
            scale_ms=cluster.scale_ms,
            hour=lambda: datetime.now(zone).hour,
        )
        folder, store = self.options.home / "sites" / site.id, bucket(cluster.secret) or NoStore()

        def made(access: "Access") -> KubernetesDriver:
            return KubernetesDriver(
                site, folder, self.installation, store, self.clock.now, lambda: connect(access), settings
            )

        driver: KubernetesDriver | TransientDriver
        if cluster.transient is None:
            driver = made(cluster.access)
        else:
            every = namespaces(cluster, maps)
            driver = TransientDriver(site, folder, self.installation, self.clock.now, cluster.transient, made, every)
        self.clusters[site.id] = driver
        return driver

    def _kueue(self, file: SitesFile, site: Site) -> Driver:
        with extra(site.id):
            from penstock.front.kueue.kueue_driver import KueueDriver
        queue = dict(file.queues)[site.id]
        if queue.manager not in self.kueues:
            raise BadInput(f"{self.options.sites}: Kueue '{queue.manager}' is new; restart Penstock to govern it.")
        return KueueDriver(site, self.kueues[queue.manager], queue, self.installation, self.clock.now)

    def _rehearsal(self, file: SitesFile, site: Site) -> Driver:
        from penstock.sim.engine.rehearsal import Rehearsal

        if self.stage is None:
            self.stage = _stage(file, self.reader, self.clock)
        self.stage.use(site)
        return Rehearsal(site.id, self.stage)


def has_own_users(options: Options) -> bool:
    """True if each job of a local site has a user of its own."""
    return not options.trust_teams and not isolation.missing()


def _jobs_folder(site: str, local: LocalSite, installation: str) -> Path:
    return (Path(local.folder) if local.folder else JOBS) / installation / site


def namespaces(cluster: "ClusterSite", maps: "Maps | None") -> tuple[str, ...]:
    """All that attempts run in there."""
    mapped = tuple(to for _, to in maps.namespaces) if maps else ()
    return tuple(dict.fromkeys((cluster.namespace, *cluster.namespaces, *mapped)))


def execution_cluster(file: SitesFile, site: str, cluster: "ClusterSite") -> "ExecutionCluster":
    """A connection of its own. Nothing is sent by it before we leave."""
    from penstock.front.home_cluster import ExecutionCluster
    from penstock.kube.access import connect

    return ExecutionCluster(site, connect(cluster.access), namespaces(cluster, _maps(site, file)))


@contextlib.contextmanager
def extra(site: str) -> Iterator[None]:
    """What clusters need is installed only where somebody has one."""
    try:
        yield
    except ImportError as error:
        needed = install("kubernetes")
        raise BadInput(f"Site '{site}' is a cluster, and {error.name} is not installed: {needed}") from None


def _stage(file: SitesFile, reader: Reader, clock: Clock) -> "Stage":
    from penstock.sim.engine.rehearsal import Guessed, Stage, at_speed
    from penstock.sim.engine.world import Fault, World

    zero = clock.now()
    world = World(
        file.sites,
        Guessed(lambda job: reader.spec(job) or JobSpec(1)),
        faults=[Fault(zero + at, target, lasts) for at, target, lasts in file.faults],
        data={item.id: item for item in file.data},
    )
    return Stage(world, clock.now, at_speed(clock.now, clock.speed))


# --- what needs a restart ---------------------------------------------------------------------------------------------


def _needs_restart(before: SitesFile, after: SitesFile) -> Iterator[str]:
    for key in ("currency", "time_zone"):
        if getattr(before, key) != getattr(after, key):
            yield f"'{key}' changes from {getattr(before, key)} to {getattr(after, key)}"
    if before.policy_config_map != after.policy_config_map:
        yield "'policy_config_map' changes"
    if before.kueue != after.kueue:
        yield "'kueue' changes"
    if before.faults != after.faults:
        yield "'faults' changes"
    if before.data_folders != after.data_folders and (before.local or after.local):
        yield "a data set's 'folder' changes"
    known, sites = {site.id: site for site in before.sites}, {site.id: site for site in after.sites}
    for name in dict.fromkeys((*known, *sites)):
        yield from _of_site(name, known.get(name), sites.get(name), before, after)


def _of_site(name: str, before: Site | None, after: Site | None, old: SitesFile, new: SitesFile) -> Iterator[str]:
    doors = [site is not None and site.front_door for site in (before, after)]
    if (
        any(doors)
        and (before is None or after is None or doors[0] != doors[1])
        and name in dict((old if doors[0] else new).kubernetes)
    ):
        yield f"site {name} {'is no longer' if doors[0] else 'becomes'} a front door"
    if before is None or after is None:
        return
    for setting, earlier, later in (
        ("its driver", _driver(name, old), _driver(name, new)),
        ("what its 'local' says", dict(old.local).get(name), dict(new.local).get(name)),
        ("how its cluster is reached or used", _without_places(name, old), _without_places(name, new)),
        ("its maps", _maps(name, old), _maps(name, new)),
        ("what its 'kueue' says", dict(old.queues).get(name), dict(new.queues).get(name)),
        ("how it rents nodes", _rents(name, old), _rents(name, new)),
    ):
        if earlier != later:
            yield f"site {name}: {setting} changes"
    resources = [place.resource for place in _places(name, old).values()]
    for offer, place in _places(name, new).items():
        if resources and place.resource not in resources:
            yield f"{offer} has GPUs of a resource that the cluster's other offers do not have ({place.resource})"


def _driver(name: str, file: SitesFile) -> str:
    kinds = {"rehearsal": file.rehearsed, "local": dict(file.local), "kubernetes": dict(file.kubernetes)}
    kinds["kueue"] = dict(file.queues)
    return next((kind for kind, sites in kinds.items() if name in sites), "")


def _without_places(name: str, file: SitesFile) -> "ClusterSite | None":
    cluster = dict(file.kubernetes).get(name)
    return None if cluster is None else replace(cluster, places=())


def _places(name: str, file: SitesFile) -> Mapping[str, "NodeSelection"]:
    cluster = dict(file.kubernetes).get(name)
    return {} if cluster is None else dict(cluster.places)


def _rents(name: str, file: SitesFile) -> set[type]:
    """The ways in which it rents nodes."""
    return {type(place.rent.way) for place in _places(name, file).values() if place.rent is not None}


def _maps(name: str, file: SitesFile) -> "Maps | None":
    return next((maps for maps in file.maps if maps.site == name), None)

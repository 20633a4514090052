"""The folder of a local site: attempts, rented nodes, and the owner. `LocalDriver` calls it in threads.

    installation        the owner; any other installation is refused
    key                 seals deadlines
    team                where jobs run as our own user: the one team whose jobs run here
    attempts/NAME/      one folder for each attempt that is not forgotten; supervisor.py lists its files
    nodes/NAME/         node.json (when it is ready, when it is reclaimed), deadline.json, released.json, gone.json
    past/NAME/          forgotten attempts: a tombstone that prevents another start, and their logs
    jobs/NAME/          what an attempt's job may write: its working directory, its report
    data/               copied data sets

The last two are in a folder of their own where jobs have users of their own (`LocalSettings.jobs`): nobody but us may
enter the site's folder. Files that a job could have written, where it runs as our own user, are read by
`control_files`; one that is damaged ends its attempt, and `damages` says so.

A rented node is no process. When it is launched, its whole life is written down in boot-clock time; the supervisors of
its attempts act by that, with or without a control plane. The site's lock guards what must not happen twice at once:
assigning GPUs and counting nodes.
"""

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from penstock.core.model.actions import LaunchNode, StartAttempt
from penstock.core.model.types import STANDING, Offer, Site
from penstock.core.units import DAY, HOUR, MICRO, NEVER, PERMILLE, SECOND, Instant, Millis
from penstock.core.values import value
from penstock.data.checkpoints import safe_name
from penstock.data.plain_files import CLEAN, DamagedFile, open_plain, read_plain, remove_tree, wait_for_lock
from penstock.drivers import progress
from penstock.drivers.driver import NoCapacity, Refused, Unreachable, Work
from penstock.drivers.local import isolation, supervisor
from penstock.drivers.local.control_files import opened, read_end, read_marks, read_node, read_order, sealed
from penstock.drivers.local.gpus import Slots
from penstock.drivers.local.job_folders import JobFolders
from penstock.drivers.local.supervisor import KEY_BYTES, is_locked, now_ms, take_lock
from penstock.drivers.records import Record, checked, read, write

#: Variables of our environment that a job sees. Not all: ours may hold passwords.
PASSED_ON: Final = ("HOME", "LANG", "LC_ALL", "PATH", "TZ")
#: Files kept of a forgotten attempt. Its order is deleted: it holds the job's environment.
KEPT: Final = ("ended.json", "log")
LOG_BYTES: Final = 256 << 20
SUPERVISOR_LOG: Final = "supervisor.log"  #: what a supervisor says that cannot begin
LEFTOVERS_S: Final = 60.0  #: to end what a killed supervisor left behind


@value
class LocalSettings:
    """How a local site behaves. The sites file defines its offers."""

    tick_ms: Millis = 50  # how often the driver polls the disk while anything runs
    grace_ms: Millis = 10_000  # to write a last checkpoint at the deadline; at most half of the offer's `kill`
    notice_ms: Millis = 2_000  # from the notice until a spot node is reclaimed
    losses: tuple[Millis, ...] = ()  # lifetimes of the first spot nodes, 0: for ever; then the offer's rate
    seed: int = 0  # of the random lifetimes of spot nodes
    retry_ms: Millis = 5_000  # when to retry after no capacity
    keep_ms: Millis = 30 * DAY  # how long forgotten attempts' logs stay
    devices: tuple[str, ...] | None = None  # CUDA's names for the slots; None: what NVML finds
    data: tuple[tuple[str, str], ...] = ()  # data sets and the folders that they are copied from
    pass_on: tuple[str, ...] = PASSED_ON  # variables of our own environment that jobs see
    jobs: str = ""  # where jobs have their folders, each with a user of its own; empty: in the site's, as our user
    one_team: bool = False  # refuse a second team's jobs: they could read what the first one's left
    log_bytes: int = LOG_BYTES  # of one attempt; what is beyond is dropped
    memory: int = 0  # bytes that an attempt may have, where there are cgroups; 0: no limit
    processes: int = isolation.PROCESSES  # of a job with a user of its own, threads included
    cgroups: str = ""  # where cgroups for attempts are made; empty: nowhere
    umask: int = 0o077  # of jobs


class LocalStore:
    def __init__(
        self, site: Site, folder: Path, installation: str, clock: Callable[[], Instant], settings: LocalSettings
    ) -> None:
        self.site, self.folder, self.installation = site, folder.absolute(), installation
        self.clock, self.settings = clock, settings
        self.offers = {offer.id: offer for offer in site.offers}
        self.slots = Slots(site, settings.devices)
        self.jobs = JobFolders(
            site.id, installation, Path(settings.jobs) if settings.jobs else folder, isolated=bool(settings.jobs)
        )
        self.key = b""
        self.team: str | None = None  #: whose site it is, where it is one team's
        self.damages: dict[str, str] = {}  #: by attempt: what is wrong with one of its files

    def use(self, site: Site) -> None:
        """What it offers from now on. Offers that are gone are still known: jobs may run there."""
        self.site, self.offers = site, self.offers | {offer.id: offer for offer in site.offers}
        self.slots.add(site)

    def claim(self) -> None:
        """Claim the folder for this installation; `Refused` if another one owns it."""
        for name in ("attempts", "nodes", "past"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.locked():
            path = self.folder / "installation"
            if not path.exists():
                write(str(path), {"installation": self.installation}, durable=True)
            owner = read(str(path)).get("installation")
            self.key = _key(self.folder / "key")
            self.team = read(f"{self.folder}/team").get("team")
        if owner != self.installation:
            raise Refused(
                f"{self.folder} belongs to installation {owner}, and this is {self.installation}: give the site"
                " a folder of its own."
            )
        self.jobs.make()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the site's lock. Not for ever waited for: a job that runs as our own user might hold it."""
        file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                wait_for_lock(file, str(self.folder / "lock"))
            except TimeoutError as error:
                raise Unreachable(str(error)) from None
            yield
        finally:
            os.close(file)

    # --- teams -------------------------------------------------------------------------------------------------------

    def turns_away(self, team: str) -> str:
        """Why this team's jobs cannot run here; empty if they can."""
        if not self.settings.one_team or self.team in (None, team):
            return ""
        return (
            f"Site {self.site.id} runs jobs of one team, and another team's have run there: its jobs run as one user,"
            " and could read each other's files. Run Penstock as root, so that each job has a user of its own, or start"
            " it with --trust-teams if all teams trust each other."
        )

    def admit(self, team: str) -> None:
        """Note whose site this is, where it can be one team's only. Raises `Refused` for another one."""
        if not self.settings.one_team:
            return
        with self.locked():
            if self.team is None:
                write(f"{self.folder}/team", {"team": team}, durable=True)
                self.team = team
        if words := self.turns_away(team):
            raise Refused(words)

    # --- attempts ----------------------------------------------------------------------------------------------------

    def attempt(self, attempt: str) -> Path:
        """Its folder, which may not exist."""
        past = self.folder / "past" / safe_name(attempt)
        return past if past.exists() else self.folder / "attempts" / safe_name(attempt)

    def attempts(self) -> dict[str, Path]:
        """All attempts that were ordered or stopped here and are not forgotten."""
        return {_name(folder): folder for folder in sorted((self.folder / "attempts").iterdir())}

    def order_of(self, folder: Path) -> Record:
        """What it was told; empty if nothing, or nobody can tell, which `damages` then says."""
        return self._unless_damaged(folder, lambda: read_order(str(folder)))

    def _unless_damaged(self, folder: Path, read_record: Callable[[], Record], name: str = "") -> Record:
        """Empty if the file is damaged; `damages` then says so of this attempt or node, or of the folder's own."""
        try:
            return read_record()
        except DamagedFile as damaged:
            self.damages[name or _name(folder)] = str(damaged)
            return {}

    def order(self, ask: StartAttempt, work: Work, env: dict[str, str]) -> Path:
        """Write the order, unless the attempt exists or is over."""
        folder = self.attempt(ask.attempt)
        with self.locked():
            if not (self.is_over(folder) or self.is_kept(folder)):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                order = self._order(folder, ask, work, env)
                self.jobs.make_for(folder.name, order["uid"])
                by_nodes = bool(ask.nodes)  # then the nodes' deadlines apply, and may move
                self.write_deadline(folder, NEVER if by_nodes else ask.deadline_at)
                write(f"{folder}/order.json", order, durable=True)
        return folder

    def _order(self, folder: Path, ask: StartAttempt, work: Work, env: dict[str, str]) -> Record:
        offer, now, settings = self._offer(ask.offer), now_ms(), self.settings
        by_attempt = offer.term not in STANDING and not ask.nodes
        slots = self._deal(ask, offer, folder)
        begin_ms = now + (offer.start_ms if by_attempt else 0)
        around = self.jobs.variables(folder.name, settings.pass_on)
        return {
            "attempt": ask.attempt,
            "name": folder.name,
            "command": list(work.command),
            "env": {
                **around,
                **dict(work.env),
                **{name: text for name, text in around.items() if name.startswith("PENSTOCK_")},
                **env,
                "PENSTOCK_ATTEMPT": ask.attempt,
                "PENSTOCK_JOB": ask.job,
                "CUDA_VISIBLE_DEVICES": self.slots.visible(slots),
            },
            "folder": work.folder or str(self.jobs.of(folder.name) / "work"),
            "uid": self.jobs.uid(ask.job),
            "umask": settings.umask,
            "log_bytes": settings.log_bytes,
            "memory": settings.memory,
            "processes": settings.processes,
            "cgroup": self._cgroup(ask.attempt) if settings.cgroups and settings.jobs else "",
            "nodes": [str(self.node(node)) for node in ask.nodes],
            "slots": slots,
            "offer": offer.id,
            "begin_ms": begin_ms,
            "lost_ms": self._fate(offer, ask.attempt, begin_ms) if by_attempt else None,
            "notice_ms": settings.notice_ms,
            "grace_ms": self._grace_ms(offer),
            "resume_ms": ask.resume_ms,
            "speed_permille": ask.speed_permille,
        }

    def _cgroup(self, attempt: str) -> str:
        """All installations of a machine have theirs side by side: by site and attempt alone, two would share one."""
        return f"{self.settings.cgroups}/{safe_name(f'{self.installation}-{self.site.id}-{attempt}')}"

    def _grace_ms(self, offer: Offer) -> Millis:
        """The hold covers the offer's `kill`: half of it for a last checkpoint, half to kill and report."""
        grace_ms = self.settings.grace_ms
        return grace_ms if offer.term in STANDING else min(grace_ms, offer.kill_ms // 2)

    def _deal(self, ask: StartAttempt, offer: Offer, folder: Path) -> list[int]:
        """Assign free slots."""
        taken = {slot for other in self._live() if other != folder for slot in self._slots(other)}
        if ask.nodes:
            slots = [slot for node in ask.nodes for slot in self.node_of(self.node(node))["slots"]]
            return [slot for slot in slots if slot not in taken][: ask.width]  # other attempts may share the node
        if offer.term in STANDING:
            parts = [(self.slots.of_node(offer, node), gpus) for node, gpus in ask.slots]
        else:
            parts = [(self.slots.of_offer(offer), ask.width)]
        dealt = [_first_free(among, gpus, taken) for among, gpus in parts]
        if any(part is None for part in dealt):
            raise NoCapacity(f"{offer.id} has no {ask.width} free GPUs", self.settings.retry_ms)
        return [slot for part in dealt if part is not None for slot in part]

    def lacks_node(self, ask: StartAttempt) -> bool:
        """True if a node that it should run on is not there any more."""
        return not all(self.node_of(self.node(node)) for node in ask.nodes)

    def _slots(self, folder: Path) -> list[int]:
        slots: list[int] = self.order_of(folder).get("slots", [])
        return slots

    def _live(self) -> Iterator[Path]:
        return (path for path in (self.folder / "attempts").iterdir() if not self.is_over(path))

    def begin(self, folder: Path) -> None:
        """Start its supervisor. On return it has one, had one already, or is over."""
        if self.is_over(folder) or self.is_kept(folder):
            return
        command = supervisor.command(str(folder))
        with open(folder / SUPERVISOR_LOG, "ab", opener=_private) as log:
            subprocess.run(
                command,
                env=CLEAN,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                check=False,
            )

    def never_began(self, folder: Path) -> bool:
        """True if it was over before. A supervisor that died during its start is a fault of this machine:
        `Unreachable`, to be retried.
        """
        if (folder / "begun.json").exists():
            return False
        if not self.is_over(folder):
            words = read_plain(f"{folder}/{SUPERVISOR_LOG}", LOG_BYTES).decode("utf-8", "replace")
            last_line = words.strip().rpartition("\n")[2]
            raise Unreachable(f"the supervisor of {folder.name} did not start: {last_line or 'it was killed'}")
        return True

    def stop(self, attempt: str, grace_ms: Millis) -> Path:
        """Write the request to stop. Without a supervisor nothing runs and nothing will: write its end."""
        folder = self.attempt(attempt)
        if not self.is_over(folder):
            folder.mkdir(exist_ok=True, mode=0o700)
            if not (folder / "stop.json").exists():
                write(f"{folder}/stop.json", {"grace_ms": grace_ms}, durable=True)
            self.bury(folder, attempt)
        return folder

    def bury(self, folder: Path, attempt: str) -> None:
        """Write the end of an attempt without a supervisor. If it started, its supervisor died: kill what is left."""
        folder.mkdir(exist_ok=True, mode=0o700)
        lock = take_lock(f"{folder}/lock")
        if lock is None:
            return
        try:
            if not self._end_in(folder, attempt):  # it may have ended while we came here, and the lock is ours now
                begun = os.path.lexists(folder / "begun.json") or os.path.lexists(folder / "ended.json")
                if begun:
                    self._end_leftovers(folder)
                why = "its supervisor died, or the machine did" if begun else "told to stop before it began"
                end = {
                    "attempt": attempt,
                    "phase": "lost" if begun else "stopped",
                    "marks": self.marks(folder, attempt),
                    "code": None,
                    "detail": why,
                }
                write(f"{folder}/ended.json", end, durable=True)
        finally:
            os.close(lock)

    def _end_leftovers(self, folder: Path) -> None:
        """By a program of its own: a process with threads must not fork."""
        command = supervisor.command(str(folder), does="end_leftovers")
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command,
                env=CLEAN,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=LEFTOVERS_S,
            )

    def forget(self, attempt: str) -> None:
        folder = self.attempt(attempt)
        self.damages.pop(attempt, None)
        if self.is_over(folder) and folder.parent.name == "attempts":
            past = self.folder / "past" / folder.name
            folder.rename(past)
            for path in past.iterdir():
                if path.name not in KEPT:
                    remove_tree(path)

    def prune(self) -> None:
        """Delete logs, working folders and tombstones after `keep_ms`."""
        nodes = [folder for folder in self._all_nodes() if not (folder / "node.json").exists()]
        for past in [*(self.folder / "past").iterdir(), *nodes]:
            with suppress(FileNotFoundError):
                if time.time() - past.lstat().st_mtime > self.settings.keep_ms / 1000:
                    if past.parent.name == "past":
                        self.jobs.remove(past.name)
                    remove_tree(past)

    def is_over(self, folder: Path) -> bool:
        """True if it has ended: its supervisor wrote so and is gone. A job could write so, too."""
        return os.path.lexists(folder / "ended.json") and not self.is_kept(folder)

    def end_of(self, folder: Path, attempt: str) -> Record:
        """How it ended; empty if it has not, or if nobody can tell, which `damages` then says."""
        return self._end_in(folder, attempt) if self.is_over(folder) else {}

    def _end_in(self, folder: Path, attempt: str) -> Record:
        return self._unless_damaged(folder, lambda: read_end(str(folder), now_ms()), attempt)

    def marks(self, folder: Path, attempt: str) -> Record:
        """Its last step and checkpoint; empty if nobody can tell."""
        return self._unless_damaged(folder, lambda: read_marks(str(folder), now_ms()), attempt)

    def log(self, folder: Path, after: int, most: int) -> tuple[bytes, int]:
        """A piece of its log, and how long the log is. Raises `FileNotFoundError`, `DamagedFile`."""
        file = open_plain(f"{folder}/log")
        try:
            return os.pread(file, most, after), os.fstat(file).st_size
        finally:
            os.close(file)

    def is_kept(self, folder: Path) -> bool:
        return is_locked(f"{folder}/lock")

    # --- nodes -------------------------------------------------------------------------------------------------------

    def node(self, node: str) -> Path:
        return self.folder / "nodes" / safe_name(node)

    def nodes(self) -> dict[str, Path]:
        folders = {str(self.node_of(folder).get("node", "")): folder for folder in self._all_nodes()}
        return {name: folder for name, folder in folders.items() if name}

    def node_of(self, folder: Path) -> Record:
        """A rented node's life; empty if it has none, or nobody can tell, which `damages` then says."""
        return self._unless_damaged(folder, lambda: read_node(str(folder)))

    def _all_nodes(self) -> list[Path]:
        return sorted((self.folder / "nodes").iterdir())

    def rent(self, ask: LaunchNode) -> Path:
        """Write down the node's whole life, unless it has one already."""
        folder = self.node(ask.node)
        with self.locked():
            if not (folder / "node.json").exists() and not (folder / "gone.json").exists():
                node = self._node(ask)
                folder.mkdir(exist_ok=True, mode=0o700)
                self.write_deadline(folder, ask.deadline_at)
                write(f"{folder}/node.json", node, durable=True)
        return folder

    def _node(self, ask: LaunchNode) -> Record:
        offer, now = self._offer(ask.offer), now_ms()
        nodes = [self.node_of(folder) for folder in self._all_nodes() if not (folder / "gone.json").exists()]
        alike = [node for node in nodes if node.get("offer") == ask.offer and node["gpus"] == ask.gpus]
        count = next((shape.count for shape in offer.shapes if shape.gpus == ask.gpus), 0)
        taken = {slot for node in nodes for slot in node.get("slots", ())}
        slots = _first_free(self.slots.of_offer(offer), ask.gpus, taken)
        if slots is None or (count is not None and len(alike) >= count):
            raise NoCapacity(f"{offer.id} has no free node of {ask.gpus} GPUs", self.settings.retry_ms)
        ready_ms = now + offer.start_ms
        return {
            "node": ask.node,
            "offer": offer.id,
            "gpus": ask.gpus,
            "slots": slots,
            "boot": boot(),
            "ready_ms": ready_ms,
            "lost_ms": self._fate(offer, ask.node, ready_ms),
        }

    def _fate(self, offer: Offer, thing: str, ready_ms: int) -> int | None:
        """When a spot node will be reclaimed. The site decides it in advance; the control plane learns it when it
        happens.
        """
        if offer.term != "spot":
            return None
        nth = self._count_spot()
        if nth < len(self.settings.losses):
            return ready_ms + self.settings.losses[nth] if self.settings.losses[nth] else None
        if not offer.loss_ppm_per_hour:
            return None
        mean_ms = MICRO * HOUR / offer.loss_ppm_per_hour
        return ready_ms + int(random.Random(f"{self.settings.seed}/{thing}").expovariate(1 / mean_ms))

    def _count_spot(self) -> int:
        """How many spot nodes came before. The caller holds the site's lock."""
        path = f"{self.folder}/spot.json"
        nth = int(read(path).get("count", 0))
        write(path, {"count": nth + 1})
        return nth

    def release(self, node: str) -> Path:
        """Release a node. One that was never launched gets a tombstone, so that a late launch finds it gone."""
        folder = self.node(node)
        folder.mkdir(exist_ok=True, mode=0o700)
        with self.locked():
            if not (folder / "node.json").exists():
                write(f"{folder}/gone.json", {"how": "gone"}, durable=True)
            else:
                write(f"{folder}/released.json", {"released": 1}, durable=True)
        return folder

    def fate_of(self, folder: Path) -> str:
        """`starting`, `ready`, `lost` or `gone`. A node is over once nothing runs on it."""
        if os.path.lexists(folder / "gone.json"):
            return "gone" if read(f"{folder}/gone.json").get("how") == "gone" else "lost"
        node, now = self.node_of(folder), now_ms()
        how = self._over(folder, node, now)
        if how and not any(str(folder) in self.order_of(path).get("nodes", ()) for path in self._running()):
            write(f"{folder}/gone.json", {"how": how}, durable=True)
            return how
        return "starting" if node and now < node["ready_ms"] else "ready"

    def record_end_reported(self, folder: Path) -> None:
        """Count that a node's end was reported. After two reports, by this control plane and the next, only its
        tombstone stays.
        """
        if (folder / "said.json").exists():
            (folder / "node.json").unlink(missing_ok=True)
        else:
            write(f"{folder}/said.json", {"said": 1})

    def _over(self, folder: Path, node: Record, now: int) -> str:
        deadline = self.deadline(folder).get("boot_ms")
        if not node or node["boot"] != boot() or (node["lost_ms"] is not None and now >= node["lost_ms"]):
            return "lost"
        return "gone" if (folder / "released.json").exists() or (deadline is not None and now >= deadline) else ""

    def _running(self) -> Iterator[Path]:
        return (path for path in self._live() if self.is_kept(path))

    # --- deadlines ---------------------------------------------------------------------------------------------------

    def set_deadline(self, folder: Path, thing: str, deadline_at: Instant) -> Instant:
        """The deadline of an attempt or a node that stands now: the old one, if it has passed or the thing is over."""
        with self.locked():
            stands = self.deadline(folder)
            if not stands and not self.is_over(folder) and not (folder / "gone.json").exists():
                raise Unreachable(f"{thing} is not here, or not yet")
            boot_ms = stands.get("boot_ms")
            passed = boot_ms is not None and now_ms() >= boot_ms
            if stands and not passed and not self.is_over(folder):
                self.write_deadline(folder, deadline_at)
            return self.deadline_at(folder) if stands else deadline_at

    def write_deadline(self, folder: Path, at: Instant) -> None:
        """In boot-clock time: the wall clock may be set while nothing of ours runs."""
        boot_ms = None if at >= NEVER else now_ms() + at - self.clock()
        write(f"{folder}/deadline.json", sealed(self.key, folder.name, at, boot_ms), durable=True)

    def deadline_at(self, folder: Path) -> Instant:
        """As an instant of the control plane's clock, which may have jumped since; the boot clock has not."""
        stands = self.deadline(folder)
        at, boot_ms = int(stands.get("at", NEVER)), stands.get("boot_ms")
        now_at = at if boot_ms is None else self.clock() + boot_ms - now_ms()
        return at if abs(now_at - at) < SECOND else now_at

    def deadline(self, folder: Path) -> Record:
        """As we last wrote it. What somebody else wrote says nothing: the next one that we write counts."""
        try:
            record = checked(f"{folder}/deadline.json")
            return opened(self.key, folder.name, record) if record else {}
        except DamagedFile as damaged:
            self.damages[_name(folder)] = str(damaged)
            return {"at": NEVER, "boot_ms": None}

    # --- data --------------------------------------------------------------------------------------------------------

    def bring_data(self, data_set: str) -> None:
        source = dict(self.settings.data).get(data_set)
        if source is None or not Path(source).exists():
            raise Refused(f"site {self.site.id} does not know where data set {data_set} is to be copied from")
        with self.locked():
            self.jobs.bring_data(data_set, source)

    def _offer(self, offer: str) -> Offer:
        if offer not in self.offers:
            raise Refused(f"site {self.site.id} has no offer {offer}")
        return self.offers[offer]


def kept_ms(order: Record, marks: Record) -> Millis:
    return progress.kept_ms(marks, order.get("resume_ms", 0), order.get("speed_permille", PERMILLE))


def _first_free(among: range, count: int, taken: set[int]) -> list[int] | None:
    free = [slot for slot in among if slot not in taken][:count]
    return free if len(free) == count else None


def _name(folder: Path) -> str:
    """The attempt or node of a folder, by the folder's own name, which no file in it can change."""
    if "~" not in folder.name:
        return unquote(folder.name, errors="surrogatepass")
    return str((read(f"{folder}/order.json") or read(f"{folder}/ended.json")).get("attempt", folder.name))


def boot() -> str:
    """The machine's boot id: boot-clock times of another boot mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _key(path: Path) -> bytes:
    """The site's seal, made once."""
    if not path.exists():
        aside = path.with_name(f"key.{os.getpid()}")
        with open(aside, "wb", opener=_private) as file:
            file.write(os.urandom(KEY_BYTES))
        aside.rename(path)
    return read_plain(str(path), KEY_BYTES)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)

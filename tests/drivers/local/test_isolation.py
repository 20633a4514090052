"""Users of their own: whose numbers they are, what they take along from site to site, and what ends them all."""

import contextlib
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from penstock.core.model import events as e
from penstock.data.checkpoints import FolderStore
from penstock.drivers.driver import Refused, Work
from penstock.drivers.local import isolation, limits
from penstock.drivers.local.job_folders import JobFolders
from penstock.drivers.local.store import LocalSettings, LocalStore
from tests.awaiting import story
from tests.conftest import ROOT
from tests.contract.kit import LocalGround, Watch, opened, site, start
from tests.hostile.control_plane import until


def shell(script: str) -> Work:
    return Work(("sh", "-ec", f"cd ${{PENSTOCK_CHECKPOINT_URL#file://}}; {script}"))


async def ended(lab: Watch, number: int, script: str, earlier: str = "") -> str:
    """How the attempt ended, and what it printed."""
    await lab.driver.start(start("job", number, earlier=earlier), shell(script))
    outcome = (await lab.hears(e.AttemptEnded, f"job.{number}")).outcome
    return f"{outcome}: {(await lab.driver.log(f'job.{number}', 0, 10_000))[0].decode()}"


@story
async def test_a_job_takes_its_checkpoints_along_as_its_own_user_and_nobody_elses_files(
    tmp_path: Path, jobs_folder: Path
) -> None:
    """Copied by root, a link or a file of root's that the job has put there could become the job's own."""
    folders = {name: jobs_folder / name / "checkpoints" for name in ("one", "two")}
    store = FolderStore(folders, lambda job: isolation.uid_of("home", job))
    secret = tmp_path / "secret"  # which root alone can reach
    secret.write_text("geheim")

    async def at(name: str, number: int, script: str, earlier: str) -> str:
        ground = LocalGround(tmp_path / name, store, jobs=str(jobs_folder / name))
        ground.store = _Elsewhere(store, name)
        async with opened(ground) as lab:
            return await ended(lab, number, script, earlier)

    saves = f"echo 7 > step; ln -s {secret} link; mkfifo pipe; mkdir -p a/b; touch a/b/c; echo saved"
    assert await at("one", 1, saves, "") == "done: saved\n"
    went_on = await at("two", 2, "cat step; test -L link; test -p pipe; cat link || echo 8 > step", "job.1")
    assert went_on.startswith("done: 7\n")
    text = await at("one", 3, "cat step; ls -ln | awk 'NR > 1 {print $3}' | sort -u; id -u", "job.2")
    outcome, uid, same = text.split("\n")[0], *text.split("\n")[1:3]
    assert outcome == "done: 8"
    assert uid == same == str(isolation.uid_of("home", "job"))
    assert all("geheim" not in path.read_text() for path in jobs_folder.rglob("step"))


class _Elsewhere:
    """The store of a site that has another name than the tests' one."""

    def __init__(self, store: FolderStore, site: str) -> None:
        self.store, self.site = store, site

    def ready(self, _: str, job: str, attempt: str, earlier: str) -> dict[str, str]:
        return self.store.ready(self.site, job, attempt, earlier)

    def sweep(self, _: object) -> list[str]:
        return []


@story
async def test_a_folder_that_others_may_not_enter_or_may_change_is_refused(tmp_path: Path, jobs_folder: Path) -> None:
    for mode in (0o700, 0o777):
        (jobs_folder / f"{mode:o}").mkdir()
        (jobs_folder / f"{mode:o}").chmod(mode)
        with pytest.raises(Refused, match="--trust-teams"):
            async with opened(LocalGround(tmp_path / f"{mode:o}", jobs=str(jobs_folder / f"{mode:o}" / "site"))):
                pass


def test_a_jobs_number_is_its_own_and_in_the_range_that_nobody_hands_out() -> None:
    numbers = {isolation.uid_of("home", f"j{k}") for k in range(1_000)}
    assert len(numbers) == 1_000
    assert min(numbers) >= 1_879_048_192
    assert max(numbers) + isolation.UIDS < 2_147_352_576
    assert isolation.uid_of("home", "j1") == isolation.uid_of("home", "j1") != isolation.uid_of("other", "j1")
    assert isolation.uid_of("home", "\ud800")


@pytest.mark.parametrize("uid", [0, 1000, 65_534, isolation.FIRST_UID - 1, isolation.FIRST_UID + isolation.UIDS])
def test_nobody_but_a_jobs_user_is_ever_killed(uid: int) -> None:
    with pytest.raises(ValueError, match="no job's uid"):
        isolation.kill_user(uid)


@pytest.mark.usefixtures("jobs_folder")
def test_a_user_who_forks_and_kills_all_the_time_is_ended() -> None:
    """Each of its processes signals all that it may, and starts two more: nobody who ends them can be ended by them."""
    uid = isolation.uid_of("test", f"bomb {os.getpid()}")
    script = "trap '' TERM; f() { while :; do kill -TERM -1 2>/dev/null; sleep 0.05 & done; }; f & f & f & f & wait"
    with subprocess.Popen(
        ["sh", "-c", script], user=uid, group=uid, extra_groups=[], cwd="/", start_new_session=True
    ) as bomb:
        while len(list(isolation.processes_of(uid))) < 10:
            pass
        assert isolation.kill_user(uid)
        assert list(isolation.processes_of(uid)) == []
        bomb.wait(60)


def test_limits_are_written_where_there_are_cgroups_and_nowhere_else(tmp_path: Path) -> None:
    limits.make(f"{tmp_path}/a", memory=1 << 30, processes=100)
    assert {path.name: path.read_text() for path in (tmp_path / "a").iterdir()} == {
        "pids.max": "100", "memory.max": str(1 << 30), "memory.swap.max": "0", "memory.oom.group": "1",
    }  # fmt: skip
    limits.make(f"{tmp_path}/b", memory=0, processes=7)
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["pids.max"]
    assert limits.top() == "" or Path(limits.top(), "cgroup.procs").exists()


def test_two_installations_on_one_machine_share_no_cgroup(tmp_path: Path, jobs_folder: Path) -> None:
    """A site is called `here` unless somebody names it, and jobs count from j0: the cgroup of both was
    `penstock/here-j0.1`, and the end of one installation's job killed the other's.
    """
    groups = tmp_path / "cgroups"  # plain folders: what would be a kill is a file that says so
    with contextlib.ExitStack() as stack:
        one, two = (
            stack.enter_context(_installation(name, tmp_path / name, jobs_folder / name, groups))
            for name in ("one", "two")
        )
        folders = [disk.order(start("job"), Work(("sleep", "600")), {}) for disk in (one, two)]
        for disk, folder in zip((one, two), folders, strict=True):
            disk.begin(folder)
            until((folder / "begun.json").exists)
        one.stop("job.1", 0)
        until(lambda: one.is_over(folders[0]))
        assert [path.parent.name.split("-")[0] for path in groups.glob("*/cgroup.kill")] == ["one"]
        assert two.is_kept(folders[1])


@contextlib.contextmanager
def _installation(name: str, folder: Path, jobs: Path, groups: Path) -> Iterator[LocalStore]:
    disk = LocalStore(site(), folder, name, lambda: 0, LocalSettings(devices=(), jobs=str(jobs), cgroups=str(groups)))
    disk.claim()
    try:
        yield disk
    finally:
        for attempt, kept in disk.attempts().items():
            disk.stop(attempt, 0)
            until(partial(disk.is_over, kept))


def test_sites_that_make_their_folders_at_once_all_get_them(jobs_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One saw the folder above as another had just made it, still closed, and took it for somebody else's: a first
    start with several sites failed by chance, and told the administrator to choose another folder.
    """
    at_once, delays = Path.chmod, iter([0.2])

    def on_a_slow_disk(path: Path, mode: int) -> None:
        time.sleep(next(delays, 0))  # whoever comes first is overtaken by the others
        at_once(path, mode)

    monkeypatch.setattr(Path, "chmod", on_a_slow_disk)
    before = os.umask(0o077)  # as `penstock up` has it
    try:
        with ThreadPoolExecutor(8) as threads:
            sites = [JobFolders(f"s{n}", "home", jobs_folder / f"home/s{n}", isolated=True) for n in range(8)]
            for made in [threads.submit(folders.make) for folders in sites]:
                made.result()
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in jobs_folder.rglob("*")}
    assert modes == {0o711}  # and nothing is left beside them
    assert not list(jobs_folder.rglob(".*"))


@pytest.mark.parametrize("owner", ["its own user", "our user"])
def test_the_kernel_ends_a_job_before_its_control_plane(tmp_path: Path, jobs_folder: Path, owner: str) -> None:
    """All had the same score: a job with many small processes made the kernel end the plane, which was the largest."""
    folder = jobs_folder if owner == "its own user" else tmp_path
    order = {"cgroup": "", "uid": isolation.uid_of("test", "oom") if owner == "its own user" else 0, "processes": 64}
    order |= {"umask": 0o077, "folder": str(folder)}
    script = f"""
import sys; sys.path.append({str(ROOT / "src")!r})
from penstock.drivers.local import isolation, supervisor
isolation.be_ended_last()
ours = open(isolation.OOM_SCORE).read().strip()
supervisor.enter({order!r})
theirs = open(isolation.OOM_SCORE).read().strip()
print(ours, theirs)
"""
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    ours, theirs = map(int, done.stdout.split())
    assert ours < theirs >= isolation.JOBS_SCORE

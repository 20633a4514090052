"""A site on this machine: real processes, and what becomes of them. What all drivers do is in tests/contract."""

import asyncio
import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.model import events as e
from penstock.core.units import HOUR, MINUTE, NEVER
from penstock.drivers.driver import Refused, Work
from penstock.drivers.local.driver import LocalDriver
from penstock.drivers.local.store import LocalStore
from penstock.drivers.local.supervisor import is_locked, take_lock
from penstock.drivers.records import read, write
from tests.awaiting import story
from tests.conftest import ROOT
from tests.contract.kit import LocalGround, Watch, launch, opened, python, site, start

#: Says that it listens, and ends at once when told to, with so many seconds to tidy up.
OBEDIENT = """
import os, signal, time
def told(*_):
    time.sleep(float(os.environ.get("TIDY", 0)))
    print("penstock: checkpoint step 7", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, told)
print("listening", flush=True)
while True: time.sleep(1)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('listening', flush=True)
time.sleep(600)
"""
#: A child in its group, a grandchild in a session of its own, and one more that has lost its environment.
FAMILY = """
import os, subprocess, sys, time
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleeper)
away = subprocess.Popen(sleeper, start_new_session=True)
bare = subprocess.Popen(sleeper, start_new_session=True, env={})
print("family", os.getpid(), child.pid, away.pid, bare.pid, flush=True)
if len(sys.argv) > 1: sys.exit(0)
time.sleep(600)
"""


async def begin(lab: Watch, program: str, attempt: int = 1, job: str = "job", **env: str) -> str:
    """Started, and heard to say its first line."""
    ask = start(job, attempt)
    await lab.driver.start(ask, python(program, **env))
    await line(lab, ask.attempt, 1)
    return ask.attempt


async def line(lab: Watch, attempt: str, count: int) -> list[str]:
    """Its log, once it has so many lines."""
    assert isinstance(lab.driver, LocalDriver)
    while True:
        text, more = await lab.driver.log(attempt, 0, 1 << 20)
        if text.count(b"\n") >= count or not more:
            return text.decode().splitlines()
        async with lab.driver.looked:
            await lab.driver.looked.wait()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def supervisor_of(folder: Path) -> int:
    pid = read(f"{folder}/begun.json")["pid"]
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# --- how it ends -----------------------------------------------------------------------------------------------------


@story
async def test_a_job_told_to_stop_has_its_grace_for_a_last_checkpoint(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        await begin(lab, OBEDIENT, TIDY="0.3")
        await lab.driver.stop("job.1", 30_000)
        stopped = await lab.hears(e.AttemptStopped, "job.1")
        assert stopped.kept_ms >= 300


@story
async def test_a_job_that_does_not_listen_is_killed_when_its_grace_is_over(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        await begin(lab, STUBBORN)
        await lab.driver.stop("job.1", 200)
        assert (await lab.hears(e.AttemptStopped, "job.1")).kept_ms == 0


@story
async def test_a_command_that_ends_at_once_ends_once_and_says_how(tmp_path: Path) -> None:
    """The supervisor forgot its child object, Python reaped the child with it, and a quick job ran again."""
    async with opened(LocalGround(tmp_path)) as lab:
        for k in range(20):
            ask = start(f"quick{k}", 1)
            with contextlib.suppress(asyncio.CancelledError):  # it may be over before its start is told
                await lab.driver.start(ask, Work(("false",)))
            ended = await lab.hears(e.AttemptEnded, ask.attempt)
            assert (ended.outcome, ended.detail) == ("failed", "exit code 1")


@story
async def test_a_program_behind_a_shell_is_told_as_well_and_has_its_grace(tmp_path: Path) -> None:
    """A shell that waits for a program dies of SIGTERM at once, and the program would never hear of it."""
    async with opened(LocalGround(tmp_path)) as lab:
        script = ("sh", "-c", f'"{sys.executable}" -c "$PROGRAM"; true')
        await lab.driver.start(start("job"), Work(script, (("PROGRAM", OBEDIENT), ("TIDY", "0.2"))))
        await line(lab, "job.1", 1)
        await lab.driver.stop("job.1", 30_000)
        assert (await lab.hears(e.AttemptStopped, "job.1")).kept_ms >= 200


@story
async def test_a_job_whose_last_step_is_done_is_done_even_if_it_was_told_to_stop(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        last = OBEDIENT.replace("checkpoint step 7", "step 300 of 300")
        await begin(lab, last)
        await lab.driver.stop("job.1", 30_000)
        assert (await lab.hears(e.AttemptEnded, "job.1")).outcome == "done"


@pytest.mark.parametrize(
    ("command", "detail", "log"),
    [
        ((sys.executable, "-c", "raise SystemExit(3)"), "exit code 3", ""),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"), "killed by signal 9", ""),
        (("/no/such/program",), "could not be started", "could not start the command"),
        ((), "could not be started", "could not start the command"),
    ],
)
@story
async def test_a_job_that_fails_says_how(tmp_path: Path, command: tuple[str, ...], detail: str, log: str) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        await lab.driver.start(start("job"), Work(command))
        ended = await lab.hears(e.AttemptEnded, "job.1")
        assert ended.outcome == "failed"
        assert detail in ended.detail
        assert log in (await lab.driver.log("job.1", 0, 1000))[0].decode()


@pytest.mark.parametrize("how", ["ends by itself", "told to stop", "supervisor killed"])
@story
async def test_nothing_that_an_attempt_started_is_left_behind(tmp_path: Path, how: str) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        by_itself = FAMILY.replace("len(sys.argv) > 1", "True") if how == "ends by itself" else FAMILY
        await begin(lab, by_itself)
        pids = [int(word) for word in (await line(lab, "job.1", 1))[0].split()[1:]]
        assert len(pids) == 4
        if how == "told to stop":
            await lab.driver.stop("job.1", 0)
            await lab.hears(e.AttemptStopped, "job.1")
        elif how == "supervisor killed":
            os.kill(supervisor_of(tmp_path / "attempts" / "job.1"), signal.SIGKILL)
            await lab.hears(e.AttemptLost, "job.1")
        else:
            await lab.hears(e.AttemptEnded, "job.1")
        assert [pid for pid in pids if alive(pid)] == []


@story
async def test_a_process_that_now_has_the_number_of_a_dead_one_is_left_alone(tmp_path: Path) -> None:
    ground = LocalGround(tmp_path)
    folder = tmp_path / "attempts" / "job.1"
    async with opened(ground) as lab:
        await begin(lab, STUBBORN)
    os.kill(supervisor_of(folder), signal.SIGKILL)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True) as stranger:
        write(f"{folder}/begun.json", {**read(f"{folder}/begun.json"), "pid": stranger.pid})
        async with opened(ground) as lab:
            await lab.hears(e.AttemptLost, "job.1")
        assert stranger.poll() is None
        stranger.kill()


# --- who survives whom -----------------------------------------------------------------------------------------------

PLANE = """
import asyncio, sys
from pathlib import Path
from tests.contract.kit import LocalGround, opened
from tests.drivers.local.test_driver import COUNTING, python, start
async def main():
    async with opened(LocalGround(Path(sys.argv[1]))) as lab:
        await lab.driver.start(start("job"), python(COUNTING))
        print("started", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""
COUNTING = """
import os, time
for k in range(200):
    print(os.getpid(), "line", k, flush=True)
    time.sleep(0.005)
"""


@story
async def test_a_control_plane_that_is_killed_takes_no_job_along_and_no_line_of_its_log(tmp_path: Path) -> None:
    plane = subprocess.Popen(
        [sys.executable, "-c", PLANE, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with plane:
        assert plane.stdout is not None
        assert await asyncio.to_thread(plane.stdout.readline) == b"started\n"
        os.killpg(plane.pid, signal.SIGKILL)
    async with opened(LocalGround(tmp_path)) as lab:
        assert (await lab.hears(e.AttemptEnded, "job.1")).outcome == "done"
        lines = await line(lab, "job.1", 200)
    assert [text.split(" ", 1)[1] for text in lines] == [f"line {k}" for k in range(200)]
    assert len({text.split()[0] for text in lines}) == 1


@story
async def test_a_log_is_read_in_pieces_and_without_gaps(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        await begin(lab, COUNTING)
        read_so_far, more = b"", True
        while more:
            piece, more = await lab.driver.log("job.1", len(read_so_far), 100)
            read_so_far += piece
            await asyncio.sleep(0)
        assert re.findall(rb"line (\d+)\n", read_so_far) == [str(k).encode() for k in range(200)]
        await lab.hears(e.AttemptEnded, "job.1")
        await lab.driver.forget("job.1")
        assert (await lab.driver.log("job.1", 0, 1 << 20))[0] == read_so_far


@story
async def test_a_log_that_is_put_away_while_somebody_reads_it_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        await begin(lab, COUNTING)
        await lab.hears(e.AttemptEnded, "job.1")
        whole = await lab.driver.log("job.1", 0, 1 << 20)

        def is_over_and_then_put_away(disk: LocalStore, folder: Path) -> bool:
            monkeypatch.undo()
            over = disk.is_over(folder)
            disk.forget("job.1")
            return over

        monkeypatch.setattr(LocalStore, "is_over", is_over_and_then_put_away)
        assert await lab.driver.log("job.1", 0, 1 << 20) == whole


@story
async def test_after_a_restart_of_the_machine_what_ran_there_is_lost(tmp_path: Path) -> None:
    """No supervisor holds its lock, and the clock of another start means nothing."""
    ground = LocalGround(tmp_path)
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("job.1/n0"))
        await lab.driver.start(start("job", offer="lab/nodes", nodes=("job.1/n0",)), python(OBEDIENT))
    folder, node = tmp_path / "attempts" / "job.1", ground.driver().disk.node("job.1/n0")
    os.kill(supervisor_of(folder), signal.SIGKILL)
    write(f"{node}/node.json", {**read(f"{node}/node.json"), "boot": "another"})
    async with opened(ground) as lab:
        await lab.hears(e.AttemptLost, "job.1")
        await lab.hears(e.NodeLost, "job.1/n0")


@story
async def test_row_29_a_clock_that_jumps_a_day_ends_nothing_and_the_deadline_is_told_anew(tmp_path: Path) -> None:
    ground = LocalGround(tmp_path)
    async with opened(ground) as lab:
        deadline_at = ground.clock() + HOUR
        await lab.start("long", offer="lab/pods", deadline_at=deadline_at)
        ground.zero -= 24 * 3600
        seen = await lab.sees("long.1")
        assert seen is not None
        assert seen.phase == "running"
        assert abs(seen.deadline_at - deadline_at - 24 * HOUR) < MINUTE
        await lab.driver.stop("long.1", 0)
        await lab.hears(e.AttemptStopped, "long.1")


@story
async def test_a_machine_that_goes_down_lets_jobs_write_a_checkpoint(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        await begin(lab, OBEDIENT, TIDY="0.2")
        os.kill(supervisor_of(tmp_path / "attempts" / "job.1"), signal.SIGTERM)
        assert (await lab.hears(e.AttemptLost, "job.1")).kept_ms >= 200


@story
async def test_an_order_whose_supervisor_never_began_is_carried_out_when_it_is_told_again(tmp_path: Path) -> None:
    """The control plane died right after it wrote the order."""
    ground = LocalGround(tmp_path)
    async with opened(ground) as lab:
        assert isinstance(lab.driver, LocalDriver)
        lab.driver.disk.order(start("quick"), python("print('ran')"), {})
    async with opened(ground) as lab:
        assert (await lab.driver.look()).attempts == ()
        await lab.start("quick")
        await lab.hears(e.AttemptEnded, "quick.1")


@story
async def test_a_node_that_is_over_is_said_by_two_control_planes_and_then_no_more(tmp_path: Path) -> None:
    ground = LocalGround(tmp_path)
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0", deadline_at=ground.clock() + 300))
        await lab.hears(e.NodeGone, "a.1/n0")
    async with opened(ground) as lab:
        await lab.hears(e.NodeGone, "a.1/n0")
    async with opened(ground) as lab:
        assert lab.said == []
        await lab.driver.capacity.ask(launch("a.1/n0"))
        await lab.hears(e.NodeGone, "a.1/n0")


# --- spot ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@story
async def test_a_spot_loss_is_announced_and_what_is_saved_in_time_is_kept(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path, losses=(8_000,), notice_ms=4_000)) as lab:
        await lab.driver.capacity.ask(launch("job.1/n0", "lab/spot", gpus=1))
        await lab.driver.start(start("job", offer="lab/spot", nodes=("job.1/n0",)), python(OBEDIENT))
        assert (await lab.hears(e.AttemptLost, "job.1")).kept_ms > 0
        await lab.hears(e.NodeLost, "job.1/n0")


@story
async def test_a_job_that_does_not_heed_the_warning_goes_with_its_node(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path, losses=(1_500,), notice_ms=500)) as lab:
        await lab.driver.capacity.ask(launch("job.1/n0", "lab/spot", gpus=1))
        await lab.driver.start(start("job", offer="lab/spot", nodes=("job.1/n0",)), python(STUBBORN))
        assert (await lab.hears(e.AttemptLost, "job.1")).kept_ms == 0
        await lab.hears(e.NodeLost, "job.1/n0")


@story
async def test_the_site_says_which_of_its_spot_nodes_are_lost(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path, losses=(0, 100), notice_ms=500)) as lab:
        await lab.driver.capacity.ask(launch("stays.1/n0", "lab/spot", gpus=1))
        goes = asyncio.ensure_future(lab.driver.capacity.ask(launch("goes.1/n0", "lab/spot", gpus=1)))
        await lab.hears(e.NodeLost, "goes.1/n0")
        await asyncio.wait([goes])
        await lab.driver.capacity.ask(launch("third.1/n0", "lab/spot", gpus=1))  # the offer's own rate is never
        assert set((await lab.driver.look()).nodes) == {"stays.1/n0", "third.1/n0"}


@pytest.mark.parametrize(("seed", "same"), [(1, True), (2, False)])
@story
async def test_without_a_list_spot_nodes_are_lost_by_the_offer_s_rate_each_with_its_own_luck(
    tmp_path: Path, seed: int, same: bool
) -> None:
    lives = []
    for name, its_seed in (("one", 1), ("other", seed)):
        ground = LocalGround(tmp_path / name, seed=its_seed)
        ground.site = site(losses=True)
        disk = ground.driver().disk
        disk.claim()
        nodes = [read(f"{disk.rent(launch(f'a.{k}/n0', 'lab/spot', gpus=1))}/node.json") for k in (1, 2)]
        lives.append([node["lost_ms"] - node["ready_ms"] for node in nodes])
        assert read(f"{disk.rent(launch('b.1/n0'))}/node.json")["lost_ms"] is None  # what is on demand stays
    assert lives[0][0] != lives[0][1]
    assert (lives[0] == lives[1]) is same


# --- what it is given and reports ------------------------------------------------------------------------------------

SHOWS = "import json, os; print(json.dumps(dict(os.environ))); print(os.getcwd())"


@story
async def test_a_job_sees_its_own_variables_and_ours_only_where_they_are_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    async with opened(LocalGround(tmp_path)) as lab:
        await lab.driver.start(start("job"), python(SHOWS, COLOUR="blue", PENSTOCK_ATTEMPT="forged"))
        environment, folder = await line(lab, "job.1", 2)
    seen = json.loads(environment)
    assert (seen["COLOUR"], seen["LANG"], seen["PENSTOCK_ATTEMPT"]) == ("blue", "C.UTF-8", "job.1")
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["PENSTOCK_RESUME"]) == ("0", "")
    assert seen["PENSTOCK_CHECKPOINT_URL"].startswith("file:///")
    assert "DATABASE_PASSWORD" not in seen
    assert Path(folder) == tmp_path / "jobs" / "job.1" / "work"


@story
async def test_what_a_job_is_given_is_read_by_nobody_else_and_goes_when_it_is_forgotten(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        await lab.driver.start(start("job"), python("print('ran')", TOKEN="secret"))
        order = tmp_path / "attempts" / "job.1" / "order.json"
        assert stat.S_IMODE(order.stat().st_mode) == 0o600
        await lab.hears(e.AttemptEnded, "job.1")
        await lab.driver.forget("job.1")
        left = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert not any(b"secret" in text for text in left)


@story
async def test_attempts_at_once_have_different_gpus_and_give_them_back(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path, devices=("GPU-a", "GPU-b", "GPU-c", "GPU-d"))) as lab:
        program = OBEDIENT.replace('"listening"', "os.environ['CUDA_VISIBLE_DEVICES']")
        given = []
        for k, slots in enumerate((((0, 1),), ((1, 2),), ((0, 1),))):
            await lab.driver.start(start(f"j{k}", slots=slots, width=slots[0][1]), python(program))
            given += await line(lab, f"j{k}.1", 1)
        assert given == ["GPU-a", "GPU-c,GPU-d", "GPU-b"]
        await lab.driver.stop("j0.1", 0)
        await lab.hears(e.AttemptStopped, "j0.1")
        await lab.driver.start(start("j3"), python(program))
        assert await line(lab, "j3.1", 1) == ["GPU-a"]
        for attempt in ("j1.1", "j2.1", "j3.1"):
            await lab.driver.stop(attempt, 0)
            await lab.hears(e.AttemptStopped, attempt)


@story
async def test_attempts_that_share_a_rented_node_have_different_gpus_of_it(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path, devices=tuple(f"GPU-{k}" for k in range(8)))) as lab:
        program = OBEDIENT.replace('"listening"', "os.environ['CUDA_VISIBLE_DEVICES']")
        await lab.driver.capacity.ask(launch("a.1/n0"))
        for job in ("a", "b"):
            await lab.driver.start(start(job, offer="lab/nodes", nodes=("a.1/n0",)), python(program))
        assert await line(lab, "a.1", 1) + await line(lab, "b.1", 1) == ["GPU-4", "GPU-5"]
        await lab.driver.stop("a.1", 0)
        await lab.hears(e.AttemptStopped, "a.1")
        await lab.driver.start(start("c", offer="lab/nodes", nodes=("a.1/n0",)), python(program))
        assert await line(lab, "c.1", 1) == ["GPU-4"]
        for attempt in ("b.1", "c.1"):
            await lab.driver.stop(attempt, 0)
            await lab.hears(e.AttemptStopped, attempt)


@story
async def test_a_start_on_a_node_that_is_gone_is_a_lost_attempt_and_not_a_driver_that_fails(tmp_path: Path) -> None:
    """It was ordered while the node was there; the control plane died, and the node's end is on record since."""
    async with opened(LocalGround(tmp_path)) as lab:
        with pytest.raises(asyncio.CancelledError):
            await lab.driver.start(start("a", offer="lab/nodes", nodes=("a.1/n0",)), python(OBEDIENT))
        await lab.hears(e.AttemptLost, "a.1")


@story
async def test_progress_is_said_by_tenths_and_checkpoints_each_time(tmp_path: Path) -> None:
    program = """
import os, time
for step in range(1, 41):
    print("12:00:00 INFO penstock: step", step, "of 40", flush=True)
    time.sleep(0.01)
    if step == 20: open(os.environ["PENSTOCK_REPORT"], "a").write("penstock: checkpoint\\n")
time.sleep(600)
"""
    async with opened(LocalGround(tmp_path)) as lab:
        await lab.driver.start(start("job", resume_ms=HOUR, speed_permille=2000), python(program))
        kept = (await lab.hears(e.AttemptCheckpointed, "job.1")).kept_ms
        assert kept >= HOUR + 2 * 200  # twenty steps at twice the speed
        while tenths(lab)[-1:] != [10]:
            lab.news.clear()
            await lab.news.wait()
        assert tenths(lab) == sorted(set(tenths(lab)))
        assert isinstance(lab.driver, LocalDriver)
        assert lab.driver.progress("job.1") == (40, 40)
        await lab.driver.stop("job.1", 0)
        assert (await lab.hears(e.AttemptStopped, "job.1")).kept_ms == kept


def tenths(lab: Watch) -> list[int]:
    return [fact.done_permille // 100 for fact in lab.said if isinstance(fact, e.AttemptProgressed)]


# --- data ------------------------------------------------------------------------------------------------------------


@story
async def test_a_data_set_is_copied_to_the_site_once_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "origin").mkdir()
    (tmp_path / "origin" / "a.csv").write_text("1")
    ground = LocalGround(tmp_path / "site", data=(("scans", str(tmp_path / "origin")),))
    async with opened(ground) as lab:
        assert await lab.driver.copy("scans") == NEVER
        assert await lab.driver.copy("scans") == NEVER
        assert (tmp_path / "site" / "data" / "scans" / "a.csv").read_text() == "1"
        with pytest.raises(Refused, match="does not know where data set other"):
            await lab.driver.copy("other")


def test_a_lock_is_asked_about_without_standing_in_its_way(tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    assert not is_locked(path)
    lock = take_lock(path)
    assert lock is not None
    assert is_locked(path)
    assert take_lock(path) is None
    os.close(lock)
    assert not is_locked(path)


def test_a_supervisor_whose_folder_was_removed_gives_up(tmp_path: Path) -> None:
    """It once tried again for ever, as on a full disk, and one process stayed behind for each removed home folder."""
    (tmp_path / "gone").mkdir()
    program = (
        "import os; os.rmdir(os.getcwd());"
        " from penstock.drivers.local.supervisor import insist; insist('ended.json', {})"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "gone", check=True, timeout=60)

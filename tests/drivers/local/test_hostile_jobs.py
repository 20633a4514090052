"""Jobs that run as our own user and put rubbish in the place of our files: each harms its own attempt, and no other."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from penstock.core.model import events as e
from penstock.core.units import HOUR, SECOND
from penstock.drivers.driver import Refused, Unreachable
from penstock.drivers.local.driver import MOST_ALARMS, LocalDriver
from penstock.drivers.local.supervisor import is_locked
from penstock.drivers.records import read, write
from tests.awaiting import story
from tests.contract.kit import LocalGround, Watch, launch, opened, python, start
from tests.drivers.local.hostile_files import KINDS, put
from tests.drivers.local.test_driver import FAMILY, OBEDIENT, STUBBORN, alive, begin, line, supervisor_of


def alarms_of(lab: Watch) -> dict[str, str]:
    """The alarms that stand from now on, by subject."""
    assert isinstance(lab.driver, LocalDriver)
    standing: dict[str, str] = {}
    lab.driver.alarm = lambda _, about, text: standing.update({about: text})
    return standing


async def looked(lab: Watch, times: int = 3) -> None:
    """So many more looks at the disk."""
    assert isinstance(lab.driver, LocalDriver)
    for _ in range(times):
        async with lab.driver.looked:
            await lab.driver.looked.wait()


async def runs_as_ever(lab: Watch, job: str, node: int = 1) -> None:
    """Another job starts and ends at this site."""
    await lab.driver.start(start(job, slots=((node, 1),)), python("print('ran')"))
    assert (await lab.hears(e.AttemptEnded, f"{job}.1")).outcome == "done"


@pytest.mark.parametrize("kind", KINDS)
@story
async def test_rubbish_in_an_attempts_files_harms_it_alone_with_an_alarm_that_names_both(
    tmp_path: Path, kind: str
) -> None:
    """`{}` as `ended.json` ended the site's watch, and a number of 30 digits in `marks.json` the control plane."""
    async with opened(LocalGround(tmp_path)) as lab:
        alarms = alarms_of(lab)
        for job in ("ends", "marks"):
            await begin(lab, STUBBORN, job=job)
        put(kind, tmp_path / "attempts" / "ends.1" / "ended.json")
        put(kind, tmp_path / "attempts" / "marks.1" / "marks.json")
        await looked(lab)
        assert [fact for fact in lab.said if isinstance(fact, e.AttemptEnded)] == []  # it runs: nobody ended it
        await runs_as_ever(lab, "honest")
        for job in ("ends", "marks"):
            await lab.driver.stop(f"{job}.1", 0)
            assert (await lab.hears(e.AttemptStopped, f"{job}.1")).kept_ms == 0
        assert "marks.1" in alarms["local:lab:marks.1"]
        assert "marks.json" in alarms["local:lab:marks.1"]


@pytest.mark.parametrize("kind", KINDS)
@story
async def test_an_end_that_cannot_be_read_is_a_loss_and_written_anew(tmp_path: Path, kind: str) -> None:
    ground = LocalGround(tmp_path)
    async with opened(ground) as lab:
        await begin(lab, STUBBORN)
    folder = tmp_path / "attempts" / "job.1"
    supervisor = supervisor_of(folder)
    os.kill(supervisor, signal.SIGSTOP)  # the guardian waits for it, and nobody writes the end
    put(kind, folder / "ended.json")
    os.kill(supervisor, signal.SIGKILL)
    while is_locked(f"{folder}/lock"):
        await asyncio.sleep(0.01)
    async with opened(ground) as lab:
        assert isinstance(lab.driver, LocalDriver)
        await lab.hears(e.AttemptLost, "job.1")
        await runs_as_ever(lab, "honest")
        assert "ended.json" in lab.driver.alarmed["job.1"]
        await lab.driver.forget("job.1")
        assert lab.driver.alarmed == {}
        seen = await lab.driver.look()
        assert [attempt.attempt for attempt in seen.attempts] == ["honest.1"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "hard link"])
@story
async def test_whatever_lies_in_the_logs_place_is_refused_at_once_or_is_plain_bytes(tmp_path: Path, kind: str) -> None:
    """A FIFO as the log blocked the event loop for good."""
    async with opened(LocalGround(tmp_path)) as lab:
        await begin(lab, STUBBORN)
        put(kind, tmp_path / "attempts" / "job.1" / "log")
        try:
            text, _ = await lab.driver.log("job.1", 0, 1000)
            assert len(text) <= 1000
        except Refused as refused:
            assert "log" in str(refused)  # noqa: PT017 - some kinds are plain files
        await runs_as_ever(lab, "honest")
        await lab.driver.stop("job.1", 0)
        await lab.hears(e.AttemptStopped, "job.1")


@pytest.mark.parametrize("kind", ["fifo", "folder", "says nothing", "of the future", "later", "never", "another's"])
@story
async def test_no_rewritten_deadline_outlives_the_money_that_is_held(tmp_path: Path, kind: str) -> None:
    ground = LocalGround(tmp_path)
    async with opened(ground) as lab:
        deadline = tmp_path / "attempts" / "job.1" / "deadline.json"
        ask = start("job", offer="lab/pods", deadline_at=ground.clock() + 2 * SECOND)
        await lab.driver.start(ask, python(STUBBORN))
        record = read(str(deadline))
        match kind:
            case "later":
                write(str(deadline), {**record, "boot_ms": record["boot_ms"] + HOUR, "at": record["at"] + HOUR})
            case "never":
                write(str(deadline), {**record, "boot_ms": None})
            case "another's":
                other = start("other", offer="lab/pods", deadline_at=ground.clock() + HOUR)
                await lab.driver.start(other, python(STUBBORN))
                write(str(deadline), read(str(tmp_path / "attempts" / "other.1" / "deadline.json")))
                await lab.driver.stop("other.1", 0)
            case _:
                put(kind, deadline)
        await lab.hears(e.AttemptStopped, "job.1")
        assert read(f"{deadline.parent}/ended.json")["detail"] == "its deadline passed"


@story
async def test_a_renewal_counts_although_the_file_before_it_was_rewritten(tmp_path: Path) -> None:
    ground = LocalGround(tmp_path)
    async with opened(ground) as lab:
        deadline_at = ground.clock() + 3 * SECOND
        await lab.driver.start(start("job", offer="lab/pods", deadline_at=deadline_at), python(OBEDIENT))
        put("fifo", tmp_path / "attempts" / "job.1" / "deadline.json")
        assert await lab.driver.set_deadline("job.1", ground.clock() + HOUR) >= deadline_at
        await asyncio.sleep(max(0, deadline_at + 500 - ground.clock()) / 1000)
        seen = await lab.sees("job.1")
        assert seen is not None
        assert seen.phase == "running"
        await lab.driver.stop("job.1", 0)
        await lab.hears(e.AttemptStopped, "job.1")


@story
async def test_rubbish_in_a_nodes_file_loses_that_node(tmp_path: Path) -> None:
    ground = LocalGround(tmp_path)
    async with opened(ground) as lab:
        alarms = alarms_of(lab)
        await lab.driver.capacity.ask(launch("job.1/n0"))
        put("says nothing", ground.driver().disk.node("job.1/n0") / "node.json")
        await lab.hears(e.NodeLost, "job.1/n0")
        await runs_as_ever(lab, "honest")
        assert "node.json" in alarms["local:lab:job.1/n0"]


@story
async def test_jobs_cannot_push_everybody_elses_alarms_out(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        alarms = alarms_of(lab)
        assert isinstance(lab.driver, LocalDriver)
        for k in range(200):
            lab.driver.disk.damages[f"j{k}.1"] = "marks.json is no record"
            lab.driver._say_alarms()
        assert len([text for text in alarms.values() if text]) == MOST_ALARMS


@story
async def test_a_job_that_holds_the_sites_lock_makes_calls_fail_and_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.data.plain_files.wait_for_lock.__defaults__", (0.2,))
    holds = "import fcntl, time; f = open(WHERE); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); time.sleep(600)"
    async with opened(LocalGround(tmp_path)) as lab:
        await begin(lab, holds.replace("WHERE", repr(str(tmp_path / "lock"))))
        with pytest.raises(Unreachable, match="lock"):
            await lab.driver.start(start("other", slots=((1, 1),)), python("print('ran')"))
        await lab.driver.stop("job.1", 0)
        await lab.hears(e.AttemptStopped, "job.1")
        await runs_as_ever(lab, "other")


# --- what it prints and reports --------------------------------------------------------------------------------------


@story
async def test_a_log_ends_at_its_limit_with_one_line_that_says_so_and_the_job_goes_on(tmp_path: Path) -> None:
    talks = "import sys\nfor k in range(2000): print('line', k, 'x' * 1000)\nprint('penstock: step 2 of 2', flush=True)"
    async with opened(LocalGround(tmp_path, log_bytes=50_000)) as lab:
        await lab.driver.start(start("job"), python(talks))
        assert (await lab.hears(e.AttemptEnded, "job.1")).outcome == "done"
        text, more = await lab.driver.log("job.1", 0, 1 << 20)
        assert isinstance(lab.driver, LocalDriver)
        assert lab.driver.progress("job.1") == (2, 2)  # marks are heard beyond the limit
    assert not more
    assert 50_000 <= len(text) < 50_200
    assert text.count(b"penstock: this log has reached its limit of 50000 bytes") == 1
    assert text.startswith(b"line 0 ")


@story
async def test_an_endless_report_and_one_that_shrinks_end_with_the_job(tmp_path: Path) -> None:
    """The rest of a report was read to its end, which a sparse file of a terabyte does not have."""
    program = """
import os
path = os.environ["PENSTOCK_REPORT"]
open(path, "a").write("penstock: step 1 of 9\\n")
os.truncate(path, 1 << 42)
if len(os.sys.argv) > 1: os.truncate(path, 0)
"""
    async with opened(LocalGround(tmp_path)) as lab:
        await lab.driver.start(start("job"), python(program))
        assert (await lab.hears(e.AttemptEnded, "job.1")).outcome == "done"


@pytest.mark.parametrize("kind", KINDS)
@story
async def test_whatever_a_job_puts_in_its_reports_place_the_supervisor_reads_its_own(tmp_path: Path, kind: str) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        await begin(lab, OBEDIENT)
        put(kind, tmp_path / "jobs" / "job.1" / "report")
        await looked(lab)
        await lab.driver.stop("job.1", 30_000)
        assert (await lab.hears(e.AttemptStopped, "job.1")).kept_ms > 0


@story
async def test_a_job_that_reports_without_end_is_heard_now_and_then(tmp_path: Path) -> None:
    chatters = """
import time
print("began", flush=True)
for k in range(300):
    print("penstock: step", k % 10, "of 10\\npenstock: checkpoint", flush=True)
    time.sleep(0.01)
"""
    async with opened(LocalGround(tmp_path)) as lab:
        await begin(lab, chatters)
        await lab.hears(e.AttemptEnded, "job.1")
        facts = [fact for fact in lab.said if isinstance(fact, e.AttemptCheckpointed | e.AttemptProgressed)]
        began, ended = facts[0].at, max(fact.at for fact in lab.said)
        assert 0 < len(facts) <= 2 * (2 + (ended - began) // SECOND)


# --- what it leaves behind -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["supervisor", "both"])
@story
async def test_what_a_killed_supervisor_leaves_behind_is_found_and_ended(tmp_path: Path, who: str) -> None:
    """Somebody in a session of its own, with an empty environment, was found by nobody."""
    async with opened(LocalGround(tmp_path)) as lab:
        await begin(lab, FAMILY)
        *pids, bare = [int(word) for word in (await line(lab, "job.1", 1))[0].split()[1:]]
        supervisor = supervisor_of(tmp_path / "attempts" / "job.1")
        guardian = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
        if who == "both":
            os.kill(guardian, signal.SIGKILL)
        os.kill(supervisor, signal.SIGKILL)
        await lab.hears(e.AttemptLost, "job.1")
        assert [pid for pid in pids if alive(pid)] == []
        if who == "both":  # of those who run as our own user, only this one can hide from everybody
            os.kill(bare, signal.SIGKILL)
        else:
            assert not alive(bare)


@story
async def test_a_supervisor_keeps_its_own_environment_and_its_programs_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "geheim")
    looks = """
import os
for pid in (os.getppid(), int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])):
    try:
        print(open(f"/proc/{pid}/environ").read())
    except OSError as error:
        print(error)
print("looked", flush=True)
"""
    async with opened(LocalGround(tmp_path)) as lab:
        await lab.driver.start(start("job"), python(looks))
        await lab.hears(e.AttemptEnded, "job.1")
        text, _ = await lab.driver.log("job.1", 0, 1 << 20)
    assert b"looked" in text
    assert b"geheim" not in text


@story
async def test_a_job_sees_named_variables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "LD_PRELOAD_64", "SSH_AUTH_SOCK", "PENSTOCK_TOKEN", "HF_HOME"):
        monkeypatch.setenv(name, "geheim")
    for name in ("LANG", "LC_ALL", "TZ"):
        monkeypatch.setenv(name, "C")
    shows = "import os; print(*sorted(os.environ), flush=True)"
    async with opened(LocalGround(tmp_path, pass_on=("PATH", "HOME", "LANG", "LC_ALL", "TZ", "HF_HOME"))) as lab:
        await lab.driver.start(start("job"), python(shows, COLOUR="blue"))
        (names,) = await line(lab, "job.1", 1)
    contract = {"ATTEMPT", "JOB", "REPORT", "DATA", "RESUME", "CHECKPOINT_URL"}
    assert set(names.split()) - {"LC_CTYPE"} == {  # LC_CTYPE is Python's own
        *(f"PENSTOCK_{name}" for name in contract), "CUDA_VISIBLE_DEVICES", "COLOUR",
        "HF_HOME", "HOME", "LANG", "LC_ALL", "PATH", "TZ",
    }  # fmt: skip


# --- one team, where jobs run as our own user ------------------------------------------------------------------------


@story
async def test_a_site_whose_jobs_run_as_one_user_is_its_first_teams(tmp_path: Path) -> None:
    ground = LocalGround(tmp_path, one_team=True)
    teams = {"a": "vision", "b": "speech", "c": "vision"}

    def driver() -> LocalDriver:
        made = ground.driver()
        made.team_of = teams.__getitem__
        return made

    for job in ("a", "c"):
        watch = Watch(driver(), ground.work)
        await watch.driver.open(watch.hear)
        assert isinstance(watch.driver, LocalDriver)
        await watch.driver.start(start(job), python("print('ran')"))
        await watch.hears(e.AttemptEnded, f"{job}.1")
        assert watch.driver.turns_away("vision") == ""
        assert "--trust-teams" in watch.driver.turns_away("speech")
        assert "vision" not in watch.driver.turns_away("speech")
        with pytest.raises(Refused, match="--trust-teams"):
            await watch.driver.start(start("b"), python("print('ran')"))
        await watch.driver.close()


@story
async def test_a_supervisor_that_cannot_start_is_a_fault_to_be_tried_again(tmp_path: Path) -> None:
    async with opened(LocalGround(tmp_path)) as lab:
        (tmp_path / "key").unlink()
        with pytest.raises(Unreachable, match="did not start"):
            await lab.driver.start(start("job"), python("print('ran')"))

"""`penstock demo`, the very same that people see: real processes, and figures that are counted, not claimed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.core.ids import attempt_of
from penstock.demo import console
from penstock.demo.interrupts import KINDS, Interrupts, again_if_lost
from penstock.demo.jobs import FIRST, SECOND, THIRD
from penstock.demo.observer import Observer, Printed, doubled, missing, printed
from penstock.demo.resimulate import days
from penstock.demo.script import CLAIMS, untrue
from penstock.extras import install
from penstock.journal.open import open_reader, read
from penstock.journal.redecide import redecide
from penstock.journal.rows import Filter
from tests.demos import DEMO, play
from tests.stories.kit import ended, given, gone, offer, ready, started, submitted

LIMIT_S = 400  #: the promise is 180 s on two idle cores; a busy machine is not a broken demo
TRUE = {
    "bursts": 2,
    "spot_losses": 1,
    "resumed_from_step": 1,
    "came_home": 1,
    "refused_by_cap": 1,
    "control_plane_kills": 1,
    "doubled": 0,
    "lost": 0,
    "redecide": "equal",
}


@pytest.mark.slow
def test_the_demo_is_true_and_its_figures_are_the_journals(tmp_path: Path) -> None:
    done = play(tmp_path, LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    figures = json.loads(done.stdout.splitlines()[-1])
    assert untrue(figures) == []

    journal = tmp_path / "penstock-demo" / "demo.journal"
    seen = Observer(journal)
    seen.look()
    assert figures["bursts"] == len(seen.bursts())
    assert figures["spot_losses"] == len(seen.lost())
    assert figures["came_home"] == len(seen.came_home())
    assert figures["refused_by_cap"] == len(seen.refused())
    assert [trail.denied.scope for trail in seen.refused() if trail.denied] == ["project:tryouts"]
    assert len(seen.jobs) == len(FIRST) + len(SECOND) + len(THIRD) == 10
    assert seen.over()
    assert redecide(read(str(journal)), most=1).different == 0
    with closing(open_reader(str(journal))) as reader:  # what we count of the journal is what its tables say
        spent = {row.id: row.spent for row in reader.jobs(Filter(), limit=100)}
    charged = {trail.id: trail.charged for trail in seen.jobs.values()}
    assert sorted(spent) == sorted(charged)
    for jobs in _that_shared_nodes(seen):  # the tables split a node's bill, we count it for the job that rented it
        assert sum(charged[job] for job in jobs) == sum(spent[job] for job in jobs), jobs
    on_demand, owned_only, ours = days(seen)
    assert on_demand.rent > ours.rent > owned_only.rent == 0
    assert on_demand.mean_wait_ms < ours.mean_wait_ms < owned_only.mean_wait_ms
    assert len(on_demand.ways) == len(owned_only.ways) == len(ours.ways) == 10
    assert _left_behind(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["penstock-demo"]


@pytest.mark.slow
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    """^C while jobs run: control plane, jobs, their supervisors and the S3 server are all over when it returns."""
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(DEMO, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "starts on lab/owned" in line:
                break
        _until_a_job_runs(tmp_path)
        demo.send_signal(signal.SIGINT)
        demo.stdout.read()
        assert demo.wait(LIMIT_S) == 130
    assert _left_behind(tmp_path) == []
    assert list(tmp_path.glob("penstock-demo-*")) == []


def test_a_jobs_cost_is_told_once_all_that_was_rented_for_it_is_settled() -> None:
    """It ended with "$0.07 charged so far", before the last charge: the table below said $0.14. Others had no cost."""
    penstock = given(offer("cloud", price="1"))
    for fact, at in (
        (submitted("a", run="1h"), "09:00"), (ready("a.1/n0"), "09:10"), (started("a.1"), "09:10"),
        (ended("a.1"), "10:10"), (gone("a.1/n0"), "10:15"),
    ):  # fmt: skip
        penstock.hears(fact, at=at)
    seen, lines = Observer(), []
    for step in penstock.steps:
        for event in (*step.inputs, *step.outputs):
            seen.hear(event)
            lines += [line for line in (console.line(seen, event),) if line]
    assert lines[1:] == ["default/ succeeded.", "default/: $10.00 charged in all."]
    assert seen.jobs["a"].charged == penstock.account("org")[1]


def test_an_interrupt_that_python_drops_is_raised_at_the_next_turn() -> None:
    before = [signal.getsignal(kind) for kind in KINDS]
    with Interrupts():
        again_if_lost()  # none yet
        with contextlib.suppress(KeyboardInterrupt):  # as a destructor does
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            again_if_lost()
    assert [signal.getsignal(kind) for kind in KINDS] == before


def _that_shared_nodes(seen: Observer) -> list[set[str]]:
    """The jobs, in groups that had rented nodes in common; most are alone."""
    groups = {job: {job} for job in seen.jobs}
    for attempt in seen.tries.values():
        if node := attempt.promise.joins:
            together = groups[attempt.promise.job] | groups[seen.tries[attempt_of(node)].promise.job]
            groups |= dict.fromkeys(together, together)
    return list({id(group): group for group in groups.values()}.values())


def _until_a_job_runs(folder: Path) -> None:
    until = time.monotonic() + LIMIT_S
    while not list(folder.glob("penstock-demo-*/sites/lab/attempts/*/begun.json")):
        assert time.monotonic() < until
        time.sleep(0.05)


def _left_behind(folder: Path) -> list[str]:
    """Processes that have this demo's folder in their command or environment."""
    commands = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                known = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            except OSError:
                continue
            if os.fsencode(folder) in known:
                commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return commands


def test_where_there_are_no_local_sites_it_says_what_to_see_instead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert main(["demo"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "`penstock demo --month`" in captured.err


@pytest.mark.parametrize("options", [[], ["--month"]])
def test_without_numpy_a_sentence_says_how_to_get_it(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert main(["demo", *options]) == 2
    assert capsys.readouterr() == (
        "",
        f"Error: The demo's trainings need numpy: {install('demo')}\n",
    )
    assert list(tmp_path.iterdir()) == []


# --- the counting itself ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", list(TRUE))
def test_each_figure_can_be_untrue(claim: str) -> None:
    wrong = {"doubled": 1, "lost": 1, "redecide": "1 steps differ"}
    assert untrue(TRUE) == []
    assert list(CLAIMS) == list(TRUE)
    assert untrue(TRUE | {claim: wrong.get(claim, 0)}) == [claim]


def test_a_log_tells_where_an_attempt_began_and_what_it_did() -> None:
    log = "begins at step 180 of 300 as j2.2\nstep 181 of 300 loss 0.4213 at 12.050\nstep 182 of 300 loss 0.42"
    assert printed(log) == Printed(180, ((181, 0.4213, 12.05),))
    assert printed("Killed") == Printed(-1, ())


def test_work_done_again_after_a_loss_is_not_doubled_but_work_done_at_once_is() -> None:
    lost = Printed(0, ((1, 0.7, 10.0), (2, 0.6, 10.1), (3, 0.5, 10.2)))
    after = Printed(2, ((3, 0.5, 12.0), (4, 0.4, 12.1)))
    assert doubled([lost, after]) == 0
    still_there = Printed(0, (*lost.steps, (4, 0.4, 12.05)))
    assert doubled([still_there, after]) == 1


def test_a_step_that_nobody_did_is_missing() -> None:
    assert missing([Printed(0, ((1, 0.7, 1.0), (2, 0.6, 1.1))), Printed(2, ((3, 0.5, 2.0),))], 3) == 0
    assert missing([Printed(0, ((1, 0.7, 1.0),)), Printed(2, ((3, 0.5, 2.0),))], 3) == 1

"""`bench.claims`: each row on a small load, and a page that says what the stored run measured."""

import json
from functools import cache
from pathlib import Path

import pytest

from bench import claims, claims_runs
from bench.claims_rows import BY_NAME, ROWS, Row, at_share, lower, verdict
from bench.claims_runs import Load, Measured, Runner, Setup, half_eligible
from penstock.core.model.types import JobSpec
from penstock.core.units import HOUR
from penstock.sim.traces.trace import TraceJob
from tests.conftest import ROOT, shared_data

PAGE = ROOT / "docs" / "claims.md"

each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@cache
def small() -> tuple[Runner, Load]:
    """Rows share runs, as in the command."""
    return Runner(), claims_runs.generated(100, days=2, seed=2)


@cache
def recorded() -> tuple[Runner, Load]:
    shared = shared_data()
    assert shared == claims_runs.SHARED
    return Runner(), claims_runs.recorded("philly", days=0.2)


@each_row
def test_a_row_is_measured_on_generated_load(row: Row) -> None:
    runner, load = small()
    check(row, row.measure(runner, load))
    assert all(run.unfinished == 0 for run in runner.done.values())


@each_row
def test_a_row_is_measured_on_a_slice_of_a_recorded_trace(row: Row) -> None:
    runner, load = recorded()
    check(row, row.measure(runner, load))
    assert all(run.unfinished == 0 for run in runner.done.values())


def check(row: Row, figures: dict[str, float]) -> None:
    """Shares are shares; delays are not negative; the stored run has the very same figures."""
    for what, number in figures.items():
        assert number <= 100 or not what.startswith("GPU-hours"), what
        assert number >= 0 or "lower by" in what or "shorter by" in what or "costs more" in what, what
    stored = json.loads(claims.STORED.read_text("utf-8"))["rows"][row.name]
    assert all(list(by_trace) == list(figures) for by_trace in stored.values())


def test_spot_costs_what_its_price_says_and_owned_gpus_save_rent() -> None:
    """The yardsticks of the rows themselves: no rent where nothing is rented, all rent where nothing is owned."""
    runner, load = small()
    plain = runner.measure(load, Setup(policy="nowait"))
    spot = runner.measure(load, Setup(rented=("spot",)))
    alone = runner.measure(load, Setup(nodes=load.nodes(1.0), policy="owned-only"))
    burst = runner.measure(load, Setup(nodes=load.nodes(1.0)))
    assert plain.owned_share == spot.owned_share == 0.0
    assert alone.rent == 0.0
    assert alone.owned_share == 1.0
    assert 0.30 * plain.rent < spot.rent < plain.rent
    assert 0 < burst.rent < plain.rent
    assert burst.mean_jct_h < alone.mean_jct_h


def test_only_jobs_with_checkpoints_are_eligible_and_the_project_pays() -> None:
    jobs = [TraceJob(f"j{k}", k, HOUR, JobSpec(1, checkpoint_every_ms=HOUR if k % 3 else None)) for k in range(60)]
    marked = half_eligible(jobs)
    chosen = [job for job in marked if job.spec.project == "eligible"]
    assert 10 < len(chosen) < 40
    assert all(job.spec.checkpoint_every_ms and job.spec.interruptible for job in chosen)
    others = [job for job in marked if job.spec.project == "other"]
    assert len(chosen) + len(others) == 60
    assert not any(job.spec.checkpoint_every_ms or job.spec.interruptible for job in others)


def test_the_peak_is_the_most_that_was_wanted_at_once() -> None:
    jobs = (
        TraceJob("a", 0, 2 * HOUR, JobSpec(8)),
        TraceJob("b", HOUR, HOUR, JobSpec(4)),
        TraceJob("c", 2 * HOUR, 1, JobSpec(2)),
    )
    assert Load("three", jobs, {}).peak_gpus() == 12


def test_a_cost_between_two_sizes_is_read_off_the_line_between_them() -> None:
    def size(share: float, rent: float) -> Measured:
        return Measured(rent, 0, 0, 0, share, *(0,) * 8)

    sizes = [size(0.9, 100.0), size(0.7, 200.0)]
    assert at_share(sizes, 0.8) == pytest.approx(150.0)
    assert at_share(sizes, 0.5) == 200.0
    assert lower(75.0, 100.0) == 25.0


def test_a_verdict_counts_the_traces_on_which_a_claim_is_reached() -> None:
    peak = BY_NAME["peak"]
    assert verdict(peak, {"a": {"x": 40.0}, "b": {"x": 55.0}}) == "holds on all 2 traces"
    assert verdict(peak, {"a": {"x": 39.0}, "b": {"x": 55.0}}) == "holds on 1 of 2 traces"
    assert verdict(peak, {"a": {"x": 39.0}, "b": {"x": 12.0}}) == "holds on none of 2 traces"
    assert verdict(BY_NAME["split"], {"a": {"x": 93.0}}) == "does not hold"


def test_the_page_has_the_tables_of_the_stored_run_and_names_every_row_and_its_command() -> None:
    page = PAGE.read_text("utf-8")
    result = json.loads(claims.STORED.read_text("utf-8"))
    assert claims.with_figures(page, result) == page, "python -m bench.claims --write"
    assert list(result["rows"]) == [row.name for row in ROWS]
    for row in ROWS:
        assert f"    {claims.command(row, result['days'])}\n" in page
        assert row.claim in page


def test_the_page_says_which_verdicts_follow_the_price_of_an_owned_gpu_hour() -> None:
    """At the price of `penstock assess` an 80/20 split holds, and the page once said only that it does not."""
    named = {"What is first, %": 90.0, "At $1.00 an owned GPU-hour, %": 99.0, "At $2.00 an owned GPU-hour, %": 82.0}
    rows = {name: {"philly": named, "pai": {**named, "What is first, %": 83.0}} for name in claims.BY_PRICE}
    table = claims.owned_prices({"rows": rows})
    assert "| row | at $1.00 | at $1.50 | at $2.00 |" in table
    assert table.splitlines()[-1] == (
        "| [split](#split) | holds on none of 2 traces (99.0 to 99.0 %) | holds on 1 of 2 traces (83.0 to 90.0 %)"
        " | holds on all 2 traces (82.0 to 82.0 %) |"
    )


def test_the_command_prints_text_or_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On the small load, which stands where `--fast` would read traces."""
    monkeypatch.setattr(claims, "loads", lambda *_: [small()[1]])
    assert claims.main(["--row", "eligible", "--fast"]) == 0
    assert capsys.readouterr().out.startswith("eligible: 20-35 % lower cost for eligible workloads: ")
    assert claims.main(["--row", "eligible", "--fast", "--json"]) == 0
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)["rows"]["eligible"]) == ["generated"]
    assert "generated: eligible done" in captured.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--row", "luck"], "invalid choice: 'luck'"),
        (["--traces", "philly,mars"], "there is no trace mars; there are philly, helios_venus, pai"),
        (["--days", "0"], "--days is 1 to 3650, not 0"),
        (["--write", "--fast"], "--write keeps a whole run"),
    ],
)
def test_bad_words_are_refused_in_a_sentence(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        claims.main(words)
    assert end.value.code == 2
    assert why in capsys.readouterr().err


def test_a_run_that_was_kept_is_not_done_again(tmp_path: Path) -> None:
    load, setup, kept = small()[1], Setup(policy="nowait"), tmp_path / "runs"
    lines: list[str] = []
    first = Runner(lines.append, kept).measure(load, setup)
    assert Runner(lines.append, kept).measure(load, setup) == first
    assert len(lines) == 1


def test_a_file_that_holds_no_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").write_text("not one\n")
    assert claims.main(["--resume", str(tmp_path / "runs")]) == 2
    assert "does not hold runs of this command" in capsys.readouterr().err

"""`penstock assess`: what it prints, what it refuses, and that it writes nothing."""

import json
from pathlib import Path

import pytest

from penstock.assess.demo_month import generated_month
from penstock.cli.main import main
from tests.assess import months


def test_the_demo_says_first_what_could_not_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assess", "--demo"]) == 0
    stdout = capsys.readouterr().out
    assert stdout.startswith("What could not be seen, and how sure the rest is\n  Seen: ")
    assert stdout.index("\nUse\n") < stdout.index("\nWaits\n")
    assert "\x1b" not in stdout
    assert stdout.endswith("Nothing was written anywhere.\n")


def test_json_has_the_sentences_and_every_hour(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    month = generated_month(1, jobs=100, days=5)
    path = tmp_path / "jobs.csv"
    path.write_text(months.table(month))
    before = sorted(tmp_path.iterdir())
    assert main(["assess", "--csv", str(path), "--owned-gpus", "16", "--currency", "EUR", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["jobs"] == 100
    assert report["waits"]["demand"]["owned_gpus"] == 16
    assert report["says"]["not_seen"][0].startswith("Seen: ")
    assert "How the allocated GPUs were used is not known: no source measured it." in report["says"]["not_seen"]
    assert sum(row["allocated"] for row in report["use"]["by_hour"]) == pytest.approx(months.gpu_hours(month))
    assert sorted(tmp_path.iterdir()) == before


def test_the_cost_of_an_owned_gpu_counts_with_a_decision_or_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--own-cost was not heard unless a decision was asked for."""
    path = tmp_path / "jobs.csv"
    path.write_text(months.table(generated_month(1, jobs=20, days=2)))
    for words in ([], ["--decide"]):
        assert main(["assess", "--csv", str(path), "--own-cost", "hour=3", "--json", *words]) == 0
        assert json.loads(capsys.readouterr().out)["gpu_hour"] == 3_000_000
    assert main(["assess", "--csv", str(path), "--own-cost", "colour=3"]) == 2
    assert "--own-cost is KEY=VALUE" in capsys.readouterr().err


def test_redacted_output_holds_no_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "secret-project.csv"
    path.write_text(months.table(generated_month(1, jobs=100, days=5)))
    assert main(["assess", "--csv", str(path), "--redact", "--json"]) == 0
    stdout = capsys.readouterr().out
    for name in ("vision", "language", "speech", "secret-project", str(tmp_path)):
        assert name not in stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "Name a source"),
        (["--demo", "--csv", "a.csv"], "no other source with it"),
        (["--csv", "nowhere.csv"], "nowhere.csv: cannot be read"),
        (["--sacct", "nowhere.txt"], "nowhere.txt: cannot be read"),
        (["--shadow", "nowhere.json"], "nowhere.json: cannot be read"),
        (["--journal", "nowhere.journal"], "nowhere.journal"),
        (["--kubeconfig", "nowhere.yaml"], "nowhere.yaml cannot be used"),
        (["--prometheus", "nowhere"], "is no address"),
        (["--prometheus", "https://p.example", "--until", "soon"], "--until 'soon' is no time"),
        (["--demo", "--from", "2026-10-02T00:00:00Z", "--until", "2026-10-01T00:00:00Z"], "is not before --until"),
        (["--demo", "--time-zone", "Mars"], "--time-zone 'Mars' is no time zone"),
        (["--demo", "--gpu-hour", "-1"], "cannot be negative"),
        (["--demo", "--currency", "euro"], "is no currency"),
        (["--csv", "a.csv", "--column", "submit"], "write it as FIELD=NAME"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assess", *words]) == 2
    stderr = capsys.readouterr().err
    assert why in stderr
    assert "Traceback" not in stderr


def test_a_decision_is_printed_and_written_as_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, page = tmp_path / "jobs.csv", tmp_path / "report.html"
    table.write_text(months.table(generated_month(1, jobs=25, days=2)))
    words = ["assess", "--csv", str(table), "--owned-gpus", "16", "--own-cost", "hour=2", "--html", str(page)]
    assert main(words) == 0
    stdout = capsys.readouterr().out
    assert "Ways, each replayed on this month" in stdout
    assert "Buy or rent\n  An owned H100 costs $2.00 an hour" in stdout
    assert "Pilot\n  No " in stdout
    assert stdout.endswith(f"The whole report is in {page}.\n")
    assert "Nothing was written" not in stdout
    assert page.read_text().startswith("<!doctype html>")
    assert main([*words[:-2], "--decide", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [way["name"] for way in report["ways"]["ways"]] == ["as-it-was", "queue", "burst", "spot", "bought", "cloud"]
    assert report["decision"]["answer"] in ("go", "no-go")
    assert report["gpu_hour"] == 2_000_000


def test_a_redacted_page_holds_no_name(tmp_path: Path) -> None:
    table, page = tmp_path / "secret-project.csv", tmp_path / "report.html"
    table.write_text(months.table(generated_month(1, jobs=25, days=2)))
    assert main(["assess", "--csv", str(table), "--redact", "--html", str(page)]) == 0
    for name in ("vision", "language", "speech", "secret-project"):
        assert name not in page.read_text()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--currency", "EUR"], "like --rate 0.9"),
        (["--own-cost", "colour=3"], "--own-cost is KEY=VALUE"),
        (["--cost-of-delay", "0"], "--cost-of-delay is what an hour of delay costs"),
        (["--cap", "much"], "--cap: 'much' is not an amount"),
        (["--cloud", "Mars"], "no H100 of 'Mars'"),
        (["--sites", "nowhere.yaml"], "nowhere.yaml"),
        (["--html", "/nowhere/report.html"], "Cannot write /nowhere/report.html"),
    ],
)
def test_a_decision_on_bad_words_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(months.table(generated_month(1, jobs=20, days=2)))
    assert main(["assess", "--csv", str(path), "--decide", *words]) == 2
    stderr = capsys.readouterr().err
    assert why in stderr
    assert "Traceback" not in stderr


def test_a_sites_file_says_what_is_rented(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, sites = tmp_path / "jobs.csv", tmp_path / "sites.yaml"
    table.write_text(months.table(generated_month(1, jobs=20, days=2)))
    sites.write_text(
        "currency: EUR\nsites:\n"
        "  - name: lab\n    front_door: true\n"
        "    offers: [{name: owned, term: owned, gpu: H100, gpus_per_node: 8, nodes: 2}]\n"
        "  - name: cloud\n"
        "    offers: [{name: od, term: on_demand, gpu: H100, gpus_per_node: 8, price: {list: 3.00}, start: 5m}]\n"
    )
    words = ["assess", "--csv", str(table), "--owned-gpus", "16", "--decide", "--sites", str(sites), "--json"]
    assert main(words) == 2
    assert "how many EUR a dollar is" in capsys.readouterr().err
    assert main([*words, "--rate", "0.9"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["currency"], report["quote"]["on_demand"]) == ("EUR", 3_000_000)
    assert "Burst with spot is left out: the sites file has no spot offer." in report["ways"]["left_out"]

"""`penstock pilot`: what it records, what it reports, and what it refuses."""

import json
from pathlib import Path

import pytest

from penstock.cli.main import main

HEAD = "job_id,submit_s,start_s,end_s,gpus,team,name"


def rows(first: int, count: int, wait_s: int) -> str:
    jobs = [(k, k * 86_400, k * 86_400 + wait_s + k, k * 86_400 + wait_s + 7_200) for k in range(first, first + count)]
    return "\n".join([HEAD, *(f"{k},{submit},{start},{end},8,a,train-{k}" for k, submit, start, end in jobs)]) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PENSTOCK_JOURNAL", raising=False)
    Path("before.csv").write_text(rows(0, 8, 10_000))
    Path("after.csv").write_text(rows(8, 8, 300))
    return tmp_path


def test_a_pilot_is_begun_once_and_reported_later(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pilot", "start", "--csv", "before.csv", "--json"]) == 0
    begun = json.loads(capsys.readouterr().out)
    assert (begun["job"], len(begun["before"]["runs"])) == ("a/train", 8)
    assert begun == json.loads((folder / "pilot.json").read_text())
    assert main(["pilot", "report", "--csv", "after.csv", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["wait_h"]["verdict"], report["wait_h"]["after"]["runs"]) == ("lower", 8)
    assert main(["pilot", "report", "--csv", "before.csv"]) == 0
    assert "Verdict: too few runs to say." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["start"], "Name a source of the baseline"),
        (
            ["start", "--csv", "before.csv", "--job", "b/none"],
            "no run of 'b/none' before the start; recurring jobs are a",
        ),
        (["start", "--csv", "before.csv", "--currency", "EUR"], "say --gpu-hour and --rent in EUR"),
        (["start", "--csv", "before.csv", "--rent", "-1"], "--rent cannot be negative"),
        (["start", "--csv", "before.csv", "--cost-of-delay", "much"], "--cost-of-delay: "),
        (["start", "--csv", "before.csv", "--at", "noon"], "--at 'noon' is no time"),
        (["start", "--csv", "before.csv", "--file", "nowhere/pilot.json"], "Cannot write nowhere/pilot.json"),
        (["start", "--csv", "before.csv", "--file", "before.csv"], "before.csv already holds a pilot"),
        (["report", "--csv", "after.csv"], "There is no pilot in pilot.json"),
        (["report", "--csv", "after.csv", "--file", "after.csv"], "after.csv is no pilot that can be read"),
        (["report", "--csv", "dated.csv", "--file", "begun.json"], "has dates and the other counts from its own zero"),
        (["report", "--file", "begun.json"], "There is no journal"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_refused_is_one_sentence(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pilot", "start", "--csv", "before.csv", "--file", "begun.json"]) == 0
    Path("dated.csv").write_text(
        f"{HEAD.replace('_s', '')}\n1,2026-10-01T08:00Z,2026-10-01T08:01Z,2026-10-01T09:00Z,8,a,train-1\n"
    )
    capsys.readouterr()
    assert main(["pilot", *words]) == 2
    captured = capsys.readouterr()
    assert why in captured.err
    assert captured.out == ""

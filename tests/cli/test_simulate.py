"""`simulate`, and what reads its journal: `why`, `replay`, `redecide`. Whatever a person does wrong is one sentence."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main as cli
from penstock.journal import redecide as again
from penstock.journal.hash_chain import GENESIS, chain

FIELDS = [
    "policy",
    "knob",
    "currency",
    "jobs",
    "gpu_hours",
    "cloud_gpu_hours",
    "cloud_cost",
    "deferred_gpu_hours",
    "cloud_jobs",
    "launches",
    "moves",
    "mean_wait_h",
    "p50_wait_h",
    "p99_wait_h",
    "max_wait_h",
    "mean_delay_h",
    "p99_delay_h",
    "max_delay_h",
    "wasted_wait_share",
    "start_gpu_hours",
    "redone_gpu_hours",
    "rented_while_owned_idle_gpu_hours",
    "mean_jct_h",
    "utilisation",
    "jobs_per_cpu_s",
    "peak_rss_mb",
]
MACHINE = {"jobs_per_cpu_s", "peak_rss_mb"}  #: differ from run to run
TRACE = "job_id,submit_s,duration_s,gpus\nfirst,0,7200,8\nsecond,60,3600,4\nthird,9000,600,1\n"
JOURNAL = ["simulate", "jobs.csv", "--nodes", "1", "--journal", "month.journal", "--json"]

Say = Callable[..., str]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(TRACE)


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Say:
    """What a command that must end well prints."""

    def run(*args: str) -> str:
        assert cli.main(args) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    return run


@pytest.fixture
def refuses(capsys: pytest.CaptureFixture[str]) -> Say:
    """The sentence of a command that must end with code 2 and print nothing else."""

    def run(*args: str) -> str:
        assert cli.main(args) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("Error: ")
        assert captured.err.count("\n") == 1
        return captured.err.removeprefix("Error: ").removesuffix("\n")

    return run


# ---- simulate -------------------------------------------------------------------------------------------------------


def test_json_has_every_field_in_order(says: Say) -> None:
    report = json.loads(says("simulate", "--generate", "40", "--json"))
    assert list(report)[: len(FIELDS)] == FIELDS
    assert (report["jobs"], report["policy"], report["knob"], report["currency"]) == (40, "penstock", "20", "USD")


def test_the_sums_of_a_trace_are_right(says: Say) -> None:
    """Job `second` finds the node full: with patience for 900 s it bursts, with more it waits for `first` to end."""
    args = ("simulate", "jobs.csv", "--nodes", "1", "--costs", "l0", "--knowledge", "e0", "--policy", "constant")
    burst = json.loads(says(*args, "--knob", "0.2368421", "--json"))
    assert (burst["cloud_jobs"], burst["cloud_gpu_hours"], burst["cloud_cost"]) == (1, 4.0, 10.0)
    assert burst["gpu_hours"] == round(16 + 4 + 1 / 6, 2)
    assert burst["max_wait_h"] == 0.25
    waits = json.loads(says(*args, "--knob", "10", "--json"))
    assert (waits["cloud_jobs"], waits["cloud_cost"], waits["max_wait_h"]) == (0, 0.0, round(7140 / 3600, 2))


def test_the_cost_of_delay_is_the_knob_and_its_old_option_works_with_a_notice(
    says: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["simulate", "--generate", "60", "--json"]
    new = json.loads(says(*args, "--cost-of-delay", "3"))
    assert cli.main([*args, "--knob", "3"]) == 0
    captured = capsys.readouterr()
    assert (
        captured.err
        == "Notice: --knob of 'penstock' is called --cost-of-delay now; the old name works for a release.\n"
    )
    old = json.loads(captured.out)
    assert (new["knob"], old | dict.fromkeys(MACHINE)) == ("3", new | dict.fromkeys(MACHINE))


def test_the_same_run_twice_is_the_same(says: Say) -> None:
    first, second = (json.loads(says("simulate", "--generate", "60", "--costs", "l2", "--json")) for _ in range(2))
    assert first | dict.fromkeys(MACHINE) == second | dict.fromkeys(MACHINE)


def test_another_seed_is_another_month(says: Say) -> None:
    first, second = (json.loads(says("simulate", "--generate", "60", "--seed", s, "--json"))["gpu_hours"] for s in "12")
    assert first != second


def test_people_get_a_table_with_the_same_numbers(says: Say) -> None:
    args = ("simulate", "jobs.csv", "--nodes", "1", "--costs", "l0", "--policy", "nowait")
    stdout = says(*args, "--budget", "org=500")
    assert stdout.startswith("Policy nowait, knob ")
    assert re.search(r"^went to rented GPUs +1 jobs, 4 GPU-h$", stdout, re.MULTILINE)
    assert re.search(r"^paid for rented GPUs +\$10\.00$", stdout, re.MULTILINE)
    assert re.search(r"^org +month 1 +\$500\.00 +\$10\.00 +\$490\.00$", stdout, re.MULTILINE)


def test_a_cap_holds_in_each_month(says: Say) -> None:
    args = ("simulate", "jobs.csv", "--nodes", "0", "--costs", "l0")
    months = re.findall(r"^org +month \d+ +\$12\.00 +\$(\S+) +\$", says(*args, "--budget", "org=12"), re.MULTILINE)
    assert len(months) > 1  # what does not fit into the first month runs in the next
    assert all(0 < float(spent) <= 12 for spent in months)


def test_each_start_can_be_written_to_a_file(says: Say, tmp_path: Path) -> None:
    says("simulate", "jobs.csv", "--nodes", "1", "--costs", "l0", "--policy", "nowait", "--jobs", "starts.csv")
    assert (tmp_path / "starts.csv").read_text() == "0,0,0\n1,60000,1\n2,9000000,0\n"


def test_a_trace_can_come_from_a_pipe_with_names_of_its_own(tmp_path: Path) -> None:
    done = penstock(
        *("simulate", "-", "--nodes", "1", "--json", "--column", "submit=when", "--column", "duration=ran"),
        *("--column", "gpus=cards", "--column", "id=name"),
        cwd=tmp_path,
        given="name,when,ran,cards\na,0,100,1\nb,50,100,8\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["jobs"] == 2


def test_sites_can_come_from_a_file(says: Say, tmp_path: Path) -> None:
    for name in ("sites.yaml", "policy.yaml"):
        shutil.copy(Path(__file__).parents[2] / "examples" / name, tmp_path / name)
    files = ("--sites", "sites.yaml", "--policy", "policy.yaml")
    report = json.loads(says("simulate", "--generate", "20", *files, "--json"))
    assert (report["jobs"] > 0, report["policy"], report["currency"]) == (True, "policy.yaml", "EUR")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ("", "Name one trace of jobs, or make some up with --generate JOBS."),
        ("jobs.csv --generate 5", "Name one trace of jobs, or make some up with --generate JOBS."),
        ("jobs.csv", "How much do you own? Say --nodes N (nodes of 8 GPUs), or --sites FILE."),
        ("none.csv --nodes 1", "none.csv: cannot be read (No such file or directory)."),
        (". --nodes 1", ".: cannot be read (Is a directory)."),
        ("empty.csv --nodes 1", "empty.csv: the file is empty."),
        ("wrong.csv --nodes 1", "wrong.csv, line 3: gpus 'x' is not a number."),
        ("wrong.gz --nodes 1", "wrong.gz: the name ends in .gz and the content is not gzip."),
        (
            "jobs.csv --nodes 1 --format tar",
            "jobs.csv: the format 'tar' is unknown; formats are penstock, csv, sacct, kubernetes.",
        ),
        ("jobs.csv --nodes 1 --column gpus", "--column is FIELD=NAME, like submit=SubmitTime, not 'gpus'."),
        ("--generate 200000000", "200000000 jobs cannot be generated; ask for 1 to 100,000,000."),
        ("--generate 5 --cost-of-delay often", "'often' is not an amount of money; write it like 1500 or 12.50."),
        (
            "--generate 5 --cost-of-delay -1",
            "--cost-of-delay is what an hour of delay costs and cannot be negative, but is -1.",
        ),
        (
            "--generate 5 --policy compute --cost-of-delay 5",
            "'compute' has no cost of delay but a waiting budget; write --knob 0.25.",
        ),
        (
            "--generate 5 --knob 5 --cost-of-delay 5",
            "--cost-of-delay and --knob both set the policy; give one of them.",
        ),
        (
            "--generate 5 --policy compute --knob 1e999999999",
            "--knob is a waiting budget like 0.25, not '1e999999999'.",
        ),
        ("--generate 5 --policy compute --knob often", "--knob is a waiting budget like 0.25, not 'often'."),
        ("--generate 5 --policy compute --knob -1", "--knob is a waiting budget and cannot be negative, but is -1."),
        ("--generate 5 --policy compute --knob 1/0", "--knob is a waiting budget like 0.25, not '1/0'."),
        ("--generate 5 --budget 500", "--budget is TEAM=AMOUNT, like vision=5000, not '500'."),
        ("--generate 5 --budget =500", "--budget is TEAM=AMOUNT, like vision=5000, not '=500'."),
        ("--generate 5 --budget org=-1", "--budget org=-1: a cap cannot be negative."),
        ("--generate 5 --budget org=much", "'much' is not an amount of money; write it like 1500 or 12.50."),
        (
            "--generate 5 --journal jobs.csv",
            "jobs.csv exists already; name a new file for the journal, or remove that one.",
        ),
        ("--generate 5 --journal no/where", "Cannot write a journal to no/where: unable to open database file."),
        ("--generate 5 --jobs no/where", "Cannot write no/where: No such file or directory."),
        ("--generate 5 --sites none.yaml", "none.yaml: cannot be read (No such file or directory)."),
        ("--generate 5 --sites none.yaml --nodes 1", "--nodes and --sites both say what you own; give one of them."),
        (
            "--generate 5 --costs l2 --spot none",
            (
                "none does not hold spot traces (spot_index.csv, spot_rle.csv): "
                "[Errno 2] No such file or directory: 'none/spot_index.csv'."
            ),
        ),
    ],
)
def test_what_cannot_be_simulated_is_one_sentence(args: str, sentence: str, refuses: Say, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "wrong.csv").write_text("job_id,submit_s,duration_s,gpus\na,0,9,1\nb,0,9,x\n")
    (tmp_path / "wrong.gz").write_text(TRACE)
    assert refuses("simulate", *args.split()) == sentence


def test_an_unknown_policy_is_refused_with_the_ones_there_are(refuses: Say) -> None:
    message = refuses("simulate", "--generate", "5", "--policy", "fast")
    assert re.fullmatch(r"There is no policy 'fast'; choose one of .*nowait, constant, .*\.", message)


@pytest.mark.parametrize(
    "args", ["--generate 0", "--nodes -1", "--nodes x", "--costs l3", "--knowledge e9", "--seed x", "--no-such"]
)
def test_options_out_of_range_are_usage_errors(args: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "--generate", "5", *args.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Usage: penstock simulate")
    assert args.split(maxsplit=1)[0] in captured.err
    assert "Traceback" not in captured.err


def test_a_starts_file_that_cannot_be_written_is_known_before_the_run(
    refuses: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was found out after the run, and an hour's work ended in a refusal."""

    def never(*_: Any) -> None:
        raise AssertionError("nothing may run before the input is known to be good")

    monkeypatch.setattr("penstock.sim.scenario.run", never)
    assert refuses("simulate", "--generate", "5", "--jobs", ".") == "Cannot write .: Is a directory."


# ---- why ------------------------------------------------------------------------------------------------------------


def test_why_tells_one_job_line_by_line(says: Say) -> None:
    says(*JOURNAL)
    lines = says("why", "first", "--journal", "month.journal").splitlines()
    assert lines[0] == "  day 1, 00:00  Submitted by default: 8 GPUs."
    assert lines[-1] == "  day 1, 02:00  Succeeded."
    story = json.loads(says("why", "first", "--journal", "month.journal", "--json"))
    assert [line["text"] for line in story] == [line[16:] for line in lines]


def test_why_says_so_when_it_knows_no_such_job(says: Say, refuses: Say) -> None:
    says(*JOURNAL)
    assert refuses("why", "frist", "--journal", "month.journal") == (
        "month.journal has no job 'frist'. Did you mean first?"
    )
    assert refuses("why", "42", "--journal", "month.journal") == "month.journal has no job '42'."


FIRM = """version: 1
currency: USD
teams: {fraud: {per_month: 5}, risk: {per_month: 1000}}
classes:
  night: {}
  home: {where: rented, spot: required}
data: {personal: {sites: ["*"]}}
"""
ONE_CLOUD = """currency: USD
sites:
  - name: lab
    location: DE
    law: EU
    front_door: true
    offers:
      - {name: owned, term: owned, gpu: A100, gpus_per_node: 8, nodes: 1}
  - name: cloud
    location: DE
    law: EU
    offers:
      - {name: od, term: on_demand, gpu: A100, gpus_per_node: 8, guarantee: timer, price: {per: node_hour, list: 20}}
data: [{name: cards, size: 1GB, site: lab, class: personal}]
"""


def test_a_firm_rehearses_its_own_rules_and_is_told_what_refuses_its_jobs(says: Say) -> None:
    """Generated jobs had teams and classes that the policy had never heard of; those that it denied were "refused:
    nothing could ever hold them", and no line said that a team's money was short for days.
    """
    for name, text in (("firm.yaml", FIRM), ("sites.yaml", ONE_CLOUD)):
        Path(name).write_text(text)
    asked = ("simulate", "--generate", "300", "--sites", "sites.yaml", "--policy", "firm.yaml")
    report = json.loads(says(*asked, "--json"))
    by = [(row["rule"], row["where"]) for row in report["refused_by"]]
    assert ("class home rents spot only", "firm.yaml:6") in by
    assert report["refused_jobs"] <= sum(row["jobs"] for row in report["refused_by"])
    table = says(*asked)
    assert "nothing could ever hold them" not in table
    assert "team:fraud" in table
    (short,) = [row for row in report["short"] if row["scope"] == "team:fraud"]
    assert f"Money of team:fraud was short for {short['jobs']:,} jobs, from day " in table


def _reads_as_people_write_it(table: str, found: dict[str, Any]) -> None:
    """A person was shown `4506600964` for what was spent, and Python's own spelling of a table."""
    rows = dict(re.findall(r"^ *(\w[\w ]*?)  +(\S.*?) *$", table, re.MULTILINE))
    assert rows["at"].startswith("day ")
    assert rows["ended"] == ", ".join(f"{jobs:,} {state}" for state, jobs in found["ended"].items())
    assert rows["spent"].startswith("$")
    assert round(float(rows["spent"].strip("$").replace(",", "")) * 1_000_000) == found["spent"]


# ---- replay and redecide --------------------------------------------------------------------------------------------


def test_replay_finds_the_state_and_checks_it_when_asked(says: Say) -> None:
    spent = json.loads(says(*JOURNAL))["cloud_cost"]
    plain = json.loads(says("replay", "month.journal", "--json"))
    checked = json.loads(says("replay", "month.journal", "--check", "--json"))
    assert (plain["invariants"], checked["invariants"]) == ("not asked", "hold")
    assert plain | {"invariants": ""} == checked | {"invariants": ""}
    assert plain["chain"] == "whole"
    assert plain["ended"] == {"succeeded": 3}
    assert plain["spent"] / 1e6 == pytest.approx(spent, abs=0.005)
    table = says("replay", "month.journal")
    assert table.startswith("Replay of month.journal\n")
    _reads_as_people_write_it(table, plain)


def test_redecide_is_equal_for_what_this_version_wrote(says: Say) -> None:
    says(*JOURNAL)
    assert re.fullmatch(
        r"Equal: \d+ steps, \d+ promises decided again, row for row\.\n", says("redecide", "month.journal")
    )
    assert json.loads(says("redecide", "month.journal", "--json"))["different"] == 0


def test_a_difference_is_shown_and_is_exit_code_1(
    says: Say, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    says(*JOURNAL)
    report = again.RedecideReport(9, 8, 1, (again.Difference(3, ("Start(lab)",), ("Wait(lab)",)),))
    monkeypatch.setattr(again, "redecide", lambda *_, **__: report)
    assert cli.main(["redecide", "month.journal"]) == 1
    assert capsys.readouterr().out == (
        "1 of 9 steps would be decided differently. The first:\n  step 3\n    - Start(lab)\n    + Wait(lab)\n"
    )
    assert cli.main(["redecide", "month.journal", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["first"][0]["number"] == 3


READERS = [("why", "first", "--journal"), ("replay",), ("redecide",)]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader[0])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none", "There is no journal none; `penstock simulate --journal FILE` writes one."),
        (".", "There is no journal .; `penstock simulate --journal FILE` writes one."),
        ("jobs.csv", "jobs.csv is not a journal: file is not a database."),
        ("other", "other is not a journal: no such table: journal."),
        ("format", "format is a journal of another format (9); this version reads 2."),
        ("altered", "altered: step 2 is not what was written; the journal was changed after the fact."),
        ("gap", "gap: step 3 is not what was written; the journal was changed after the fact."),
        ("newer", "newer: step 1 was written by a newer Penstock; use that version to read it."),
        ("event", "The journal holds an event 'Nonsense' that this version does not know; use a newer Penstock."),
    ],
)
def test_what_is_no_journal_of_ours_is_one_sentence(
    reader: tuple[str, ...], name: str, sentence: str, says: Say, refuses: Say
) -> None:
    says(*JOURNAL)
    _damage("other", "drop table journal")
    _damage("format", "update journal set format = 9")
    _damage("altered", "update steps set at = at + 1 where number = 2")
    _damage("gap", "delete from steps where number = 2")
    _damage("newer", "update steps set version = version + 1", whole=True)
    _damage("event", """update steps set inputs = cast('[["Nonsense",1]]' as blob) where number = 2""", whole=True)
    assert refuses(*reader, name) == sentence


def test_a_journal_cut_short_is_one_sentence(says: Say, refuses: Say, tmp_path: Path) -> None:
    says(*JOURNAL)
    os.truncate("month.journal", (tmp_path / "month.journal").stat().st_size // 2)
    assert refuses("replay", "month.journal").startswith("month.journal ")


def test_a_journal_that_holds_text_for_bytes_is_one_sentence(says: Say, refuses: Say) -> None:
    says(*JOURNAL)
    _damage("month.copy", "update steps set inputs = 'text' where number = 2")
    assert refuses("replay", "month.copy").startswith("month.copy")


def _damage(name: str, change: str, *, whole: bool = False) -> None:
    """A copy of the journal with a change made by hand; `whole`: its chain is made to fit again."""
    shutil.copy("month.journal", name)
    db = sqlite3.connect(name, isolation_level=None)
    db.execute(change)
    last = GENESIS
    for row in db.execute("select * from steps order by number").fetchall() if whole else ():
        last = chain(last, *row[:-1])
        db.execute("update steps set hash = ? where number = ?", (last, row[0]))
    db.close()


# ---- into pipes and files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_reach_a_pipe(env: dict[str, str], tmp_path: Path) -> None:
    for args in (["simulate", "--generate", "20"], ["simulate", "none.csv"], ["why", "--help"]):
        done = penstock(*args, cwd=tmp_path, **env)
        assert "\x1b" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def penstock(*args: str, cwd: Path, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; from penstock.cli.main import main; sys.exit(main({list(args)!r}))"
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env=os.environ | env,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

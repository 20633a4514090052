"""`penstock policy diff` and `export`, as people run them."""

import json
from pathlib import Path

import pytest

from penstock.cli.main import main

OLD = "version: 1\ncurrency: USD\n"
NEW = """version: 1
currency: USD
organisation: {per_month: 300}
allow: {clouds: [aws], regions: ["eu-*"], families: [p5]}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(OLD)
    new.write_text(NEW)
    return str(old), str(new)


def test_a_new_allow_list_is_told_with_its_line(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "diff", *files, "--generate", "60"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"60 jobs under {files[0]} (old) and {files[1]} (new)\nteam ")
    assert "\nJobs that a rule denied something\n" in out
    assert "cloud unknown is not allowed  new.yaml:4" in out
    assert "Estimates: every job's run time is known." in out
    assert "fared" in out


def test_the_sites_are_judged_with_the_policies_data_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both files had a rule for personal data, and the first line was: "Data class 'personal' has no rule"."""
    text = "version: 1\ncurrency: USD\ndata: {personal: {sites: [lab]}}\n"
    old, new, sites = tmp_path / "old.yaml", tmp_path / "new.yaml", tmp_path / "sites.yaml"
    old.write_text(text)
    new.write_text("version: 1\ncurrency: USD\n")
    owned = "offers: [{name: owned, term: owned, gpu: A100, gpus_per_node: 8, nodes: 2}]"
    sites.write_text(
        f"currency: USD\nsites: [{{name: lab, location: DE, law: EU, front_door: true, {owned}}}]\n"
        "data: [{name: cards, size: 1GB, site: lab, class: personal}]\n"
    )
    asked = ["--generate", "20", "--sites", str(sites)]
    assert main(["policy", "diff", str(old), str(old), *asked]) == 0
    assert "has no rule" not in capsys.readouterr().err
    assert main(["policy", "diff", str(old), str(new), *asked]) == 0
    said = capsys.readouterr().err
    assert said.count("has no rule") == 1
    assert f"Note ({new}): Data class 'personal' has no rule" in said


def test_a_journal_is_compared_with_its_own_run_times(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = str(tmp_path / "month.journal")
    assert main(["simulate", "--generate", "60", "--journal", journal, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert main(["policy", "diff", *files, "--journal", journal, "--seeds", "2", "--json"]) == 0
    diff = json.loads(capsys.readouterr().out)
    assert diff["overall"]["old"]["cost"] == pytest.approx(report["cloud_cost"], rel=0.1)
    assert diff["overall"]["new"]["cost"] == 0
    assert diff["overall"]["new"]["denied"] == 60
    assert diff["rules"]["old"] == []
    assert {(rule["rule"], rule["where"]) for rule in diff["rules"]["new"]} == {
        ("cloud unknown is not allowed", "new.yaml:4")
    }
    assert 0 < len(diff["changed"]) <= 20
    assert diff["estimates"]["runs"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Say which jobs: one of --journal FILE, --trace FILE or --generate JOBS."),
        (["--generate", "5", "--journal", "x"], "Say which jobs"),
        (["--journal", "there-is-none"], "There is no journal there-is-none"),
        (["--trace", "there-is-none.csv", "--nodes", "1"], "there-is-none.csv: cannot be read"),
    ],
)
def test_bad_questions_are_one_sentence(
    files: tuple[str, str], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "diff", *files, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_policy_file_that_is_wrong_is_named(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[1]).write_text("version: 1\nallows: {}\n")
    assert main(["policy", "diff", *files, "--generate", "5"]) == 2
    assert "new.yaml" in capsys.readouterr().err


def test_an_export_is_terraform_and_says_what_it_cannot_hold(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "export", files[1], "--terraform", "aws"]) == 0
    captured = capsys.readouterr()
    config = json.loads(captured.out)
    assert config["resource"]["aws_budgets_budget"]["penstock"]["limit_amount"] == "300"
    assert captured.err == ""
    out = tmp_path / "penstock.tf.json"
    assert main(["policy", "export", files[1], "--terraform", "aws", "--out", str(out)]) == 0
    assert json.loads(out.read_text()) == config
    assert main(["policy", "export", files[0], "--terraform", "aws"]) == 2
    assert "there is nothing to export" in capsys.readouterr().err
    assert main(["policy", "export", files[1], "--terraform", "gcp"]) == 2
    assert "new.yaml:4: 'allow' does not list the cloud gcp" in capsys.readouterr().err
    Path(files[1]).write_text("version: 1\norganisation: {per_month: 5}\n")
    assert main(["policy", "export", files[1], "--terraform", "aws"]) == 2
    assert "does not say its currency" in capsys.readouterr().err
    assert main(["policy", "export", files[1], "--terraform", "aws", "--out", str(tmp_path)]) == 2

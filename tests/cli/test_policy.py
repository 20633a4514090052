"""`penstock policy check|test|explain|schema`: what they print, and how they exit."""

import json
import shutil
from pathlib import Path

import pytest

from penstock.cli.main import main
from tests.conftest import ROOT

JOB = "command: x\ngpus: 8\nclass: inference\nteam: vision\n"


@pytest.fixture(autouse=True)
def _examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sites.yaml", "policy.yaml", "policy_test.yaml"):
        shutil.copy(ROOT / "examples" / name, tmp_path / name)
    Path("job.yaml").write_text(JOB)


def test_warnings_alone_are_no_failure_and_errors_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", "--sites", "sites.yaml"]) == 0
    assert capsys.readouterr().out == "policy.yaml: no errors, no warnings, with the sites of sites.yaml.\n"
    Path("odd.yaml").write_text("version: 1\nrules: [{name: a, deny: job.gpus > 0}]\n")
    assert main(["policy", "check", "odd.yaml", "--json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert (warning["file"], warning["line"], warning["key"]) == ("odd.yaml", 2, "a")
    Path("bad.yaml").write_text("version: 9\n")
    assert main(["policy", "check", "bad.yaml"]) == 2
    assert capsys.readouterr().err.startswith("Error: bad.yaml, line 1, version: this file is of version 9")


def test_cases_pass_or_fail_with_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "test"]) == 0
    assert capsys.readouterr().out.endswith("6 passed, 0 failed.\n")
    wrong = "sites: sites.yaml\ncases:\n- {name: n, job: {class: inference}, at: [lab/a100], expect: denied}\n"
    Path("policy_test.yaml").write_text(wrong)
    assert main(["policy", "test"]) == 1
    assert capsys.readouterr().out == (
        "FAIL  n\n      policy_test.yaml, line 3: lab/a100 is allowed, and was expected to be denied.\n"
        "0 passed, 1 failed.\n"
    )
    Path("policy_test.yaml").write_text(wrong.replace("lab/a100", "lab/none").replace("denied", "denid"))
    assert main(["policy", "test"]) == 2
    stderr = capsys.readouterr().err
    assert "cases[0].expect (n): unknown word 'denid'" in stderr
    assert "cases[0].at[0] (n): there is no offer 'lab/none'" in stderr


def test_every_offer_is_explained_with_file_and_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["policy", "explain", "--job", "job.yaml", "--sites", "sites.yaml"]
    assert main([*words, "--json"]) == 0
    offers = {row["offer"]: row for row in json.loads(capsys.readouterr().out)["offers"]}
    assert offers["lab/a100"]["allowed"]
    assert offers["nebius-finland/h100"]["against"] == [
        {"rule": "class inference stays on owned GPUs: flat cost, low latency", "where": "policy.yaml:23"}
    ]
    assert main(words) == 0
    assert "  lab/a100: allowed\n" in capsys.readouterr().out
    assert main(["policy", "explain", "--job", "j7", "--sites", "sites.yaml", "--journal", "none.db"]) == 2
    assert "'j7' is no file, and there is no journal none.db" in capsys.readouterr().err


def test_the_schema_is_the_one_that_ships(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "schema"]) == 0
    assert capsys.readouterr().out == (ROOT / "examples" / "policy.schema.json").read_text("utf-8")


def test_an_editor_knows_the_roles_that_may_answer() -> None:
    """It took any role, which `policy check` and a start refuse: requests to it wait for nobody."""
    schema = json.loads((ROOT / "examples" / "policy.schema.json").read_text("utf-8"))
    roles = schema["properties"]["approvals"]["items"]["properties"]["by"]["enum"]
    for role in (*roles, "role:lead"):
        Path("p.yaml").write_text(f"version: 1\napprovals: [{{when: 'true', by: {role}, within: 1h}}]\n")
        assert main(["policy", "check", "p.yaml"]) == (0 if role in roles else 2), role

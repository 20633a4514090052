"""`penstock leave` ends: with all that is left, or with the name of what does not answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import leave
from penstock.cli.main import main
from tests.cli.test_client import other

HOME = {"site": "lab", "jobs": 0, "leaving": True, "left": True, "remains": [], "unreached": ""}
EAST = {"site": "east", "left": False, "remains": ["it cannot be asked: refused"], "unreached": ""}


@pytest.mark.parametrize(
    ("east", "code", "says"),
    [
        (
            EAST | {"unreached": "it cannot be asked: refused"},
            1,
            "east: cannot be left yet, because it does not answer: it cannot be asked: refused. Penstock goes on as",
        ),
        (
            EAST | {"left": True, "remains": []},
            0,
            "east: no Job, pod, ConfigMap, Lease or rented node of Penstock is left there.",
        ),
    ],
)
def test_a_cluster_that_does_not_answer_is_named_and_the_command_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    east: dict[str, Any],
    code: int,
    says: str,
) -> None:
    """It waited for ever for a cluster that was gone for good, while all others were left."""
    monkeypatch.setattr(leave, "LOST_SECONDS", 0.0)  # a minute, for people
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    with other() as server:
        monkeypatch.setenv("PENSTOCK_URL", server.url)
        monkeypatch.setenv("PENSTOCK_TOKEN", "of this test")
        server.body = json.dumps({"doors": [HOME], "clusters": [east]})
        assert main(["leave"]) == code
    assert says in capsys.readouterr().out

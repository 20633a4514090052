"""Who did it: in the chain, with before and after; personal words can be erased; no stranger pushes a record out."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from penstock.core.model import events as e
from penstock.journal.open import read
from tests.hostile.control_plane import LIMIT_S, ControlPlane
from tests.hostile.tokens import made, running_job

WORDS = "hunter2-was-typed-here"


def trail(plane: ControlPlane, **wanted: str) -> list[dict[str, Any]]:
    """Oldest first."""
    answer = plane.client().get("/v1/audit", params=wanted)
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries[::-1]


def facts(plane: ControlPlane, kind: type) -> list[Any]:
    return [fact for row in read(str(plane.home / "journal.db")) for fact in row.inputs if isinstance(fact, kind)]


def command(plane: ControlPlane, secret: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *words],
        env=os.environ | {"PENSTOCK_URL": plane.address, "PENSTOCK_TOKEN": secret, "COLUMNS": "300"},
        capture_output=True, text=True, check=False, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- who did what ----------------------------------------------------------------------------------------------------


def test_every_change_says_who_and_what_was_before_also_after_a_kill(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane:
        operator, secret = made(plane, "operator", name="Ada")
        client = plane.client(secret)
        client.put("/v1/budget", json={"scope": "team:a", "per_month": 7_000_000}).raise_for_status()
        client.put("/v1/budget", json={"scope": "team:a", "per_month": 5_000_000, "per_hour": 9}).raise_for_status()
        client.put("/v1/budget", json={"scope": "team:a"}).raise_for_status()
        client.post("/v1/pause").raise_for_status()
        job = plane.submit("true", client=client)
        client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
        again = client.post(f"/v1/jobs/{job}/retry").json()["job"]
        client.post("/v1/resume").raise_for_status()
        plane.stop(signal.SIGKILL)
        plane.start()
        entries = trail(plane, who=operator)
        assert [(entry["did"], entry["about"], entry["before"], entry["after"]) for entry in entries] == [
            ("cap", "team:a", "", "$7.00 a month"),
            ("cap", "team:a", "$7.00 a month", "$5.00 a month, $0.000009 an hour"),
            ("cap", "team:a", "$5.00 a month, $0.000009 an hour", "no cap"),
            ("pause", "", "", ""),
            ("cancel", job, "queued", ""),
            ("retry", again, job, again),
            ("resume", "", "", ""),
        ]
        assert {(entry["name"], entry["address"]) for entry in entries} == {("Ada", "127.0.0.1")}
        assert [fact.by for fact in facts(plane, e.CancelRequested)] == [operator]  # in the chain, not only in a table
        assert [fact.spec.user for fact in facts(plane, e.JobSubmitted)] == [operator] * 2


def test_tokens_logins_moves_and_commands_are_on_record(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane:
        member, secret = made(plane, "member", "vision")
        with running_job(plane, secret) as job:
            offer = plane.job(job)["offer"]
            plane.client(secret).post(f"/v1/jobs/{job}/move", json={"offer": offer}).raise_for_status()
            assert "there" in command(plane, secret, "exec", job, "--", "echo", "there")
            link = plane.client(secret).post("/v1/logins").json()["path"]
            plane.client("").get(link).raise_for_status()
            plane.client(secret).post(f"/v1/jobs/{job}/cancel").raise_for_status()
        plane.client().delete(f"/v1/tokens/{member}").raise_for_status()
        moved, ran, login, cancelled = trail(plane, who=member)
        assert (moved["did"], moved["about"], moved["before"], moved["after"]) == ("move", job, offer, offer)
        assert (ran["did"], ran["about"], ran["words"]) == ("exec", f"{job}.1", ["echo", "there"])
        assert (login["did"], login["before"], login["after"]) == ("login", member, "viewer of vision")
        assert (cancelled["did"], cancelled["about"], cancelled["before"]) == ("cancel", job, "running")
        issued, revoked = trail(plane, about=member)
        assert (issued["did"], issued["after"], revoked["did"]) == ("token made", "member of vision", "token revoked")
        assert issued["who"] == revoked["who"] != ""
        assert job in command(plane, Path(plane.token_file).read_text().strip(), "audit", "list")


def test_only_admins_see_the_audit_trail(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane:
        for role in ("operator", "member", "viewer"):
            client = plane.client(made(plane, role)[1])
            asked = [client.get("/v1/audit"), client.get("/v1/audit/denials")]
            asked.append(client.post("/v1/audit/erase", json={"who": "x"}))
            assert [answer.status_code for answer in asked] == [403] * 3


# --- logs ------------------------------------------------------------------------------------------------------------


def test_reading_somebody_elses_log_is_on_record_and_ones_own_is_not(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane:
        member, secret = made(plane, "member", "vision")
        job = plane.submit("true", client=plane.client(secret))
        plane.ended(job)
        viewer, other = made(plane, "viewer", name="Grace")
        team = made(plane, "viewer", "vision")[1]
        link = plane.client(other).post("/v1/logins").json()["path"]
        browser = plane.client("")
        browser.get(link).raise_for_status()
        for client in (plane.client(secret), plane.client(team)):
            client.get(f"/v1/jobs/{job}/log").raise_for_status()
        assert trail(plane, did="log read") == []
        for _ in range(3):  # who goes on reading is told once
            plane.client(other).get(f"/v1/jobs/{job}/log").raise_for_status()
        plane.client(other).get(f"/v1/jobs/{job}/log", params={"follow": "true"}).raise_for_status()
        browser.get(f"/jobs/{job}", headers={"Accept": "text/html"}).raise_for_status()
        mine = plane.submit("true")
        plane.ended(mine)
        plane.client().get(f"/v1/jobs/{mine}/log").raise_for_status()
        plane.client().get("/v1/jobs/none/log")
        entries = trail(plane, did="log read")
        assert [(entry["who"] == viewer, entry["about"]) for entry in entries] == [(True, job), (False, job)]
        assert {entry["name"] for entry in entries} == {"Grace"}  # also of her browser
        assert member not in {entry["who"] for entry in entries}


# --- what is personal ------------------------------------------------------------------------------------------------


def _stored(plane: ControlPlane, words: str) -> bool:
    """In the journal's file, its log, or any other file of the home folder that is about people."""
    files = [*plane.home.glob("journal.db*"), *plane.home.glob("*.json*")]
    return any(words.encode() in file.read_bytes() for file in files)


def test_names_addresses_and_words_are_erased_and_the_chain_stays_whole(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane:
        member, secret = made(plane, "member", "vision", name="Ada-Lovelace")
        with running_job(plane, secret) as job:
            command(plane, secret, "exec", job, "--", "echo", WORDS)
            plane.client(secret).post(f"/v1/jobs/{job}/cancel").raise_for_status()
        text = repr([(row.inputs, row.outputs) for row in read(str(plane.home / "journal.db"))])
        assert (WORDS in text, "Ada-Lovelace" in text, "127.0.0.1" in text) == (False, False, False)
        assert _stored(plane, WORDS)
        stdout = command(plane, Path(plane.token_file).read_text().strip(), "audit", "erase", member)
        assert stdout == f"Erased of {member}: 3 details, 0 lines of denied requests.\n"
        after = trail(plane, who=member)
        assert [entry["did"] for entry in after] == ["exec", "cancel"]
        assert {(entry["name"], entry["address"], *entry["words"]) for entry in after} == {("", "")}
        assert trail(plane, did="erase")[0]["about"] == member
        plane.stop()
        assert (_stored(plane, WORDS), _stored(plane, "Ada-Lovelace")) == (False, False)
        assert command(plane, "", "journal", "verify", str(plane.home / "journal.db")).startswith("Whole")
        plane.start()  # and what was folded from it is the same
        assert [entry["did"] for entry in trail(plane, who=member)] == ["exec", "cancel"]


# --- strangers -------------------------------------------------------------------------------------------------------


def test_strangers_push_no_record_out_however_much_they_send(tmp_path: Path) -> None:
    """Once 400 of these filled two files of 10 MB, and nobody's changes were on record any more."""
    with ControlPlane(tmp_path / "home") as plane:
        plane.client().post("/v1/pause").raise_for_status()
        stranger, member = plane.client("pst_forged"), plane.client(made(plane)[1])
        for k in range(400):
            stranger.get(f"/v1/jobs/{'x' * 3_000}{k}")
        for _ in range(50):
            member.post("/v1/resume")
        assert [entry["did"] for entry in trail(plane)][-3:] == ["token made", "pause", "token made"]
        denied = plane.client().get("/v1/audit/denials").json()["denied"]
        by_source = {line["source"]: line["requests"] for line in denied}
        requests = by_source.pop("127.0.0.1")
        assert "127.0.0.1" in command(plane, Path(plane.token_file).read_text().strip(), "audit", "denials")
        assert 50 <= requests <= 400
        assert list(by_source.values()) == [50]
        plane.stop()
        kept = json.loads((plane.home / "denied.json").read_text())
        assert [line["requests"] for line in kept["strangers"]] == [requests]
        others = ("journal", "reserve")
        written = [file for file in plane.home.iterdir() if file.is_file() and not file.name.startswith(others)]
        assert sum(file.stat().st_size for file in written) < 10_000


# --- idempotency -----------------------------------------------------------------------------------------------------


def test_a_retry_sent_twenty_times_with_one_key_is_one_job(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane, ThreadPoolExecutor(8) as threads:
        client = plane.client()
        job, other = plane.submit("true"), plane.submit("true")
        plane.ended(job)
        plane.ended(other)
        key = {"Idempotency-Key": "lost-answer"}
        asked = [threads.submit(client.post, f"/v1/jobs/{job}/retry", headers=key) for _ in range(20)]
        answers = [future.result(LIMIT_S) for future in asked]
        assert len({answer.json()["job"] for answer in answers}) == 1
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        assert len(client.get("/v1/jobs").json()["jobs"]) == 3
        plane.stop(signal.SIGKILL)
        plane.start()
        again = plane.client().post(f"/v1/jobs/{job}/retry", headers=key)
        assert (again.status_code, again.json()["job"]) == (200, answers[0].json()["job"])
        assert plane.client().post(f"/v1/jobs/{other}/retry", headers=key).status_code == 422
        assert plane.client().post(f"/v1/jobs/{job}/retry").status_code == 201

"""The commands against a real `penstock up`, as people type them. Each test's jobs have names of their own."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.client import Client
from penstock.cli.main import main
from tests.conftest import ROOT

PYTHON = sys.executable
Says = Callable[..., str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, no_leftovers: None) -> Iterator[Path]:  # noqa: ARG001 - goes after it
    """A Penstock that was started as people start it; this machine is its one site."""
    folder = tmp_path_factory.mktemp("home")
    server, _ = started(folder, "--port", "0")
    yield folder
    stopped(server)


@pytest.fixture(autouse=True, scope="module")
def no_leftovers() -> Iterator[None]:
    """A test that fails leaves no Penstock behind."""
    yield
    for server in STARTED:
        if server.poll() is None:
            server.kill()
            server.wait()


STARTED: list[subprocess.Popen[str]] = []


def started(folder: Path, *more: str) -> tuple[subprocess.Popen[str], str]:
    command = [PYTHON, "-m", "penstock.cli", "up", "--home", str(folder), "--trust-teams", "--json", *more]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PENSTOCK_HOME": str(folder)}
    )
    assert server.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1].rstrip() != "}":
        lines.append(server.stdout.readline())
        assert lines[-1], f"penstock up ended with {server.wait()}"
    return server, json.loads("".join(lines))["address"]


def stopped(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=60) == 0
    server.stdout.close()


@pytest.fixture
def says(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Says:
    """What a command prints. `code`: how it ends, 0 unless told otherwise; then what it complains of is said, too."""
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)

    def run(*args: str, code: int = 0) -> str:
        assert main(args) == code, capfd.readouterr().err
        captured = capfd.readouterr()
        return captured.out + (captured.err if code else "")

    return run


def shown(says: Says, *args: str) -> Any:
    return json.loads(says(*args, "--json"))


# --- running ---------------------------------------------------------------------------------------------------------


def test_a_job_may_be_named_as_its_home_job_is(says: Says) -> None:
    """`penstock why vision/b4` said "There is nothing at this address", and `why b4` that there is no such job."""
    says("run", "--name", "vision/b4", "--", "true")
    for name in ("b4", "vision/b4"):
        assert "Submitted" in says("why", name)
        assert shown(says, "job", name)["name"] == "vision/b4"
    assert "There is no job 'vision/b5'; 'penstock jobs' lists them." in says("why", "vision/b5", code=2)


def test_run_follows_the_job_and_ends_as_it_does(says: Says) -> None:
    program = "import time\nfor k in range(3): print('step', k, flush=True); time.sleep(0.05)"
    assert says("run", "--name", "follows", "--", PYTHON, "-c", program) == "step 0\nstep 1\nstep 2\n"
    slow_failure = "import time; time.sleep(0.2); raise SystemExit(3)"
    assert " failed: exit code 3." in says("run", "--", PYTHON, "-c", slow_failure, code=1)
    failed = shown(says, "jobs", "--state", "failed")["jobs"][0]["id"]
    assert "exit code 3" in says("job", failed)
    refused = says("run", "--gpus", "99", "--name", "w", "--", "true", code=6)
    assert refused.count("Refused: it needs 99 GPUs at once") == 1
    assert refused.rstrip().endswith(" refused.")


def test_run_happens_where_it_is_typed(says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = "import os, time; print(os.getcwd(), os.environ['LR']); time.sleep(0.2)"
    assert says("run", "--env", "LR=0.1", "--", PYTHON, "-c", program) == f"{tmp_path} 0.1\n"


def test_options_after_the_command_are_the_commands_own(says: Says) -> None:
    program = "import sys, time; print(sys.argv[1:]); time.sleep(0.2)"
    assert says("run", "--", PYTHON, "-c", program, "--gpus", "8", "-h") == "['--gpus', '8', '-h']\n"


def test_a_job_file_is_submitted_and_shown_everywhere(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"name: from-file\nteam: vision\ngpus: 1\ncommand: [{PYTHON}, -c, 'print(\"loss 0.1\")']\n")
    job = says("submit", str(file)).strip()
    assert says("logs", "-f", job) == "loss 0.1\n"
    assert says("logs", job) == "loss 0.1\n"
    assert shown(says, "logs", job)["text"] == "loss 0.1\n"
    job_row = shown(says, "job", job)
    assert (job_row["state"], job_row["team"], job_row["name"]) == ("succeeded", "vision", "from-file")
    assert f"job        {job} (from-file)" in says("job", job)
    assert job in says("jobs", "--team", "vision", "--state", "succeeded")
    assert job not in says("jobs", "--state", "queued", "--state", "running")
    assert job in says("jobs", "--phase", "done")  # as it was called before
    assert "from-file" in says("jobs", "-o", "wide", "--text", "from-file")
    assert yaml.safe_load(says("jobs", "-o", "yaml", "--text", "from-file"))["jobs"][0]["id"] == job
    assert "Submitted by vision: 1 GPU." in says("why", job)
    assert shown(says, "why", job)[-1]["text"] == "Succeeded."
    assert "Succeeded." in says("events", "--limit", "200", "--job", job)


def test_a_team_named_beside_the_file_pays_instead_of_the_files(says: Says, tmp_path: Path) -> None:
    """The option was once dropped without a word, and the file's team paid."""
    (tmp_path / "job.yaml").write_text("team: vision\ngpus: 1\ncommand: 'true'\n")
    assert (
        shown(says, "job", says("submit", str(tmp_path / "job.yaml"), "--team", "speech").strip())["team"] == "speech"
    )
    assert "--team" in says("submit", str(tmp_path / "job.yaml"), "--team", "x" * 500, code=2)


def test_the_same_key_is_one_job(says: Says, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("gpus: 1\ncommand: sleep 0.2\n")
    first = says("submit", str(tmp_path / "job.yaml"), "--key", "once")
    assert says("submit", str(tmp_path / "job.yaml"), "--key", "once") == first


def test_a_wrong_job_file_is_told_without_asking_anybody(
    says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text("gpus: 1\ncomand: true\n")
    monkeypatch.setenv("PENSTOCK_URL", "http://127.0.0.1:9")  # nobody is there
    stderr = says("submit", str(tmp_path / "job.yaml"), code=2)
    assert f"{tmp_path / 'job.yaml'}, line 2: unknown key 'comand'; did you mean 'command'?" in stderr


def test_jobs_are_cancelled_and_tried_again(says: Says) -> None:
    job = says("run", "--detach", "--", "sleep", "600").strip()
    assert says("cancel", job) == f"{job}: The job is stopping; it is cancelled once it has stopped.\n"
    says("logs", "-f", job)  # ends when the job has
    assert shown(says, "job", job)["state"] == "cancelled"
    again = says("retry", job).strip()
    assert shown(says, "job", again)["command"] == ["sleep", "600"]
    says("cancel", again)
    says("logs", "-f", again)
    assert "There is no job 'nobody'" in says("cancel", "nobody", code=2)
    assert "is cancelled; only a job that is starting or running can be moved." in says("move", job, "here/gpu", code=2)


def test_every_job_that_is_named_is_cancelled_or_told_why_not(says: Says) -> None:
    """`cancel j0 j1` of ended jobs named j0 only, and never asked for the ones after it."""
    ended, goes = (says("run", "--detach", "--", "sleep", text).strip() for text in ("0", "600"))
    says("logs", "-f", ended)
    told = says("cancel", ended, "nobody", goes, code=2)
    assert f"{goes}: The job is stopping" in told
    assert told.count(ended) == 1
    assert "There is no job 'nobody'" in told
    says("logs", "-f", goes)


# --- looking ---------------------------------------------------------------------------------------------------------


def test_places_money_and_plans_are_tables(says: Says) -> None:
    assert "here" in says("sites", "-o", "wide")
    offers = says("offers")
    assert "here/gpu" in offers
    assert "decides with" in offers  # owned GPUs are not weighed at their full price
    assert "If Penstock died now, at most $0.00 more would be spent." in says("exposure")
    assert says("costs").startswith(("Costs of 31 days", "Nothing was used."))
    assert shown(says, "plan", "--gpus", "1")["choices"][0]["offer"] == "here/gpu"


def test_a_plan_begins_with_what_why_says_afterwards(says: Says, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("gpus: 99\nrun_time: 1h\ncommand: 'true'\n")
    decision, run_time, *tables = says("plan", str(file)).splitlines()
    job = says("submit", str(file)).strip()
    assert decision == f"If submitted now: {shown(says, 'why', job)[-1]['text']}"
    assert run_time == "Run time 1 h, stated."
    assert "too wide" in "\n".join(tables)


def test_a_job_and_its_plan_say_what_becomes_of_its_deadline(says: Says, tmp_path: Path) -> None:
    """A missed deadline was shown nowhere: not in the plan, nor beside the job that had missed it."""
    file = tmp_path / "job.yaml"
    file.write_text(f"gpus: 1\nrun_time: 2h\ndeadline: 1h\npenalty_per_hour: 10\ncommand: [{PYTHON}, -c, '']\n")
    plan = says("plan", str(file))
    assert "is not expected to be met anywhere." in plan
    assert "1 h late, $10.00" in plan
    file.write_text(f"gpus: 1\ndeadline: 1s\ncommand: [{PYTHON}, -c, 'import time; time.sleep(1.1)']\n")
    job = says("submit", str(file)).splitlines()[0]
    says("logs", "-f", job)  # until it ends
    assert ", missed by " in says("job", job)


def test_caps_are_set_one_kind_at_a_time(says: Says) -> None:
    def caps() -> dict[str, Any]:
        scopes = shown(says, "budget")["scopes"]
        return next(
            ({"month": scope["cap"], "hour": scope["cap_per_hour"]} for scope in scopes if scope["scope"] == "team:x"),
            {},
        )

    says("budget", "--set", "team:x=50")
    assert caps() == {"month": 50_000_000, "hour": None}
    says("budget", "--per-hour", "team:x=2.50")
    assert caps() == {"month": 50_000_000, "hour": 2_500_000}
    assert "team:x" in says("budget", "-o", "wide")
    says("budget", "--unset", "team:x")
    assert not any(caps().values())
    assert "A cap is SCOPE=AMOUNT" in says("budget", "--set", "team:x", code=2)


def test_pause_resume_and_doctor(says: Says) -> None:
    assert says("pause") == "Paused: running jobs continue, and nothing new starts.\n"
    assert "paused; resume: penstock resume" in says("doctor", code=1)
    assert says("resume") == "Resumed: new starts are allowed again.\n"
    checks = {check["name"]: check["ok"] for check in shown(says, "doctor")}
    names = ("home", "token", "disk", "server", "version", "ready", "journal", "running", "site")
    assert checks == dict.fromkeys(names, True)


def test_tokens_see_their_team_only(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shown(says, "token", "make", "--team", "blind", "--days", "1")
    assert made["id"] in says("token", "list")
    monkeypatch.setenv("PENSTOCK_TOKEN", made["secret"])
    assert says("jobs") == "No jobs.\n"
    assert "This needs a token of role operator or admin, and yours is of role member." in says("pause", code=4)
    monkeypatch.delenv("PENSTOCK_TOKEN")
    assert says("token", "revoke", made["id"]) == f"{made['id']} is revoked.\n"
    monkeypatch.setenv("PENSTOCK_TOKEN", made["secret"])
    assert "A token is needed" in says("jobs", code=4)


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_nobody_there_is_exit_code_3(says: Says, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "start it: penstock up" in says("jobs", "--url", "http://127.0.0.1:9", code=3)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    assert "No Penstock runs on this machine" in says("jobs", code=3)
    assert "No Penstock runs on this machine" in says("doctor", code=1)


def test_a_token_that_others_can_read_is_not_used(says: Says, home: Path, tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("token", "address"):
        (tmp_path / name).write_text((home / name).read_text())
    (tmp_path / "token").chmod(0o644)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    assert f"chmod 600 {tmp_path / 'token'}" in says("jobs", code=4)


def test_a_server_that_is_no_penstock_is_said_so(says: Says) -> None:
    import http.server
    import threading

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stderr = says("jobs", "--url", f"http://127.0.0.1:{server.server_port}", code=2)
        server.shutdown()
    assert "answered 404, and not as a Penstock does" in stderr


def test_a_taken_port_is_one_sentence(says: Says, home: Path, tmp_path: Path) -> None:
    port = (home / "address").read_text().strip().rpartition(":")[2]
    stderr = says("up", "--home", str(tmp_path / "other"), "--port", port, code=2)
    assert f"Cannot listen on 127.0.0.1 port {port}" in stderr
    assert "choose another with --port" in stderr


def test_a_log_is_followed_through_a_restart_of_penstock(tmp_path: Path) -> None:
    """The job prints numbered lines while Penstock is killed and comes back; each is there once."""
    home = tmp_path / "home"
    server, address = started(home, "--port", "0")
    port = address.rpartition(":")[2]
    env = os.environ | {"PENSTOCK_HOME": str(home)}
    go = tmp_path / "go"
    program = f"""
import os, time
print("line 0", flush=True)
while not os.path.exists({str(go)!r}): time.sleep(0.02)
for k in range(1, 50): print("line", k, flush=True)
"""
    command = [PYTHON, "-m", "penstock.cli", "run", "--", PYTHON, "-c", program]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert follower.stdout is not None
    assert server.stdout is not None
    assert follower.stdout.readline() == "line 0\n"
    server.kill()
    server.wait()
    server.stdout.close()
    go.touch()
    server, _ = started(home, "--port", port)
    assert follower.stdout.read() == "".join(f"line {k}\n" for k in range(1, 50))
    assert follower.wait(timeout=60) == 0
    follower.stdout.close()
    stopped(server)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_PENSTOCK_COMPLETE" in capfd.readouterr().out


# --- a command where a job runs --------------------------------------------------------------------------------------

WAITS = "import time; print('runs', flush=True); time.sleep(600)"


@pytest.fixture
def runs(says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A job in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    job = says("run", "--detach", "--env", "LR=0.1", "--", PYTHON, "-c", WAITS).strip()
    with Client()._session as http:  # outside of a command nobody else closes it
        assert any(http.get(f"/v1/jobs/{job}/log", params={"wait": 20}).content for _ in range(6)), says("why", job)
    yield job
    says("cancel", job)
    says("logs", "-f", job)


def executed(home: Path, *args: str, typed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [PYTHON, "-m", "penstock.cli", "exec", *args]
    env = os.environ | {"PENSTOCK_HOME": str(home)}
    return subprocess.run(command, input=typed, capture_output=True, timeout=60, env=env, check=False)


def test_a_command_has_the_jobs_folder_and_environment_and_its_own_exit_code(
    runs: str, home: Path, tmp_path: Path
) -> None:
    done = executed(home, runs, "--", "sh", "-c", "pwd; echo $LR $PENSTOCK_JOB; echo oh >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path}\n0.1 {runs}\n".encode(), b"oh\n")
    assert executed(home, runs, "--", "sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL


def test_what_is_piped_in_is_read_to_its_end_and_comes_back_to_the_byte(runs: str, home: Path) -> None:
    typed = os.urandom(3_000_000)
    done = executed(home, runs, "--", "cat", typed=typed)
    assert (done.returncode, done.stdout == typed) == (0, True)


def test_a_command_that_is_not_there_and_a_job_that_does_not_run_are_said_so(runs: str, home: Path, says: Says) -> None:
    done = executed(home, runs, "--", "no-such-program")
    assert (done.returncode, b"'no-such-program' could not be started" in done.stderr) == (2, True)
    assert b"one process, of rank 0" in executed(home, runs, "--rank", "1", "--", "true").stderr
    assert "There is no job 'none'" in says("exec", "none", "--", "true", code=2)
    says("run", "--name", "over", "--", "true")
    over = shown(says, "jobs", "--text", "over")["jobs"][0]["id"]
    assert "is not running, but succeeded; `exec` needs a running job." in says("exec", over, "--", "true", code=2)


def test_on_a_terminal_there_is_one_of_the_same_size_and_control_c_is_the_commands(runs: str, home: Path) -> None:
    import pty

    program = "import os, sys\nprint(sys.stdin.isatty(), os.get_terminal_size())\ninput()"
    pid, terminal = pty.fork()
    if not pid:
        os.environ["PENSTOCK_HOME"] = str(home)
        os.execv(PYTHON, [PYTHON, "-m", "penstock.cli", "exec", runs, "--", PYTHON, "-c", program])
    try:
        seen = b""
        while b"lines=" not in seen or b")" not in seen.partition(b"lines=")[2]:
            seen += os.read(terminal, 1000)
        assert b"True" in seen
        os.write(terminal, b"\x03")
        while b"KeyboardInterrupt" not in seen:
            seen += os.read(terminal, 1000)
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGINT


def test_the_backup_of_a_running_control_plane_is_whole(says: Says, home: Path, tmp_path: Path) -> None:
    """No page said how to make one; a copy of the file alone lacks what SQLite keeps beside it."""
    says("run", "--name", "kept", "--", "true")
    (statement,) = re.findall(r"<!-- backup -->\n```sql\n(.*)\n```", (ROOT / "docs" / "install.md").read_text("utf-8"))
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(home / "journal.db")) as journal:
        journal.execute(statement.replace("backup.db", str(backup)))
    assert says("journal", "verify", str(backup)).startswith("Whole: ")
    job = shown(says, "jobs", "--state", "succeeded")["jobs"][0]["id"]
    assert "Succeeded." in says("why", job, "--journal", str(backup))

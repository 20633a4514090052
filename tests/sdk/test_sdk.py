"""What a job can rely on: a checkpoint is whole or not there, and a signal is heard."""

import importlib.metadata
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import sdk
from penstock.devcluster import s3_server
from penstock.sdk.checkpoints import BlobStore, BucketBlobs, CheckpointStore, FolderBlobs, place
from penstock.sdk.plain_s3 import PlainBucket
from tests.conftest import Part


@pytest.fixture(params=["folder", "bucket", "bucket without obstore"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "folder":
        yield (tmp_path / "with space").as_uri()
        return
    if request.param == "bucket without obstore":
        monkeypatch.setattr("importlib.metadata.version", no_package)
    program = s3_server.program_path()
    if program is None:
        pytest.skip(Part.S3)
    with s3_server.S3Server(program, tmp_path / "s3") as server:
        for name, value in server.store.access.items():
            monkeypatch.setenv(name, value)
        yield server.store.ready("lab", "a/b %é", "x.1", "")["PENSTOCK_CHECKPOINT_URL"]


def no_package(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


class Dying:
    """A place whose owner is killed after so many files."""

    def __init__(self, place: BlobStore, lives: int) -> None:
        self.place, self.lives = place, lives
        self.blocks, self.names, self.delete = place.blocks, place.names, place.delete

    def put(self, name: str, what: bytes | Path) -> None:
        if self.lives == 0:
            raise KeyboardInterrupt
        self.lives -= 1
        self.place.put(name, what)


def test_bytes_a_file_and_a_folder_come_back_as_they_were(url: str, tmp_path: Path) -> None:
    shelf = CheckpointStore(place(url))
    assert shelf.latest() is None
    shelf.save(1, b"weights")
    checkpoint = shelf.latest()
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.read()) == (1, b"weights")
    (tmp_path / "made" / "deep").mkdir(parents=True)
    (tmp_path / "made" / "deep" / "optimizer").write_bytes(os.urandom(3_000_000))
    (tmp_path / "made" / "model").write_text("m")
    shelf.save(2, tmp_path / "made")
    checkpoint = shelf.latest()
    assert checkpoint is not None
    back = checkpoint.to(tmp_path / "back")
    assert (back / "deep" / "optimizer").read_bytes() == (tmp_path / "made" / "deep" / "optimizer").read_bytes()
    assert (back / "model").read_text() == "m"
    shelf.save(3, tmp_path / "made" / "model")
    checkpoint = shelf.latest()
    assert checkpoint is not None
    assert checkpoint.read() == b"m"


def test_with_and_without_obstore_it_is_the_same_bucket(url: str) -> None:
    if not url.startswith("s3:"):
        return
    where = ("checkpoints", url.removeprefix("s3://checkpoints/"))
    fast, plain = BucketBlobs(f"s3://{where[0]}", where[1]), PlainBucket(*where)
    fast.put("a/one é", b"1")
    plain.put("a/two ~+", b"2")
    assert sorted(fast.names()) == sorted(plain.names()) == ["a/one é", "a/two ~+"]
    assert [b"".join(plain.blocks("a/one é")), b"".join(fast.blocks("a/two ~+"))] == [b"1", b"2"]
    plain.delete("a/one é")
    assert fast.names() == ["a/two ~+"]


def test_an_obstore_that_escapes_names_twice_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job brings its own packages. With obstore 0.9 a job whose name has a space began anew at every site."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.9.3")
    assert isinstance(place("s3://bucket/x"), PlainBucket)
    with pytest.raises(ImportError, match=r"gs:// needs obstore 0\.10 or newer: pip install 'obstore>=0\.10'"):
        place("gs://bucket/x")


def test_a_bucket_that_refuses_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not url.startswith("s3:"):
        return
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(OSError, match="answers 403 to PUT x/y"):
        PlainBucket("checkpoints", "x").put("y", b"1")


@pytest.mark.parametrize("lives", [0, 1, 2])
def test_a_checkpoint_cut_short_at_any_file_is_never_seen(url: str, tmp_path: Path, lives: int) -> None:
    whole = place(url)
    CheckpointStore(whole).save(1, b"one")
    for name in ("a", "b"):
        (tmp_path / "made" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "made" / name).write_text("two")
    with pytest.raises(KeyboardInterrupt):
        CheckpointStore(Dying(whole, lives)).save(2, tmp_path / "made")
    checkpoint = CheckpointStore(whole).latest()
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.read()) == (1, b"one")
    CheckpointStore(whole).keep(2)
    assert len(whole.names()) == 2  # one manifest, one file: what was cut short is cleared away


def test_the_newest_are_kept_and_the_same_step_may_be_saved_again(url: str) -> None:
    shelf = CheckpointStore(place(url))
    for step in (9, 10, 11, 11):
        shelf.save(step, f"{step}".encode())
        shelf.keep(2)
    assert sorted(name for name in shelf.place.names() if name.endswith(".json")) == [
        "step-000000000010.json",
        "step-000000000011.json",
    ]
    checkpoint = shelf.latest()
    assert checkpoint is not None
    assert checkpoint.read() == b"11"


def test_a_damaged_file_is_an_error_and_never_a_model(tmp_path: Path) -> None:
    shelf = CheckpointStore(FolderBlobs(tmp_path))
    shelf.save(1, b"weights")
    (victim,) = tmp_path.glob("step-*/checkpoint")
    victim.write_bytes(b"weighty")
    checkpoint = shelf.latest()
    assert checkpoint is not None
    with pytest.raises(sdk.Damaged, match="step 1 is damaged"):
        checkpoint.read()


def test_an_empty_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to save"):
        CheckpointStore(FolderBlobs(tmp_path / "kept")).save(1, tmp_path)


PROGRAM = """
import os, signal
from penstock import sdk
assert not sdk.stopping()
assert not sdk.due(every_s=600)
os.kill(os.getpid(), signal.SIGTERM)
assert sdk.stopping()
assert sdk.due(every_s=600)
sdk.progress(3, of=4)
sdk.progress(4)
sdk.save(3, b"x")
print(sdk.latest().step, sdk.attempt(), sdk.resuming())
"""


def run(tmp_path: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_job_reports_to_its_file_and_hears_the_signal(tmp_path: Path) -> None:
    report = tmp_path / "report"
    url = (tmp_path / "kept").as_uri()
    stdout = run(
        tmp_path,
        PENSTOCK_REPORT=str(report),
        PENSTOCK_CHECKPOINT_URL=url,
        PENSTOCK_ATTEMPT="job.2",
        PENSTOCK_RESUME="1",
    )
    assert stdout == "3 job.2 True\n"
    assert report.read_text() == "penstock: step 3 of 4\npenstock: step 4\npenstock: checkpoint step 3\n"
    assert not (tmp_path / "checkpoints").exists()


def test_the_same_script_runs_without_penstock(tmp_path: Path) -> None:
    lines = run(tmp_path).splitlines()
    assert lines == ["penstock: step 3 of 4", "penstock: step 4", "penstock: checkpoint step 3", "3  False"]
    assert len(list((tmp_path / "checkpoints").glob("step-*.json"))) == 1


def test_the_sdk_needs_the_standard_library_only() -> None:
    program = "import sys; before = set(sys.modules); from penstock import sdk; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    others = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names
    assert others == {"penstock"}


def test_a_handler_that_was_there_before_is_called_as_well() -> None:
    before = signal.getsignal(signal.SIGTERM)
    program = """
import os, signal
from penstock import sdk
signal.signal(signal.SIGTERM, lambda *_: print("mine"))
sdk.stopping()
os.kill(os.getpid(), signal.SIGTERM)
print(sdk.stopping())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "mine\nTrue\n"
    assert signal.getsignal(signal.SIGTERM) is before  # here nobody listens


@pytest.mark.parametrize("wrong", ["x", None, 1.5, [1]])
def test_a_step_that_is_no_number_is_told_in_a_sentence(
    wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`save("x", ...)` ended in "Unknown format code 'd' for object of type 'str'"."""
    monkeypatch.setenv("PENSTOCK_CHECKPOINT_URL", tmp_path.as_uri())
    of: Any = "" if wrong is None else wrong
    for call in (partial(sdk.save, wrong, b"weights"), partial(sdk.progress, wrong), partial(sdk.progress, 1, of=of)):
        with pytest.raises(TypeError, match=r"penstock.sdk: (step|of) is a whole number, not "):
            call()
    with pytest.raises(ValueError, match="step counts from 0, and is -1"):
        sdk.save(-1, b"weights")
    assert list(tmp_path.iterdir()) == []


def test_more_steps_than_there_are_is_a_warning_and_no_end_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_REPORT", str(tmp_path / "report"))
    with pytest.warns(UserWarning, match="step 5 is beyond of=3"):
        sdk.progress(5, of=3)
    sdk.progress(3, of=3)
    assert (tmp_path / "report").read_text() == "penstock: step 5\npenstock: step 3 of 3\n"

"""Folders of checkpoints: copied, never shared, never half seen. Moves between real sites are in tests/contract."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data import checkpoints
from penstock.data.checkpoints import BucketStore, FolderStore, JobCheckpoints, safe_name

NAMES = st.one_of(st.text(max_size=300), st.sampled_from([".", "..", "a/b", "a%2Fb", "~", "", "x" * 400, "x" * 401]))


@given(NAMES, NAMES)
def test_every_name_becomes_one_plain_file_name_of_its_own(name: str, other: str) -> None:
    safe = safe_name(name)
    assert len(safe.encode()) <= 180
    assert safe not in ("", ".", "..")
    assert not set(safe) & set("/\0\n\\ *?")
    assert (safe == safe_name(other)) == (name == other)


def two_sites(tmp_path: Path) -> FolderStore:
    return FolderStore({name: tmp_path / name for name in ("home", "away")})


def left(store: FolderStore, site: str, text: str) -> None:
    (JobCheckpoints(store.folders[site], "job").files / "model").write_text(text)


def there(store: FolderStore, site: str) -> str:
    return (JobCheckpoints(store.folders[site], "job").files / "model").read_text()


def test_a_first_attempt_has_an_empty_place_and_nothing_to_resume(tmp_path: Path) -> None:
    env = two_sites(tmp_path).ready("home", "job", "job.1", "")
    assert env == {
        "PENSTOCK_CHECKPOINT_URL": (tmp_path / "home" / "job" / "files").as_uri(),
        "PENSTOCK_RESUME": "",
    }


def test_what_comes_along_is_a_copy(tmp_path: Path) -> None:
    store = two_sites(tmp_path)
    store.ready("home", "job", "job.1", "")
    left(store, "home", "one")
    assert store.ready("away", "job", "job.2", "job.1")["PENSTOCK_RESUME"] == "1"
    left(store, "away", "two")
    assert (there(store, "home"), there(store, "away")) == ("one", "two")


def test_what_came_back_replaces_what_was_left_there_before(tmp_path: Path) -> None:
    store = two_sites(tmp_path)
    store.ready("home", "job", "job.1", "")
    left(store, "home", "old")
    store.ready("away", "job", "job.2", "job.1")
    left(store, "away", "new")
    store.ready("home", "job", "job.3", "job.2")
    assert there(store, "home") == "new"
    assert sorted(path.name for path in (tmp_path / "home" / "job").iterdir()) == ["attempt", "files", "lock"]


def test_told_twice_it_brings_nothing_twice(tmp_path: Path) -> None:
    """The second telling comes after the attempt may have written a checkpoint of its own."""
    store = two_sites(tmp_path)
    store.ready("home", "job", "job.1", "")
    left(store, "home", "one")
    store.ready("away", "job", "job.2", "job.1")
    left(store, "away", "two")
    store.ready("away", "job", "job.2", "job.1")
    assert there(store, "away") == "two"


def test_told_many_times_at_once_it_brings_it_once(tmp_path: Path) -> None:
    store = two_sites(tmp_path)
    store.ready("home", "job", "job.1", "")
    left(store, "home", "one")
    with ThreadPoolExecutor(8) as threads:
        futures = [threads.submit(store.ready, "away", "job", "job.2", "job.1") for _ in range(40)]
    assert {future.result()["PENSTOCK_RESUME"] for future in futures} == {"1"}
    assert there(store, "away") == "one"


def test_a_copy_that_broke_off_is_not_seen_and_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = two_sites(tmp_path)
    store.ready("home", "job", "job.1", "")
    left(store, "home", "one")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "copy_tree", _half)
        with pytest.raises(OSError, match="no space"):
            store.ready("away", "job", "job.2", "job.1")
    assert not JobCheckpoints(tmp_path / "away", "job").files.exists()
    store.ready("away", "job", "job.2", "job.1")
    assert there(store, "away") == "one"


def _half(source: Path, target: Path, _uid: int) -> None:
    (target / "model").write_text((source / "model").read_text()[:1])
    raise OSError("no space left on device")


def test_if_nobody_has_it_the_job_begins_again(tmp_path: Path) -> None:
    assert two_sites(tmp_path).ready("home", "job", "job.2", "job.1")["PENSTOCK_RESUME"] == ""


def test_a_bucket_is_one_place_for_all_sites_and_attempts(tmp_path: Path) -> None:
    store = BucketStore("s3://kept/here/", {"AWS_REGION": "eu-central-1"})
    at_home, away = (
        store.ready(site, "a/b", f"a/b.{k}", "" if k == 1 else "a/b.1") for k, site in ((1, "home"), (2, "away"))
    )
    assert at_home == {
        "AWS_REGION": "eu-central-1",
        "PENSTOCK_CHECKPOINT_URL": "s3://kept/here/a%2Fb",
        "PENSTOCK_RESUME": "",
    }
    assert away == {**at_home, "PENSTOCK_RESUME": "1"}
    assert not any(tmp_path.iterdir())


def test_only_what_jobs_left_that_are_over_is_swept_away(tmp_path: Path) -> None:
    store = two_sites(tmp_path)
    for site, job in (("home", "job"), ("away", "job"), ("home", "sweep/7"), ("home", "x" * 400)):
        store.ready(site, job, f"{job}.1", "")
    assert store.sweep(lambda _: False) == []
    assert store.sweep(lambda job: job in ("job", "x" * 400)) == ["job", "x" * 400, "job"]
    assert [shelf.parent.name for shelf in tmp_path.glob("*/*/files")] == [safe_name("sweep/7")]
    assert store.ready("home", "job", "job.2", "job.1")["PENSTOCK_RESUME"] == ""

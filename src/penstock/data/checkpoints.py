"""How a job's checkpoints come to the site where it runs next. Drivers ask before they start an attempt.

Sites share no file system. With an object store every site reads and writes the same bucket, and nothing is moved
here; without one each site has a folder of its own, and what an earlier attempt left at another site is copied.
What a job sees of this is in docs/checkpoints.md.

Where jobs have users of their own, a job owns its files here and nothing around them, and what is copied is copied by
its user: we never follow what a job has written.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from penstock.core.ids import attempt_number, job_of
from penstock.data.plain_files import PLAIN, DamagedFile, copy_tree, read_plain, remove_tree, wait_for_lock

LONGEST_ID: Final = 4096
LONGEST: Final = 180  #: a file name has 255 bytes at most, and others add to this one


class Store(Protocol):
    def ready(self, site: str, job: str, attempt: str, earlier: str) -> dict[str, str]:
        """Bring what `earlier` left, and say in environment variables where the attempt finds it and writes to.

        Told twice it does the same. It may take long, and blocks. `OSError`: not now, again later.
        """

    def sweep(self, over: Callable[[str], bool]) -> list[str]:
        """Remove what jobs left that are `over` for good, and name them. It may take long, and blocks."""


class FolderStore:
    """A folder for each site. What is copied is never shared: each site writes only to its own. `user_of`: a job's own
    user; 0 where jobs run as ours.
    """

    def __init__(self, folders: Mapping[str, Path], user_of: Callable[[str], int] = lambda _: 0) -> None:
        self.folders, self.user_of = dict(folders), user_of

    def add(self, site: str, folder: Path) -> None:
        """Another site's, from now on. Others may be reading the folders at this instant."""
        self.folders = {**self.folders, site: folder}

    def ready(self, site: str, job: str, attempt: str, earlier: str) -> dict[str, str]:
        store = JobCheckpoints(self.folders[site], job, self.user_of(job))
        with store.locked():  # two who are told at once bring it once
            if store.attempt != attempt:
                self._bring(store, job, earlier)
                store.belongs_to(attempt)
            store.make_files()
        resume = "1" if earlier and any(store.files.iterdir()) else ""
        return {"PENSTOCK_CHECKPOINT_URL": store.files.absolute().as_uri(), "PENSTOCK_RESUME": resume}

    def sweep(self, over: Callable[[str], bool]) -> list[str]:
        kept = [store for folder in self.folders.values() for store in sorted(folder.glob("*/attempt"))]
        left = [(path.parent, job_of(attempt)) for path in kept if (attempt := _attempt_in(path))]
        swept = [(folder, job) for folder, job in left if over(job)]
        for folder, _ in swept:
            remove_tree(folder)
        return [job for _, job in swept]

    def _bring(self, store: "JobCheckpoints", job: str, earlier: str) -> None:
        source = self._left_by(earlier, job) if earlier else None
        if source is not None and source.folder != store.folder:
            store.replace_by(source)

    def _left_by(self, earlier: str, job: str) -> "JobCheckpoints | None":
        """Where that attempt ran; if it wrote nothing there is a copy of what it began with, so the newest will do."""
        shelves = [JobCheckpoints(folder, job) for folder in self.folders.values()]
        written = [store for store in shelves if store.attempt]
        return max(written, key=lambda store: (store.attempt == earlier, attempt_number(store.attempt)), default=None)


class JobCheckpoints:
    """One job's checkpoints at one site: `files` is what the job sees, `attempt` says whose they are."""

    def __init__(self, folder: Path, job: str, uid: int = 0) -> None:
        self.folder, self.uid = folder / safe_name(job), uid
        self.files = self.folder / "files"

    @contextmanager
    def locked(self) -> Iterator[None]:
        mode = 0o711 if self.uid else 0o700  # its user may pass through, and not look around
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(parents=True, exist_ok=True, mode=mode)
            folder.chmod(mode)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | PLAIN, 0o600)
        try:
            wait_for_lock(lock, str(self.folder / "lock"))
            yield
        finally:
            os.close(lock)

    @property
    def attempt(self) -> str:
        return _attempt_in(self.folder / "attempt")

    def belongs_to(self, attempt: str) -> None:
        """Written last: until then the next try brings everything again."""
        self.make_files()
        aside = self.folder / "attempt.new"
        aside.unlink(missing_ok=True)
        aside.write_text(attempt, "utf-8")
        aside.replace(self.folder / "attempt")

    def make_files(self) -> None:
        if not self.files.exists():
            self._make(self.files)

    def replace_by(self, other: "JobCheckpoints") -> None:
        """A copy beside, then renamed into place: a job never sees half of it."""
        aside = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            aside.chmod(0o711 if self.uid else 0o700)
            self._make(aside / "new")
            copy_tree(other.files, aside / "new", self.uid)
            if self.files.exists():
                self.files.rename(aside / "old")
            (aside / "new").rename(self.files)
        finally:
            remove_tree(aside)

    def _make(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        if self.uid:
            os.chown(folder, self.uid, self.uid, follow_symlinks=False)


def _attempt_in(path: Path) -> str:
    """The attempt that this file names; empty if there is none, or nothing that we wrote."""
    try:
        return read_plain(str(path), LONGEST_ID).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError, DamagedFile, UnicodeDecodeError):
        return ""


class BucketStore:
    """An object store that all sites reach. `access` is what a client needs to get in, as environment variables."""

    def __init__(self, url: str, access: Mapping[str, str] | None = None) -> None:
        self.url, self.access = url.rstrip("/"), dict(access or {})

    def ready(self, site: str, job: str, attempt: str, earlier: str) -> dict[str, str]:  # noqa: ARG002 - all sites, all attempts of a job: one place
        return {
            **self.access,
            "PENSTOCK_CHECKPOINT_URL": f"{self.url}/{safe_name(job)}",
            "PENSTOCK_RESUME": "1" if earlier else "",
        }

    def sweep(self, over: Callable[[str], bool]) -> list[str]:  # noqa: ARG002 - nothing is for us to decide there
        """A bucket has rules of its own for what is old, and may be somebody else's."""
        return []


class NoStore:
    """Nothing that this site's jobs could reach: each attempt begins again, unless the job sees to itself."""

    def ready(self, site: str, job: str, attempt: str, earlier: str) -> dict[str, str]:  # noqa: ARG002 - there is no place
        return {"PENSTOCK_RESUME": ""}

    def sweep(self, over: Callable[[str], bool]) -> list[str]:  # noqa: ARG002 - there is nothing
        return []


def safe_name(name: str) -> str:
    """A file name for any id: readable where it can be, never a path, never two ids with one name."""
    quoted = quote(name, safe="", errors="surrogatepass").replace("~", "%7E")
    quoted = "%2E" + quoted[1:] if quoted.startswith(".") else quoted
    # The tilde, which no quoted name has, keeps shortened names apart from all others.
    return (
        quoted
        if 0 < len(quoted) <= LONGEST
        else f"{quoted[:100]}~{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    )


def store_of(folders: Mapping[str, Path], user_of: Callable[[str], int] = lambda _: 0) -> Store:
    """A bucket that all sites reach, if the environment names one; otherwise a folder in each site's own."""
    return bucket() or FolderStore({site: folder / "checkpoints" for site, folder in folders.items()}, user_of)


def bucket(secret: str = "") -> Store | None:
    """The bucket that the environment names. Its credentials go along, unless a `secret` at the site has them."""
    url = os.environ.get("PENSTOCK_CHECKPOINTS")
    return BucketStore(url, {} if secret else {name: os.environ[name] for name in handed_out()}) if url else None


def handed_out() -> tuple[str, ...]:
    """Variables of our own environment that jobs see to reach the bucket, where no Secret at the site has them."""
    named = bool(os.environ.get("PENSTOCK_CHECKPOINTS"))
    return tuple(sorted(name for name in os.environ if named and name.startswith("AWS_")))

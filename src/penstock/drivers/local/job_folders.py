"""What a local site's jobs may enter and write: their working directories, their reports, the copied data sets.
`LocalStore` calls it.

Where jobs run as our own user this is in the site's folder. Where each has a user of its own it is elsewhere, since
nobody but us may enter the site's folder: jobs may pass through and not look around, and a job owns two folders.
"""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from penstock.data.checkpoints import safe_name
from penstock.data.plain_files import remove_tree
from penstock.drivers.driver import Refused
from penstock.drivers.local import isolation


class JobFolders:
    def __init__(self, site: str, installation: str, folder: Path, isolated: bool) -> None:
        self.site, self.installation, self.folder, self.isolated = site, installation, folder.absolute(), isolated
        self.mode = 0o711 if isolated else 0o700

    def make(self) -> None:
        """Make the folders; `Refused` if no other user could come to them."""
        for folder in (*reversed(self.folder.parents), self.folder, self.folder / "jobs", self.folder / "data"):
            if not folder.exists():
                _make_whole(folder, self.mode)
        for folder in self.folder.parents:
            if self.isolated and (why := _unfit(folder.stat())):
                raise Refused(
                    f"Jobs of site {self.site} have users of their own, and {folder} {why}: name another folder with"
                    " 'folder' under 'local' in the sites file, or start penstock up with --trust-teams."
                )

    def of(self, name: str) -> Path:
        """The folder of the attempt whose own folder has this name."""
        return self.folder / "jobs" / name

    def make_for(self, name: str, uid: int) -> None:
        """Ours, so that the job can put nothing in the report's place; only two folders in it are the job's."""
        folder = self.of(name)
        folder.mkdir(exist_ok=True, mode=self.mode)
        folder.chmod(self.mode)
        for part in ("work", "tmp"):
            (folder / part).mkdir(exist_ok=True, mode=0o700)
            if uid:
                os.chown(folder / part, uid, uid, follow_symlinks=False)
        (folder / "report").unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        remove_tree(self.of(name))

    def uid(self, job: str) -> int:
        """The job's own user; 0: it runs as ours."""
        return isolation.uid_of(self.installation, job) if self.isolated else 0

    def variables(self, name: str, passed_on: Iterable[str]) -> dict[str, str]:
        """Variables that are not the job's own: some of ours, by name. Another user has a home of its own."""
        ours = {variable: os.environ[variable] for variable in passed_on if variable in os.environ}
        folder = self.of(name)
        own = {"HOME": str(folder / "work"), "TMPDIR": str(folder / "tmp")} if self.isolated else {}
        return ours | own | {"PENSTOCK_REPORT": str(folder / "report"), "PENSTOCK_DATA": str(self.folder / "data")}

    def bring_data(self, data_set: str, source: str) -> None:
        """Copy a data set once: for all jobs of the site. The caller holds the site's lock."""
        target = self.folder / "data" / safe_name(data_set)
        if not target.exists():
            aside = target.with_name(target.name + ".new")
            remove_tree(aside)
            shutil.copytree(source, aside)
            if self.isolated:
                _let_read(aside)
            aside.rename(target)


def _make_whole(folder: Path, mode: int) -> None:
    """Make it with this mode, whatever the umask: whoever makes the same one at this moment never meets another mode,
    and would take it for somebody's who has closed it.
    """
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}.", dir=folder.parent))
    aside.chmod(mode)
    try:
        aside.rename(folder)  # over an empty one of the same kind, if somebody was quicker
    except OSError as error:
        aside.rmdir()
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _unfit(folder: os.stat_result) -> str:
    """Why jobs cannot have their folders below this one; empty if they can."""
    if not folder.st_mode & stat.S_IXOTH:
        return "is closed to them"
    shared = folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX
    return "can be changed by others than root" if shared or folder.st_uid != 0 else ""


def _let_read(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))

"""A checkpoint comes along when a job moves from site to site, through a bucket or by a copy from folder to folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.model import events as e
from penstock.data.checkpoints import FolderStore, Store
from penstock.devcluster import s3_server
from penstock.drivers.driver import Unreachable
from penstock.drivers.local.driver import LocalDriver
from penstock.drivers.records import read
from tests.awaiting import story
from tests.conftest import Part
from tests.contract.kit import LocalGround, Watch, opened, python, site, start

TRAINING = """
import time
from penstock import sdk
found = sdk.latest()
first = int(found.read()) if found else 0
print("from", first, "resuming", sdk.resuming(), flush=True)
for step in range(first, 2000):
    time.sleep(0.005)
    sdk.progress(step + 1, of=2000)
    if sdk.due(every_s=0.2):
        sdk.save(step + 1, str(step + 1).encode())
    if sdk.stopping():
        break
"""


@pytest.fixture(params=["folders", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "folders":
        yield FolderStore({name: tmp_path / name / "checkpoints" for name in ("home", "away")})
        return
    program = s3_server.program_path()
    if program is None:
        pytest.skip(Part.S3)
    with s3_server.S3Server(program, tmp_path / "s3") as server:
        yield server.store


def ground(tmp_path: Path, store: Store, name: str) -> LocalGround:
    made = LocalGround(tmp_path / name, store)
    made.site = type(made.site)(name, site().offers)
    return made


async def kept(lab: Watch, attempt: str) -> int:
    """The step that it wrote a checkpoint of, once it has."""
    await lab.hears(e.AttemptCheckpointed, attempt)
    await lab.driver.stop(attempt, 30_000)
    await lab.hears(e.AttemptStopped, attempt)
    assert isinstance(lab.driver, LocalDriver)
    folder = lab.driver.disk.attempt(attempt)
    return int(read(f"{folder}/ended.json")["marks"]["checkpoint_step"])


@story
async def test_a_job_goes_on_at_another_site_where_it_stopped_and_comes_home(tmp_path: Path, store: Store) -> None:
    steps = []
    earlier = ""
    for number, name in ((1, "home"), (2, "away"), (3, "home")):
        async with opened(ground(tmp_path, store, name)) as lab:
            ask = start("some/job", number, earlier=earlier)
            await lab.driver.start(ask, python(TRAINING))
            steps.append(await kept(lab, ask.attempt))
            (said,) = (await lab.driver.log(ask.attempt, 0, 1000))[0].decode().splitlines()
            before = steps[-2] if number > 1 else 0
            assert said == f"from {before} resuming {number > 1}"
            earlier = ask.attempt
    assert 0 < steps[0] < steps[1] < steps[2]


@story
async def test_an_attempt_that_wrote_nothing_passes_on_what_it_began_with(tmp_path: Path, store: Store) -> None:
    async with opened(ground(tmp_path, store, "home")) as lab:
        await lab.driver.start(start("job", 1), python(TRAINING))
        first = await kept(lab, "job.1")
    async with opened(ground(tmp_path, store, "away")) as lab:
        await lab.driver.start(start("job", 2, earlier="job.1"), python("print('nothing')"))
        await lab.hears(e.AttemptEnded, "job.2")
    async with opened(ground(tmp_path, store, "home")) as lab:
        await lab.driver.start(start("job", 3, earlier="job.2"), python(TRAINING))
        await kept(lab, "job.3")
        assert (await lab.driver.log("job.3", 0, 100))[0].decode().startswith(f"from {first} ")


@story
async def test_a_checkpoint_that_cannot_be_brought_now_is_asked_for_again_later(tmp_path: Path) -> None:
    class Broken:
        def ready(self, *_: str) -> dict[str, str]:
            raise OSError("no route")

        def sweep(self, _: object) -> list[str]:
            raise OSError("no route")

    async with opened(LocalGround(tmp_path, Broken())) as lab:
        with pytest.raises(Unreachable, match="could not be brought to lab: no route"):
            await lab.driver.start(start("job", 2, earlier="job.1"), python("print()"))
        assert (await lab.driver.look()).attempts == ()

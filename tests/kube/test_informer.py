"""A `Informer` tells each change once, whatever happens to its connection."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from penstock.kube import informer
from penstock.kube.client import JOBS, Obj
from penstock.kube.errors import Unavailable
from penstock.kube.informer import Informer
from tests.awaiting import story
from tests.kube.scripted import Server


@pytest.fixture(autouse=True)
def _try_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "FIRST_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(informer, "LAST_RETRY_SECONDS", 0.01)


class Told:
    """What a mirror told, as words, and a way to wait for some."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.news = asyncio.Event()

    def changed(self, before: Obj | None, now: Obj | None) -> None:
        job = now or before
        assert job is not None
        how = "gone" if now is None else "came" if before is None else "changed"
        self.say(f"{how} {job['metadata']['name']} {job['metadata']['uid']}")

    def say(self, word: str) -> None:
        self.words.append(word)
        self.news.set()

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            self.news.clear()
            await self.news.wait()


@asynccontextmanager
async def following(server: Server) -> AsyncIterator[tuple[Informer, Told]]:
    news, cluster = Told(), server.cluster()
    mirror = Informer(cluster, JOBS, news.changed, sync_changed=lambda why: news.say("out" if why else "in step"))
    running = asyncio.create_task(mirror.run())
    await news.until(lambda: "in step" in news.words)
    news.words.clear()
    try:
        yield mirror, news
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await cluster.close()


@story
async def test_what_is_there_is_told_first_then_what_changes() -> None:
    server = Server()
    server.put("a")
    news, cluster = Told(), server.cluster()
    mirror = Informer(cluster, JOBS, news.changed, sync_changed=lambda _: None)
    running = asyncio.create_task(mirror.run())
    await news.until(lambda: len(news.words) == 1)
    server.put("a", status=1)
    server.put("b")
    server.remove("a")
    await news.until(lambda: len(news.words) == 4)
    assert news.words == ["came a uid-a", "changed a uid-a", "came b uid-b", "gone a uid-a"]
    assert [job["metadata"]["name"] for job in mirror] == ["b"]
    running.cancel()
    await cluster.close()


@story
async def test_after_a_disconnect_it_goes_on_from_where_it_was() -> None:
    server = Server()
    async with following(server) as (mirror, news):
        server.put("a")
        await news.until(lambda: "came a uid-a" in news.words)
        server.down = True
        server.disconnect()
        await news.until(lambda: "out" in news.words)
        assert not mirror.in_step.is_set()
        server.put("b")
        server.remove("a")
        server.down = False
        await news.until(lambda: "gone a uid-a" in news.words)
        assert [word for word in news.words if word != "out"] == [
            "came a uid-a",
            "in step",
            "came b uid-b",
            "gone a uid-a",
        ]
        assert mirror.lists == 1


@story
async def test_after_a_410_it_lists_again_and_notices_what_went_and_what_came_in_its_place() -> None:
    server = Server()
    for name in ("stays", "went", "replaced", "changed"):
        server.put(name)
    async with following(server) as (mirror, news):
        server.down = True
        server.disconnect()
        await news.until(lambda: "out" in news.words)
        news.words.clear()
        server.remove("went")
        server.remove("replaced")
        server.put("replaced", uid="second")
        server.put("changed", status=2)
        server.put("new")
        server.forget_old_versions()
        server.down = False
        await mirror.in_step.wait()
        assert [word for word in news.words if word not in ("out", "in step")] == [
            "gone went uid-went",
            "changed changed uid-changed",
            "gone replaced uid-replaced",
            "came replaced second",
            "came new uid-new",
        ]
        assert mirror.lists == 2


@story
async def test_a_list_that_fails_says_nothing_of_what_is_there() -> None:
    server = Server()
    server.put("a")
    async with following(server) as (mirror, news):
        server.forget_old_versions()
        server.forbidden = True
        server.disconnect()
        await news.until(lambda: "out" in news.words)
        asked = len(server.asked)
        while len(server.asked) < asked + 3:
            await asyncio.sleep(0)
        assert "gone a uid-a" not in news.words
        assert mirror.get("a", "default") is not None
        assert "cannot list" in mirror.why


@story
async def test_a_bookmark_moves_it_on_while_nothing_happens() -> None:
    """Without, it would ask for what the server has long forgotten, and read everything again."""
    server = Server()
    async with following(server) as (mirror, news):
        server.bookmark()
        while mirror.version != str(server.version):
            await asyncio.sleep(0)
        server.forget_old_versions()
        server.oldest = server.version  # all before the bookmark
        server.disconnect()
        server.put("a")
        await news.until(lambda: "came a uid-a" in news.words)
        assert mirror.lists == 1


@story
async def test_a_list_longer_than_a_page_comes_whole() -> None:
    server = Server()
    for number in range(1203):
        server.put(f"j{number}")
    cluster = server.cluster()
    jobs, version = await cluster.list(JOBS)
    assert (len(jobs), version, len(server.asked)) == (1203, str(server.version), 3)
    await cluster.close()


@story
async def test_what_we_changed_ourselves_is_known_at_once_and_is_no_news() -> None:
    server = Server()
    server.put("a")
    async with following(server) as (mirror, news):
        answer = {**server.objects["a"], "metadata": {**server.objects["a"]["metadata"], "resourceVersion": "12"}}
        mirror.learn({**answer, "ours": True})
        assert mirror.objects["default/a"]["ours"]
        server.put("a", ours=True)  # version 12, by the watch
        server.put("b")
        await news.until(lambda: "came b uid-b" in news.words)
        assert news.words == ["came b uid-b"]


@story
async def test_a_watch_that_is_behind_our_own_change_takes_nothing_back_and_a_list_does() -> None:
    server = Server()
    server.put("a")
    async with following(server) as (mirror, news):
        meta = server.objects["a"]["metadata"]
        mirror.learn({"metadata": {**meta, "resourceVersion": "50"}, "ours": True})
        mirror.learn({"metadata": {**meta, "uid": "another's", "resourceVersion": "60"}})
        server.put("a", theirs=True)  # version 12: before ours
        server.put("b")
        await news.until(lambda: "came b uid-b" in news.words)
        assert mirror.objects["default/a"].get("ours")
        server.forget_old_versions()
        server.disconnect()
        await news.until(lambda: "changed a uid-a" in news.words)
        assert mirror.objects["default/a"].get("theirs")


@story
async def test_a_request_without_an_answer_casts_doubt_on_a_watch_that_says_nothing() -> None:
    """Behind a gateway that forgot the connection nothing breaks: such a watch was believed for 100 s."""
    server = Server()
    async with following(server) as (mirror, news):
        server.down = True
        with pytest.raises(Unavailable):
            await mirror.cluster.get(JOBS, "any", "default")
        await news.until(lambda: "out" in news.words)
        server.down = False
        await news.until(lambda: "in step" in news.words)
        server.put("a")
        await news.until(lambda: "came a uid-a" in news.words)
        assert mirror.lists == 1

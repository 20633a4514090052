"""The pages as answers: who may see them, what they may load, and that what people typed stays text."""

import re
from pathlib import Path

import httpx2

from penstock.web.access import COOKIE
from penstock.web.routes.login import LINK_SECONDS, MOST_LINKS, MOST_LINKS_EACH, Links
from penstock.web.tokens import Token
from tests.awaiting import story
from tests.web.kit import WAITS, Penstock, python, running

PAGE = {"Accept": "text/html"}
NASTY = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


async def browser(penstock: Penstock, by: httpx2.AsyncClient | None = None) -> httpx2.AsyncClient:
    """A client that came in by a link, with a cookie and no header."""
    link = (await (by or penstock.admin).post("/v1/logins")).json()["path"]
    client = penstock.client("")
    answer = await client.get(link, headers=PAGE)
    assert answer.status_code == 200
    return client


# --- coming in -------------------------------------------------------------------------------------------------------


@story
async def test_a_stranger_sees_how_to_come_in_and_nothing_else(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        await penstock.submits(command=WAITS, name="secret-name")
        for path in ("/", "/jobs/none"):
            answer = await penstock.client("").get(path, headers=PAGE)
            assert answer.status_code == 401
            assert "penstock open" in answer.text
            assert "secret-name" not in answer.text


@story
async def test_a_link_lets_one_browser_in_once(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        link = (await penstock.admin.post("/v1/logins")).json()["path"]
        client = penstock.client("")
        cookie = (await client.get(link, headers=PAGE)).headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=pst_")
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert (await client.get("/", headers=PAGE)).status_code == 200
        again = await penstock.client("").get(link, headers=PAGE)
        assert again.status_code == 410
        assert "set-cookie" not in again.headers


def test_many_links_of_one_token_push_out_its_own_only() -> None:
    """1,300 links of one viewer pushed out everybody's: nobody else could sign in."""
    links = Links(lambda: 0.0)
    ours = links.make(Token("ada", "d", "admin")).rpartition("/")[2]
    theirs = [links.make(Token("viewer", "d", "viewer")).rpartition("/")[2] for _ in range(1_300)]
    assert len(links.waiting) == 1 + MOST_LINKS_EACH
    for k in range(MOST_LINKS):
        links.make(Token(f"viewer-{k % 60}", "d", "viewer"))
    assert len(links.waiting) == MOST_LINKS
    assert links.take(theirs[0]) is None
    assert links.take(ours) is not None


@story
async def test_what_is_typed_into_the_address_bar_is_answered_for_people(tmp_path: Path) -> None:
    """`/jobs?show=foo` showed a sign-in form and pydantic's words to somebody who was signed in, `/cost` raw JSON."""
    async with running(tmp_path) as penstock:
        client = await browser(penstock)
        await penstock.submits(name="train-me")
        listed = await client.get("/jobs?show=foo", headers=PAGE)
        assert (listed.status_code, "train-me" in listed.text) == (200, True)
        nowhere = await client.get("/cost", headers=PAGE)
        assert (nowhere.status_code, nowhere.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "There is nothing at &#39;/cost&#39;" in nowhere.text
        wrong = await client.get("/jobs?after=x", headers=PAGE)
        assert wrong.status_code == 422
        for page in (nowhere, wrong):
            assert 'type="password"' not in page.text
        assert (await client.post("/login", data={"token": "x"}, headers=PAGE)).text.count('type="password"') == 1
        api = await penstock.admin.get("/v1/cost", headers=PAGE)
        assert api.headers["content-type"] == "application/problem+json"
        job = await penstock.admin.get("/v1/jobs/vision/b4/why")
        assert job.json()["detail"] == "There is no job 'vision/b4', or you may not see it; check the name."


def test_a_link_waits_ten_minutes_and_no_longer() -> None:
    now = [0.0]
    links, token = Links(lambda: now[0]), Token("t", "d", "viewer")
    early, late = (links.make(token).rpartition("/")[2] for _ in range(2))
    now[0] = LINK_SECONDS - 1
    assert links.take(early) == token
    now[0] = LINK_SECONDS
    assert links.take(late) is None


@story
async def test_a_browser_may_look_and_change_nothing_and_ends_with_who_let_it_in(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        token, secret = penstock.token("admin")
        client = await browser(penstock, penstock.client(secret))
        assert (await client.get("/v1/jobs")).status_code == 200
        assert (await client.post("/v1/pause")).status_code == 401
        assert (await client.post("/v1/logins")).status_code == 401
        await penstock.guard.tokens.revoke(token.id)
        assert (await client.get("/", headers=PAGE)).status_code == 401


@story
async def test_a_token_typed_into_the_form_lets_in_unless_another_site_sent_it(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        secret = penstock.token("viewer", "a")[1]
        client = penstock.client("")
        form = {"Content-Type": "application/x-www-form-urlencoded", **PAGE}
        assert (await client.post("/login", content="token=pst_forged", headers=form)).status_code == 422
        foreign = form | {"Sec-Fetch-Site": "cross-site"}
        assert (await client.post("/login", content=f"token={secret}", headers=foreign)).status_code == 403
        assert (await client.get("/", headers=PAGE)).status_code == 401
        assert (await client.post("/login", content=f"token={secret}", headers=form)).status_code == 200
        assert (await client.get("/", headers=PAGE)).status_code == 200


# --- what is shown ---------------------------------------------------------------------------------------------------


@story
async def test_fault_22_what_people_typed_is_shown_as_they_typed_it(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        client = await browser(penstock)
        program = python(f"print({NASTY!r}, flush=True); import time; time.sleep(600)")
        job = await penstock.submits(command=program, name=NASTY)
        await penstock.until_prints(job, "alert")
        for path in ("/", f"/jobs/{job}"):
            text = (await client.get(path, headers=PAGE)).text
            assert "&lt;script&gt;alert(1)" in text
            assert "<script>alert" not in text
            assert "<img" not in text


@story
async def test_a_job_that_ended_without_a_word_is_not_said_to_have_none_yet(tmp_path: Path) -> None:
    """A succeeded job's log said "No output yet."."""
    async with running(tmp_path) as penstock:
        client = await browser(penstock)
        job = await penstock.submits(command=python("pass"), name="silent")
        await penstock.until(job, "succeeded")
        text = (await client.get(f"/jobs/{job}", headers=PAGE)).text
        assert ('data-empty="It printed nothing."' in text, "No output yet." in text) == (True, False)


@story
async def test_pages_load_nothing_from_elsewhere_and_hold_no_script_or_style_of_their_own(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        client = await browser(penstock)
        job = await penstock.submits(name="one")
        await penstock.until(job)
        for path in ("/", f"/jobs/{job}"):
            answer = await client.get(path, headers=PAGE)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert not re.findall(r"<style|\sstyle=|\son\w+=|<script(?! src=\"/static/)", answer.text)
            for address in re.findall(r"(?:src|href)=\"([^\"#][^\"]*)\"", answer.text):
                assert (await client.get(address.replace("&amp;", "&"))).status_code == 200, address


@story
async def test_only_files_that_we_ship_are_served(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        stranger = penstock.client("")
        style = await stranger.get("/static/style.css")
        assert style.headers["content-type"] == "text/css; charset=utf-8"
        for name in re.findall(r"url\((fonts/[^)]+)\)", style.text):
            assert (await stranger.get(f"/static/{name}")).headers["content-type"] == "font/woff2"
        for name in ("..%2Frender.py", "%2e%2e/render.py", "templates/now.html", "", "fonts"):
            assert (await stranger.get(f"/static/{name}")).status_code == 404


@story
async def test_a_team_sees_its_own_jobs_and_money_on_the_page(tmp_path: Path) -> None:
    async with running(tmp_path, caps={"team:alpha": "100", "team:beta": "50", "org": "1000"}) as penstock:
        job = await penstock.submits(penstock.team("alpha"), command=WAITS, name="alphas-own")
        await penstock.until_prints(job, "runs")
        mine, other = await browser(penstock, penstock.team("alpha")), await browser(penstock, penstock.team("beta"))
        page = (await mine.get("/", headers=PAGE)).text
        assert "alphas-own" in page
        assert "free of $100.00" in page
        page = (await other.get("/", headers=PAGE)).text
        assert "free of $50.00" in page
        for word in ("alpha", "$1,000.00"):
            assert word not in page
        assert (await other.get(f"/jobs/{job}", headers=PAGE)).status_code == 404


@story
async def test_the_page_is_told_of_news_at_once_and_when_there_is_more(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        client = await browser(penstock)
        async with client.stream("GET", "/news/stream") as answer:
            lines = answer.aiter_lines()
            numbers: list[int] = []
            async for line in lines:
                if line.startswith("data: "):
                    numbers.append(int(line.removeprefix("data: ")))
                    if len(numbers) == 1:
                        await penstock.submits(name="news")
                    else:
                        break
        assert numbers[0] < numbers[1]


@story
async def test_the_readers_choice_of_dark_is_there_from_the_first_moment(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        client = await browser(penstock)
        for chosen, shown in (("dark", ' data-theme="dark"'), ("light", ' data-theme="light"'), ('"><b>', "")):
            client.cookies.set("penstock_theme", chosen)
            text = (await client.get("/", headers=PAGE)).text
            assert text.split("\n")[1] == f'<html lang="en"{shown}>'


@story
async def test_every_job_can_be_found_on_the_list_and_only_by_its_own_team(tmp_path: Path) -> None:
    async with running(tmp_path) as penstock:
        first = await penstock.submits(command=WAITS, name=NASTY, team="a")
        for k in range(60):
            await penstock.submits(command=WAITS, name=f"later-{k}", team="a", gpus=2)
        client = await browser(penstock)
        newest = (await client.get("/jobs", headers=PAGE)).text
        assert ("later-59" in newest, "later-3<" in newest) == (True, False)
        (older,) = re.findall(r'href="(/jobs\?after=[0-9]+)">Older', newest)
        page = (await client.get(older, headers=PAGE)).text
        assert "later-3<" in page
        assert (NASTY in page, f'href="/jobs/{first}"' in page) == (False, True)
        assert "later-41<" in (await client.get("/jobs", params={"text": "LATER-41"}, headers=PAGE)).text
        waits = (await client.get("/jobs", params={"show": "waiting"}, headers=PAGE)).text
        assert ("later-59" in waits, first in waits) == (True, False)
        other = await browser(penstock, penstock.team("b"))
        assert "No jobs." in (await other.get("/jobs", headers=PAGE)).text

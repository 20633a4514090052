"""The page in a real browser, before a real `penstock up` that runs real processes on this machine."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LIMIT_MS = 60_000  #: a wait that takes longer has failed
#: Prints numbered lines until it is stopped.
COUNTS = "import sys, time\nk = 0\nwhile True:\n k += 1; print('step', k, flush=True); time.sleep(0.2)"
NASTY = "<script>document.title = 'taken'</script>"

pytestmark = pytest.mark.slow


class Served:
    """A running Penstock, and what people do with it."""

    def __init__(self, process: "subprocess.Popen[str]", announced: dict[str, str]) -> None:
        self.process, self.url, self.link = process, announced["address"], announced["link"]
        secret = Path(announced["token_file"]).read_text("utf-8").strip()
        headers = {"Authorization": f"Bearer {secret}"}
        self.client = httpx2.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def submits(self, **job: Any) -> str:
        answer = self.client.post("/v1/jobs", json={"gpus": 1, "command": ["true"], **job})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job"])

    def new_link(self) -> str:
        return f"{self.url}{self.client.post('/v1/logins').json()['path']}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    command = [sys.executable, "-m", "penstock.cli", "up", "--home", str(home), "--port", "0", "--json"]
    command += ["--trust-teams"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1].rstrip() != "}":
        lines.append(process.stdout.readline())
        assert lines[-1], f"penstock up ended with {process.wait()}"
    made = Served(process, json.loads("".join(lines)))
    try:
        yield made
    finally:
        for row in made.client.get("/v1/jobs", params={"state": ["queued", "starting", "running"]}).json()["jobs"]:
            made.client.post(f"/v1/jobs/{row['id']}/cancel")
        for row in made.client.get("/v1/jobs").json()["jobs"]:
            made.client.get(f"/v1/jobs/{row['id']}/log", params={"follow": True})  # answered once it has ended
        made.client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        process.stdout.close()


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium.browser() as made:
        yield made


@pytest.fixture
def page(served: Served, browser: "Browser") -> "Iterator[Page]":
    """Somebody who came in by a link. Nothing may be complained of: no script's error, no breach of the policy."""
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    made = context.new_page()
    made.set_default_timeout(LIMIT_MS)
    made.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    made.goto(served.new_link())
    made.wait_for_url(f"{served.url}/")
    made.wait_for_selector("#live:not(.cut)")
    yield made
    context.close()
    assert complaints == []


def test_a_submitted_job_appears_without_a_reload_and_its_log_grows(served: Served, page: "Page") -> None:
    page.evaluate("window.stayed = true")
    job = served.submits(name="seen-live", command=[sys.executable, "-c", COUNTS])
    page.wait_for_selector("#running >> text=seen-live")
    page.wait_for_selector("#feed >> text=seen-live")
    assert page.evaluate("window.stayed")
    page.click("#running >> text=seen-live")
    page.wait_for_url(f"**/jobs/{job}")
    page.wait_for_selector("#log:has-text('step 2')")
    before = page.inner_text("#log").count("step")
    page.wait_for_selector(f"#log:has-text('step {before + 4}')")
    numbers = [line for line in page.inner_text("#log").split("\n") if line]
    assert numbers == [f"step {k + 1}" for k in range(len(numbers))]  # nothing lost, nothing doubled
    served.client.post(f"/v1/jobs/{job}/cancel")
    page.wait_for_selector("#facts >> text=cancelled")
    page.wait_for_selector("#story >> text=A person cancelled it.")


def test_a_name_that_is_a_script_is_shown_and_not_run(served: Served, page: "Page") -> None:
    job = served.submits(name=NASTY)
    page.wait_for_selector(f"#feed >> text={NASTY}")
    assert page.title() == "Now · Penstock"
    page.goto(f"{served.url}/jobs/{job}")
    assert page.inner_text("h1") == NASTY
    assert page.title() == f"{NASTY} · Penstock"


def test_dark_is_chosen_by_the_system_or_by_hand_and_stays(page: "Page") -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(251, 252, 252)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == "rgb(14, 20, 23)"
    page.emulate_media(color_scheme="light")
    page.click("[data-toggle-theme]")
    assert page.evaluate(ground) == "rgb(14, 20, 23)"
    page.reload()
    assert page.evaluate(ground) == "rgb(14, 20, 23)"


def test_nothing_is_wider_than_the_screen(served: Served, page: "Page") -> None:
    job = served.submits(name="a-name-without-an-end-" * 6, command=["echo", "x" * 500])
    for width in (1440, 1024, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for path in ("/", f"/jobs/{job}"):
            page.goto(f"{served.url}{path}")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{path} is {wide} wide on a screen of {width}"


def test_the_page_reads_without_its_script(served: Served, browser: "Browser") -> None:
    job = served.submits(name="plain", command=["echo", "hello from the log"])
    with served.client.stream("GET", f"/v1/jobs/{job}/log", params={"follow": True}) as answer:
        answer.read()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(served.new_link())
    page.goto(f"{served.url}/jobs/{job}")
    assert "hello from the log" in page.inner_text("#log")
    page.goto(served.url)
    assert "plain" in page.inner_text("#feed")
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_everybody_can_read_it(served: Served, page: "Page", theme: Any, width: int) -> None:
    """By axe-core: contrast, names, order of headings, and some ninety more rules."""
    job = served.submits(name="readable")
    script = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 900})
    for path in ("/", f"/jobs/{job}"):
        page.goto(f"{served.url}{path}")
        page.evaluate(script)
        violations = page.evaluate("axe.run()")["violations"]
        assert [(violation["id"], [node["html"] for node in violation["nodes"]]) for violation in violations] == []

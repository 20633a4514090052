"""Hostile requests: bodies that are dear to parse, bodies of strangers, text that has no bytes. One request never stops
the others, and each gets a sentence."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.web.access import permissions
from tests.hostile.control_plane import ControlPlane
from tests.hostile.raw import admin, connect, cpu_seconds, head, reply_status, status

MOST_CPU_S = 2.0  #: of the control plane, for eight bodies: it reads them, and others parse them
SIZE = 960_000


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("hostile") / "home") as control_plane:
        yield control_plane
        assert "Traceback" not in control_plane.words


def yaml(text: str) -> tuple[str, bytes]:
    return "application/yaml", text.encode()


def as_json(text: str) -> tuple[str, bytes]:
    return "application/json", text.encode()


BODIES = {
    "a list of 480,000 words": yaml("command: [" + "a," * (SIZE // 2) + "]\ngpus: 1\n"),
    "a block of 240,000 words": yaml("command:\n" + "- a\n" * (SIZE // 4) + "gpus: 1\n"),
    "brackets": yaml("[" * SIZE),
    "a list in a list in a list": yaml("- " * (SIZE // 2)),
    "directives, which libyaml compares with each other": yaml(
        "".join(f"%TAG !a{k}! tag:x,2000:\n" for k in range(SIZE // 26)) + "---\ngpus: 1\n"
    ),
    "anchors": yaml("a: [" + "".join(f"&a{k} a," for k in range(SIZE // 10)) + "]"),
    "laughs": yaml("a: &a [x, x]\n" + "".join(f"b{k}: &b{k} [*a, *a]\n" for k in range(SIZE // 32))),
    "unknown keys": yaml("".join(f"k{k}: 1\n" for k in range(SIZE // 10))),
    "unknown keys as JSON": as_json("{" + ",".join(f'"k{k}":1' for k in range(SIZE // 11)) + "}"),
    "empty objects": as_json('{"gpu":[' + "{}," * (SIZE // 3) + "{}]}"),
    "a number of 960,000 digits": as_json('{"command":["a"],"gpus":' + "9" * SIZE + "}"),
    "brackets as JSON": as_json('{"gpu":' + "[" * SIZE),
    "a Kubernetes Job of nothing": as_json('{"kind":"Job","spec":[' + "{}," * (SIZE // 3) + "{}]}"),
    "a little of everything": as_json('{"gpus":1,"command":["a"],"gpu":[' + "{}," * 1_200 + "{}]}"),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_body_that_is_dear_to_parse_costs_the_control_plane_little(plane: ControlPlane, what: str) -> None:
    """A YAML list of 960 kB held the event loop for 15 s; eight of them cost a leader its lease."""
    assert plane.process is not None
    kind, body = BODIES[what]
    before = cpu_seconds(plane.process.pid)
    client = plane.client()
    for path in ("/v1/jobs", "/v1/plan") * 4:
        answer = client.post(path, content=body, headers={"Content-Type": kind})
        assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
        assert answer.json()["detail"].endswith((".", "?"))
    assert cpu_seconds(plane.process.pid) - before < MOST_CPU_S


def test_a_large_job_file_is_still_a_job_file(plane: ControlPlane) -> None:
    words = ["true", *("w" * 500 for _ in range(999))]
    body = json.dumps({"gpus": 1, "command": words, "env": {f"V{k}": "x" * 100 for k in range(1_000)}})
    answer = plane.client().post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201, answer.text
    assert len(plane.job(answer.json()["job"])["command"]) == 1_000


def routes() -> list[tuple[str, str]]:
    """Every route that may have a body, as the API describes it."""
    from penstock.web import app

    return [
        (method, path.replace("{job}", "a").replace("{token}", "a").replace("{key}", "a").replace("{site}", "a"))
        for part in vars(app).values()
        for method, path, needs in permissions(getattr(getattr(part, "routes", None), "routes", []))
        if method in ("POST", "PUT", "DELETE") and needs != "nothing"
    ]


def test_no_route_reads_the_body_of_a_stranger(plane: ControlPlane) -> None:
    """FastAPI reads and parses a body before it asks who sent it; here the body never comes, and the answer does."""
    listed = routes()
    assert len(listed) > 5
    for method, path in listed:
        with connect(plane) as sock:
            sock.sendall(head(method, path, "Content-Length: 900000", "Content-Type: application/json"))
            assert status(sock) in (401, 429), (method, path)


def test_a_stranger_who_guessed_too_often_is_refused_before_the_form_is_read(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "home") as plane:
        guesses = plane.client("")
        answers: list[int] = []
        while 429 not in answers and len(answers) < 5:  # on a slow machine one more guess may be allowed meanwhile
            while guesses.post("/login", data={"token": "pst_guess"}).status_code != 429:
                pass
            with connect(plane) as sock:
                sock.sendall(head("POST", "/login", "Content-Length: 100"))
                answers.append(status(sock))
        assert answers[-1] == 429


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"&".join(b"a%d=1" % k for k in range(200_000))[:SIZE], 413),
        (b"&".join(b"a=1" for _ in range(1_000)), 422),
        (b"token=%ED%A0%80", 422),
        (b"\xff" * 4_000, 422),
    ],
)
def test_a_form_is_small(plane: ControlPlane, body: bytes, answer: int) -> None:
    """A megabyte of fields cost 0.3 s each, before any limit."""
    kind = "Content-Type: application/x-www-form-urlencoded"
    assert reply_status(plane, head("POST", "/login", f"Content-Length: {len(body)}", kind), body) == answer


LONE = "\\ud800"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs", f'{{"gpus": 1, "command": ["{LONE}"]}}'),
        ("POST", "/v1/jobs", f'{{"gpus": 1, "command": ["a"], "name": "{LONE}"}}'),
        ("POST", "/v1/jobs", f'{{"gpus": 1, "command": ["a"], "env": {{"{LONE}": "a"}}}}'),
        ("POST", "/v1/jobs", f'{{"gpus": 1, "command": ["a"], "{LONE}": "a"}}'),
        ("POST", "/v1/plan", f'{{"kind": "Job", "metadata": {{"name": "{LONE}"}}}}'),
        ("POST", "/v1/plan", f'{{"kind": "Job", "{LONE}": ["{LONE}"]}}'),
        ("PUT", "/v1/budget", f'{{"scope": "{LONE}", "per_month": 1}}'),
        ("PUT", "/v1/budget", f'{{"{LONE}": "org"}}'),
        ("POST", "/v1/tokens", f'{{"role": "member", "team": "{LONE}"}}'),
        ("POST", "/v1/jobs/a/move", f'{{"offer": "{LONE}"}}'),
        ("POST", "/v1/jobs/%ED%A0%80/cancel", ""),
        ("POST", "/v1/jobs/a%00b/cancel", ""),
        ("DELETE", "/v1/tokens/%ED%A0%80", ""),
        ("GET", "/v1/jobs?text=%ED%A0%80&user=%00&team=%ED%BF%BF", ""),
        ("GET", "/v1/jobs?limit=%ED%A0%80", ""),
        ("GET", "/v1/jobs/a/log?attempt=%ED%A0%80%00", ""),
        ("GET", "/v1/events?before=%ED%A0%80", ""),
        ("GET", "/login/%ED%A0%80", ""),
        ("GET", "/%ED%A0%80", ""),
    ],
)
def test_text_without_bytes_gets_a_sentence(plane: ControlPlane, method: str, path: str, body: str) -> None:
    """Half of a surrogate pair, which JSON and percent signs can spell, and zero bytes."""
    text = body.encode()
    asked = head(method, path, f"Content-Length: {len(text)}", "Content-Type: application/json", secret=admin(plane))
    assert reply_status(plane, asked, text) in (200, 404, 409, 410, 422)


@pytest.mark.parametrize("header", ["Idempotency-Key", "Authorization", "Last-Event-ID", "Cookie", "Origin", "Accept"])
def test_headers_of_any_bytes_get_a_sentence(plane: ControlPlane, header: str) -> None:
    for text in (b"\xed\xa0\x80", b"\xff\xfe", b"a" * 1_000, b"\t", b"=;=;=,,,\"'"):
        body = b'{"gpus": 1, "command": ["true"]}'
        secret = "" if header == "Authorization" else admin(plane)
        asked = head("POST", "/v1/jobs", f"Content-Length: {len(body)}", secret=secret)
        answer = reply_status(plane, asked.replace(b"Host:", header.encode() + b": " + text + b"\r\nHost:"), body)
        assert answer in (200, 201, 400, 401, 403, 422, 429), (header, text)


def test_every_answer_says_that_it_is_what_it_says_and_is_not_kept(plane: ControlPlane) -> None:
    """Also a problem, a stranger's, a log and a bad request's."""
    client, stranger = plane.client(), plane.client("")
    answers: list[Any] = [
        client.get(path) for path in ("/healthz", "/v1/jobs", "/v1/jobs/none", "/v1/none", "/metrics")
    ]
    answers += [stranger.get("/v1/jobs"), stranger.post("/login", data={"token": "a"}), client.post("/v1/jobs")]
    for answer in answers:
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], answer.url
        assert answer.headers.get_list("cache-control") == ["no-store"], answer.url


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://penstock.evil.example"]
)
def test_a_page_of_another_origin_changes_nothing(plane: ControlPlane, origin: str) -> None:
    host = f"Origin: {origin}"
    secret = admin(plane)
    form = f"token={secret}".encode()
    kind = "Content-Type: application/x-www-form-urlencoded"
    assert reply_status(plane, head("POST", "/login", f"Content-Length: {len(form)}", kind, host), form) == 403
    assert reply_status(plane, head("POST", "/v1/pause", "Content-Length: 0", host, secret=secret)) == 403
    upgrade = (
        *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
        *(f"Sec-WebSocket-Key: {'A' * 22}==", "Sec-WebSocket-Protocol: v5.channel.k8s.io"),
    )
    assert reply_status(plane, head("GET", "/v1/jobs/a/exec?command=true", *upgrade, host, secret=secret)) == 403
    assert reply_status(plane, head("GET", "/v1/jobs/a/exec?command=true", *upgrade, secret=secret)) == 404


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_nor_does_one_that_the_browser_calls_another_site(plane: ControlPlane, site: str) -> None:
    """Whatever its Origin is: a page on another port of this host is one, too."""
    asked = ("Content-Length: 0", f"Sec-Fetch-Site: {site}", "Origin: http://penstock")
    assert reply_status(plane, head("POST", "/v1/pause", *asked, secret=admin(plane))) == 403


def test_our_own_page_signs_in(plane: ControlPlane) -> None:
    form = f"token={admin(plane)}".encode()
    kind = "Content-Type: application/x-www-form-urlencoded"
    asked = head("POST", "/login", f"Content-Length: {len(form)}", kind, "Origin: https://penstock")
    assert reply_status(plane, asked, form) == 200


def test_an_address_that_a_client_claims_is_not_believed(tmp_path: Path) -> None:
    """uvicorn believes X-Forwarded-For from loopback, where jobs run: each guess came from somebody else."""
    with ControlPlane(tmp_path / "home") as plane:
        answers = b"".join(_as_many_addresses(plane, f"10.0.{k}") for k in range(30))
    assert {int(status) for status in re.findall(rb"HTTP/1.1 ([0-9]+) ", answers)} == {401, 429}


def _as_many_addresses(plane: ControlPlane, network: str) -> bytes:
    """All answers to ten requests that are sent at once: a slow machine must not give the limit time to refill."""
    asked = [head("GET", "/v1/jobs", f"X-Forwarded-For: {network}.{k}") for k in range(9)]
    with connect(plane) as sock:
        sock.sendall(b"".join(asked) + head("GET", "/v1/jobs", "Connection: close"))
        return b"".join(iter(lambda: sock.recv(65_536), b""))

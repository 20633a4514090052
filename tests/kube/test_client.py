"""What a cluster's answers become, and what a request looks like."""

from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest

from penstock.devcluster.external import ExternalCluster
from penstock.kube import client, errors
from penstock.kube.access import Access, connect
from penstock.kube.client import CONFIG_MAPS, JOBS, NODES, PODS, Cluster
from tests.awaiting import story
from tests.kube.told import Told

Answer = Callable[[httpx2.Request], httpx2.Response]


def cluster_of(answer: Answer) -> Cluster:
    return Cluster(Told(answer), "c", "default")


def status(code: int, message: str = "words", **more: Any) -> Answer:
    return lambda _: httpx2.Response(code, json={"code": code, "message": message, **more})


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (status(404), errors.NotFound),
        (status(409, reason="AlreadyExists"), errors.AlreadyExists),
        (status(409, reason="Conflict"), errors.Conflict),
        (status(410), errors.Gone),
        (status(422), errors.Invalid),
        (status(400), errors.Invalid),
        (status(500), errors.Unavailable),
        (status(503), errors.Unavailable),
        (status(401), errors.Unavailable),
        (lambda _: httpx2.Response(502, content=b"<html>bad gateway"), errors.Unavailable),
        (lambda _: httpx2.Response(200, content=b'{"half'), errors.Unavailable),
        (lambda _: httpx2.Response(302, headers={"Location": "http://169.254.169.254/"}), errors.Unavailable),
    ],
)
@story
async def test_an_answer_becomes_the_error_that_says_what_to_do(answer: Answer, kind: type[errors.KubeError]) -> None:
    cluster = cluster_of(answer)
    with pytest.raises(errors.KubeError) as raised:
        await cluster.get(JOBS, "a", "n")
    assert type(raised.value) is kind
    await cluster.close()


@story
async def test_a_connection_that_breaks_is_unreachable_and_not_an_answer() -> None:
    def breaks(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("slow", request=request)

    cluster = cluster_of(breaks)
    with pytest.raises(errors.Unavailable, match="slow"):
        await cluster.create(JOBS, {"metadata": {"name": "a", "namespace": "n"}})
    await cluster.close()


@story
async def test_a_right_that_our_account_lacks_is_told_from_a_rule_that_said_no() -> None:
    lacks = 'jobs.batch is forbidden: User "u" cannot create resource "jobs" in API group "batch" in the namespace "n"'
    cluster = cluster_of(status(403, lacks))
    with pytest.raises(errors.Forbidden) as raised:
        await cluster.create(JOBS, {"metadata": {"name": "a", "namespace": "n"}})
    assert (raised.value.verb, raised.value.resource, raised.value.by_account) == ("create", "jobs.batch", True)
    await cluster.close()
    other = cluster_of(status(403, "ValidatingAdmissionPolicy 'p' denied request: no privileged pods"))
    with pytest.raises(errors.Forbidden) as raised:
        await other.create(JOBS, {"metadata": {"name": "a", "namespace": "n"}})
    assert not raised.value.by_account
    await other.close()


@story
async def test_a_busy_server_is_asked_again_when_it_says_and_not_for_ever() -> None:
    asked = []

    def busy(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(429, headers={"Retry-After": "0"}, json={"message": "busy"})

    cluster = cluster_of(busy)
    with pytest.raises(errors.Unavailable, match="busy"):
        await cluster.get(JOBS, "a", "n")
    assert len(asked) == client.BUSY_TRIES
    await cluster.close()


@story
async def test_requests_are_as_the_api_wants_them() -> None:
    asked: list[tuple[str, str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        body = msgspec.json.decode(request.content) if request.content else None
        asked.append((request.method, request.url.path, body))
        return httpx2.Response(200, json={"metadata": {}}, headers={"Date": "Mon, 16 Nov 2026 06:43:03 GMT"})

    cluster = cluster_of(answer)
    await cluster.get(NODES, "n1", "ignored")
    await cluster.delete(PODS, "p", "n", uid="u", grace_s=5)
    await cluster.patch(JOBS, "j", {"spec": {"suspend": False}}, "n", seen="7")
    await cluster.patch_status(JOBS, "j", {"active": 1}, "n")
    assert asked == [
        ("GET", "/api/v1/nodes/n1", None),
        (
            "DELETE",
            "/api/v1/namespaces/n/pods/p",
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": "Background",
                "preconditions": {"uid": "u"},
                "gracePeriodSeconds": 5,
            },
        ),
        (
            "PATCH",
            "/apis/batch/v1/namespaces/n/jobs/j",
            {"spec": {"suspend": False}, "metadata": {"resourceVersion": "7"}},
        ),
        ("PATCH", "/apis/batch/v1/namespaces/n/jobs/j/status", {"status": {"active": 1}}),
    ]
    assert cluster.said_at.isoformat() == "2026-11-16T06:43:03+00:00"
    await cluster.close()


@story
async def test_what_is_made_when_it_is_sent_is_created_once_and_not_at_all_if_it_may_no_longer_be(
    lab: ExternalCluster, namespace: str
) -> None:
    here = connect(Access(str(lab.kubeconfig)))
    made = await here.create_when_sent(CONFIG_MAPS, lambda: {"metadata": {"name": "a"}, "data": {"k": "v"}}, namespace)
    assert made["data"] == {"k": "v"}
    with pytest.raises(errors.AlreadyExists):
        await here.create_when_sent(CONFIG_MAPS, lambda: {"metadata": {"name": "a"}}, namespace)

    def too_late() -> client.Obj:
        raise errors.Unavailable("another one leads by now")

    for _ in range(3):
        with pytest.raises(errors.Unavailable):
            await here.create_when_sent(CONFIG_MAPS, too_late, namespace)
    names = [config_map["metadata"]["name"] for config_map in (await here.list(CONFIG_MAPS, namespace))[0]]
    assert [name for name in names if not name.startswith("kube-")] == ["a"]
    await here.close()

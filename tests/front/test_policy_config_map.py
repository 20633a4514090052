"""The policy from a ConfigMap, on a real API server, with the rights that `penstock manifests rbac` prints."""

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from penstock import wiring
from penstock.config import SitesFile
from penstock.config.sites import ConfigMapKey
from penstock.core.errors import BadInput
from penstock.core.model.types import Policy
from penstock.devcluster.external import ExternalCluster
from penstock.front.policy_config_map import PolicyConfigMap, first_text
from penstock.kube import manifests
from penstock.kube.access import Access, connect
from penstock.live.plane import Plane
from penstock.live.policy_changes import PolicyChanges
from penstock.options import Options
from penstock.web.server import bind
from tests.front.kit import LIMIT_S, Penstock, home_job

pytestmark = pytest.mark.slow
NAME = "penstock-policy"
NO_SMALL = """version: 1
rules:
  - {name: no-small-jobs, deny: job.gpus < 4, because: Small jobs use the other cluster}
"""
CAPPED = "version: 1\nteams:\n  vision: {per_month: 50}\n"


def config_map(namespace: str, text: str, name: str = NAME) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy.yaml": text}}


async def until(so: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not so():
            await asyncio.sleep(0.05)


def test_the_named_config_map_is_applied_watched_and_told_what_is_wrong_with_it(
    lab: ExternalCluster, namespace: str, tmp_path: Path
) -> None:
    account = f"penstock-{namespace}"
    kubeconfig = lab.token_for(account, [], namespace)
    lab.apply(*manifests.rbac("home", account, namespace, policy=NAME))
    named = ConfigMapKey("lab", namespace, NAME)

    async def tell() -> None:
        policy = Policy("test")
        async with Penstock(lab, namespace, tmp_path, policy=policy) as here:
            cluster = connect(Access(kubeconfig=str(kubeconfig)))
            changes = PolicyChanges(here.plane, SitesFile("USD", here.sites), named.title)
            with pytest.raises(BadInput, match="which has the policy, cannot be read"):
                await first_text(cluster, named)
            following = asyncio.create_task(PolicyConfigMap(cluster, named, changes, here.clock.now).run())
            try:
                await until(lambda: f"{named.title} does not exist" in alarms(here))
                lab.apply(config_map(namespace, CAPPED, "another"), config_map(namespace, NO_SMALL))
                await until(lambda: here.plane.view.revision == 2)
                await until(lambda: messages(here, "PolicyApplied") == ["Revision 2 is in force."])
                assert alarms(here) == ""

                here.apply(home_job("small", gpus=2))
                await here.says("small", "NothingAllowed")
                assert "no-small-jobs" in here.text("small")
                assert f"{NAME}:3" in here.text("small")

                lab.apply(config_map(namespace, "version: 1\nrules: [{name: a, deny: 'job.nothing > 1'}]\n"))
                await until(lambda: messages(here, "PolicyRejected"))
                assert "The policy before it stays." in messages(here, "PolicyRejected")[0]
                assert here.plane.view.revision == 2
                assert "is not in force" in alarms(here)

                lab.apply(config_map(namespace, CAPPED))
                await until(lambda: here.plane.view.revision == 3)
                lab.apply(config_map(namespace, CAPPED.replace("50", "70")))
                await until(
                    lambda: any("penstock approvals approve team:vision" in message for message in messages(here, ""))
                )
                lab.kubectl("-n", namespace, "delete", "configmap", NAME)
                await until(lambda: f"{named.title} does not exist" in alarms(here))
            finally:
                following.cancel()
                await asyncio.wait([following])
                await cluster.close()

    asyncio.run(tell())


def alarms(here: Penstock) -> str:
    return " ".join(alarm.text for alarm in here.plane.view.alarms if alarm.kind in ("policy", "drift"))


def messages(here: Penstock, reason: str) -> list[str]:
    """The Events about the ConfigMap."""
    events = [event for event in here.events if event["involvedObject"]["name"] == NAME]
    return [event["message"] for event in events if reason in ("", event["reason"])]


@pytest.fixture
def as_before() -> Iterator[None]:
    """What a start sets for its whole process."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("as_before")
def test_a_start_reads_it_and_the_next_one_goes_on_with_what_is_in_force(
    lab: ExternalCluster, namespace: str, tmp_path: Path
) -> None:
    """As `penstock up` does it: nothing runs without the policy that it shall have."""
    sites = {
        "sites": [
            {
                "name": "lab",
                "front_door": True,
                "kubernetes": {"kubeconfig": str(lab.kubeconfig), "namespace": namespace, "shared": True},
                "offers": [{"name": "a100", "gpu": "A100", "term": "owned", "gpus_per_node": 8}],
            }
        ],
        "policy_config_map": {"site": "lab", "name": NAME},
    }
    (tmp_path / "sites.yaml").write_text(json.dumps(sites))
    options = Options(tmp_path / "home", sites=str(tmp_path / "sites.yaml"))

    @asynccontextmanager
    async def up() -> AsyncIterator[Plane]:
        with closing(bind("127.0.0.1", 0)) as sock:
            async with wiring.running(options, sock) as (plane, _):
                yield plane

    async def tell() -> None:
        with pytest.raises(BadInput, match=f"ConfigMap {namespace}/{NAME}, which has the policy, cannot be read"):
            async with up():
                pass
        lab.apply(config_map(namespace, NO_SMALL))
        async with up() as plane:
            assert plane.view.policy.governance.digest == digest(NO_SMALL)
            lab.apply(config_map(namespace, CAPPED))
            await until(lambda: plane.view.policy.governance.digest == digest(CAPPED))
        lab.kubectl("-n", namespace, "delete", "configmap", NAME)
        async with up() as plane:
            assert plane.view.policy.governance.digest == digest(CAPPED)
            await until(lambda: any("does not exist" in alarm.text for alarm in plane.view.alarms))

    asyncio.run(tell())


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()

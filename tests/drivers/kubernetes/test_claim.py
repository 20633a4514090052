"""Which control plane a cluster obeys: the claim on its Lease, and who may replace it."""

import asyncio
import json
from pathlib import Path

import pytest

from penstock.devcluster.external import ExternalCluster
from penstock.drivers.claim import Claim, Superseded
from penstock.drivers.driver import Refused
from penstock.drivers.kubernetes import claim as claims
from penstock.kube import annotations
from tests.awaiting import story
from tests.contract.kit import KubernetesGround, opened


@pytest.fixture
def ground(lab: ExternalCluster, namespace: str, tmp_path: Path) -> KubernetesGround:
    return KubernetesGround(lab.kubeconfig, namespace, tmp_path)


def annotate(lab: ExternalCluster, ground: KubernetesGround, text: str) -> None:
    change = json.dumps({"metadata": {"annotations": {annotations.CLAIM: text}}})
    lab.kubectl("patch", "lease", annotations.LEASE, "-n", ground.settings.namespace, "--type=merge", "-p", change)


@story
async def test_of_two_that_saw_the_same_claim_one_replaces_it(ground: KubernetesGround) -> None:
    driver, rival = ground.driver(), ground.driver()
    first = await driver.claims.read()
    assert first.claim is None
    mine = Claim("home", 1, "a", "here", "me", "7:abc")
    stands = await driver.claims.write(mine, first)
    with pytest.raises(Superseded):
        await rival.claims.write(Claim("home", 1, "b"), first)
    seen = await rival.claims.read()
    assert (seen.claim, seen.version) == (mine, stands.version)
    newer = await rival.claims.write(Claim("home", 2, "c"), seen)
    with pytest.raises(Superseded):
        await driver.claims.write(Claim("home", 1, "d"), stands)
    assert (await driver.claims.read()).claim == newer.claim == Claim("home", 2, "c")
    await asyncio.gather(driver.close(), rival.close())
    async with opened(ground):  # and the Lease is what it was to everybody else
        pass


@story
async def test_a_claim_is_renewed_by_whoever_lives_and_not_by_a_clock(
    ground: KubernetesGround, lab: ExternalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour between two machines' clocks changes nothing: only a change that is seen counts."""
    monkeypatch.setattr(claims, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(claims, "WATCHED_SECONDS", 0.5)
    driver, rival = ground.driver(), ground.driver()
    seen = await driver.claims.write(Claim("home", 1, "a"), await driver.claims.read())
    for time in ("1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"):
        change = json.dumps({"spec": {"renewTime": time}})
        namespace = ground.settings.namespace
        lab.kubectl("patch", "lease", annotations.LEASE, "-n", namespace, "--type=merge", "-p", change)
        assert not await rival.claims.is_renewed(seen)
    seen, watching = await rival.claims.read(), asyncio.create_task(rival.claims.is_renewed(seen))
    await driver.claims.write(Claim("home", 1, "b"), seen)
    assert await watching
    await asyncio.gather(driver.close(), rival.close())


@story
async def test_what_an_older_penstock_wrote_is_taken_and_what_is_damaged_is_not(
    ground: KubernetesGround, lab: ExternalCluster
) -> None:
    async with opened(ground):  # makes the Lease alone, as it always was
        pass
    driver = ground.driver()
    assert (await driver.claims.read()).claim == Claim("home")
    annotate(lab, ground, "{not json")
    seen = await driver.claims.read()
    assert seen.claim is None
    assert "is damaged" in seen.doubt
    ground.installation = "elsewhere"
    other = ground.driver()
    with pytest.raises(Refused, match="belongs to installation home"):
        await other.claims.read()
    await asyncio.gather(driver.close(), other.close())


@story
async def test_a_lease_that_was_given_back_is_not_made_again(ground: KubernetesGround, lab: ExternalCluster) -> None:
    """`penstock leave` deletes it; a renewal must not leave another one behind."""
    driver = ground.driver()
    seen = await driver.claims.write(Claim("home", 1, "a"), await driver.claims.read())
    lab.kubectl("delete", "lease", annotations.LEASE, "-n", ground.settings.namespace)
    with pytest.raises(Superseded):
        await driver.claims.write(Claim("home", 1, "b"), seen)
    assert (await driver.claims.read()).claim is None
    await driver.close()


@story
async def test_a_namespace_that_is_not_there_is_named(lab: ExternalCluster, tmp_path: Path) -> None:
    driver = KubernetesGround(lab.kubeconfig, "nowhere", tmp_path).driver()
    with pytest.raises(Refused, match="has no namespace nowhere; create it"):
        await driver.claims.write(Claim("home", 1, "a"), await driver.claims.read())
    await driver.close()

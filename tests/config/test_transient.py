"""A site's `cluster`: how its cluster comes and goes, and what is refused in one sentence."""

import pytest

from penstock.config.sites import SitesFile, parse_sites
from penstock.core.errors import BadFile
from penstock.core.model.types import NodeShape, Offer, TransientCluster
from penstock.core.units import HOUR, MINUTE, SECOND
from penstock.kube.access import Access
from penstock.kube.node_selection import ClusterClassWay

FILE = """
sites:
  - name: burst
    driver: kubernetes
    cluster: {class: gpu, version: v1.35.0, fee: 0.10, budget: "team:platform"MORE}
    offers:
      - {name: OFFER, gpu: A100, gpus_per_node: 8, price: {list: 2}TERMS}
"""


def sites(more: str = "", offer: str = "a100", terms: str = "") -> SitesFile:
    text = FILE.replace("MORE", more).replace("OFFER", offer).replace("TERMS", terms)
    return parse_sites(text.encode(), "s.yaml")


def test_what_the_engine_and_cluster_api_are_told() -> None:
    made = sites(
        ", namespace: clusters, management: {kubeconfig: /m}, variables: {size: xl, zones: 3, tall: true},"
        " workers: {gpu: 2}, start: 8m, up_within: 20m, idle: 5m, at_most: 2h, kill: 15m, guarantee: none"
    )
    offer = Offer(
        "burst/cluster", "burst", "on_demand", (NodeShape(0, 1, 100_000),),
        start_ms=8 * MINUTE, billing_step_ms=SECOND, kill_ms=15 * MINUTE, guarantee="none",
    )  # fmt: skip
    scopes = ("org", "team:platform")
    assert made.sites[0].cluster == TransientCluster(offer, scopes, 5 * MINUTE, 2 * HOUR, "s.yaml:5")
    assert made.sites[0].offers[0].sold_by == "attempt"
    assert dict(made.kubernetes)["burst"].transient == ClusterClassWay(
        cluster_class="gpu",
        version="v1.35.0",
        namespace="clusters",
        management=Access(kubeconfig="/m"),
        variables=(("size", '"xl"'), ("zones", "3"), ("tall", "true")),
        workers=(("gpu", 2),),
        up_within_ms=20 * MINUTE,
    )


@pytest.mark.parametrize(
    ("more", "offer", "terms", "words"),
    [
        (", up_within: 1m", "a", "", "this is shorter than 'start', so each start would fail"),
        (", kill: 1s", "a", "", "a cluster may take longer to go; write at least 1m"),
        (", at_most: 40d", "a", "", "write 1m to 31d; a cluster that stays belongs into the file as a site"),
        ("", "cluster", "", "'cluster' is the site's transient cluster itself; give the offer another name"),
        ("", "a", ", sold_by: node", "in a transient cluster attempts are sold: leave 'rent' and 'sold_by: node' out"),
        ("", "a", ", term: owned, nodes: 1", "a cluster that comes and goes has nothing that is owned or reserved"),
        (", classs: x", "a", "", "unknown key 'classs'"),
    ],
)
def test_what_makes_no_sense_is_refused(more: str, offer: str, terms: str, words: str) -> None:
    with pytest.raises(BadFile) as refused:
        sites(more, offer, terms)
    assert words in str(refused.value)

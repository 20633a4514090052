"""Sites files over HTTP, on a real control plane."""

from pathlib import Path

from tests.hostile.control_plane import ControlPlane

SITES = """
sites:
  - name: lab
    driver: local
    offers: [{name: gpu, term: owned, gpu: A100, gpus_per_node: 2, nodes: 1}]
"""
MORE = """
  - name: hall
    driver: local
    offers: [{name: gpu, term: owned, gpu: A100, gpus_per_node: 2, nodes: 1}]
"""


def test_a_sites_file_is_applied_whatever_its_length_up_to_a_megabyte(tmp_path: Path) -> None:
    """Every file of more than 4,096 bytes was refused as too large, examples/sites.yaml, too."""
    with ControlPlane(tmp_path / "home", sites=SITES) as plane:
        operator, comment = plane.client(plane.token("operator")), "# what we rent\n"
        text = SITES + comment * (100_000 // len(comment)) + MORE
        done = operator.post("/v1/sites", json={"text": text, "name": "sites.yaml"})
        assert done.status_code == 200, done.text
        assert {site["id"] for site in operator.get("/v1/sites").json()["sites"]} == {"hall", "lab"}
        endless = operator.post("/v1/sites", json={"text": text + comment * (1_000_000 // len(comment))})
        assert endless.status_code == 413
        member = plane.client(plane.token("member", "vision"))
        assert member.post("/v1/sites", json={"text": text}).status_code == 403

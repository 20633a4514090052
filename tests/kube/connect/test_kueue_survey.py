"""What `penstock connect --kueue` says of a cluster's Kueue."""

from penstock.kube.connect.account import Wanted, objects
from penstock.kube.connect.kueue_survey import KueueSurvey, missing_for_kueue
from penstock.kube.connect.sites_block import SiteBlock, manager
from penstock.kube.manifests import GOVERNING, admission_check


def test_what_a_person_must_still_do_is_said() -> None:
    assert missing_for_kueue(KueueSurvey(served=False), "penstock", "lab-kueue") == [
        "There is no Kueue here that serves kueue.x-k8s.io/v1beta2: install version 0.15 or newer, and run this again."
    ]
    assert missing_for_kueue(KueueSurvey(served=True, governed=("a",)), "penstock", "lab-kueue") == []
    seen = KueueSurvey(served=True, others=("a", "b"), workers=(("mk", "east"),))
    assert missing_for_kueue(seen, "penstock", "lab-kueue") == [
        "No ClusterQueue is governed yet: name the check penstock in `admissionChecksStrategy` of a, b.",
        "Write a site for the worker east: `kueue: {manager: lab-kueue, cluster: east, check: mk}`.",
        "Set `multiKueue.dispatcherName: penstock.dev/dispatcher` in Kueue's configuration: we choose the worker.",
    ]


def test_the_check_and_the_rights_are_made_only_if_asked_for() -> None:
    asked, not_asked = (objects(Wanted("look", "penstock", "penstock", kueue=kueue)) for kueue in (True, False))
    assert admission_check("penstock") in asked
    assert admission_check("penstock") not in not_asked
    granted = [rule for made in asked for rule in made.get("rules", [])]
    assert all(rule in granted for rule in GOVERNING)


def test_the_lines_for_the_sites_file_name_the_kueue_apart_from_the_site() -> None:
    block = SiteBlock("lab", "look", "penstock-lab.kubeconfig", "penstock", ("vision",))
    assert manager(block) == "- name: lab-kueue\n  kubeconfig: penstock-lab.kubeconfig\n  namespaces: [vision]\n"

"""The image: its lock is a part of the tests' own, and it runs as the Containerfile says."""

import re
from pathlib import Path

from penstock.devcluster import penstock_image
from tests.conftest import ROOT
from tests.test_packaging import LOCKS, chosen, closure, here

LOCK = ROOT / "requirements" / "image.txt"
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text()


def test_the_image_gets_what_clusters_postgresql_and_object_stores_need_in_the_versions_that_are_tested() -> None:
    locked, tested = chosen(LOCK, here()), chosen(LOCKS["dev"], here())
    assert locked.items() <= tested.items()
    needed = set().union(*(closure("penstock", extra) for extra in ("kubernetes", "postgres", "s3"))) - {"penstock"}
    assert needed - locked.keys() == set()
    assert dict(penstock_image.pinned(LOCK.read_text())) == {name: str(version) for name, version in locked.items()}


def test_both_builders_write_an_image_that_runs_alike() -> None:
    settings = dict(
        re.findall(r"(\w+)=([^\s\\]+)", re.findall(r"^ENV (.*?)\n#", CONTAINERFILE, re.MULTILINE | re.DOTALL)[0])
    )
    ours = dict(text.split("=", 1) for text in penstock_image.RUNS["Env"])
    assert settings.items() <= ours.items()
    assert f"USER {penstock_image.RUNS['User']}\n" in CONTAINERFILE
    assert 'ENTRYPOINT ["penstock"]' in CONTAINERFILE
    assert penstock_image.RUNS["Entrypoint"] == ["penstock"]


def test_the_image_with_login_programs_has_those_that_the_pages_allow_at_named_versions_and_is_not_root() -> None:
    logins = (ROOT / "deploy" / "Containerfile.logins").read_text()
    allowed = set(re.findall(r"allow_exec: \[([\w-]+)\]", (ROOT / "docs" / "install.md").read_text()))
    assert allowed == {"aws", "kubelogin", "gke-gcloud-auth-plugin"}
    final = logins.rpartition("\nFROM ")[2]
    assert final.startswith("${IMAGE}\n")
    there = {Path(path).name for path in re.findall(r"^COPY --from=\w+ \S+ (\S+)$", final, re.MULTILINE)}
    assert there == allowed  # aws is a folder of its own, on the PATH
    assert "PATH=/opt/penstock/bin:/opt/aws/bin:" in final
    assert final.endswith("USER 10001:10001\n")
    assert re.findall(r"^ARG (AWS_CLI|KUBELOGIN)=v?\d+\.\d+\.\d+$", logins, re.MULTILINE) == ["AWS_CLI", "KUBELOGIN"]


def test_the_containerfile_takes_only_the_wheel_and_the_lock() -> None:
    ignored = Path(ROOT / ".containerignore").read_text().split()
    assert ignored == ["*", "!requirements/image.txt", "!dist/*.whl"]
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE)
    assert copied == ["requirements/image.txt dist/*.whl"]

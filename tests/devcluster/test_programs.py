"""Building the programs, with a Go that only pretends: once, with words on the way, and whole or not at all."""

import json
import os
import threading
from pathlib import Path

import pytest

from penstock.core.errors import BadInput
from penstock.devcluster import programs, s3_server

#: Notes that it was asked, names packages as Go does, and makes the file that it was told to make.
GO = """#!/bin/sh
echo "$*" >> "$ASKED"
echo "k8s.io/api/core/v1" >&2
[ -n "$GO_FAILS" ] && { echo "no such host" >&2; exit 1; }
if [ "$1" = install ]; then
  for module; do :; done
  name="${module##*/}"
  mkdir -p "$GOBIN"; touch "$GOBIN/${name%@*}"; exit
fi
if [ "$1" = mod ]; then
  echo "{\\"Dir\\": \\"$SOURCE\\"}"; exit
fi
while [ "$1" != -o ]; do shift; done
touch "$2"
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    go = tmp_path / "bin" / "go"
    go.write_text(GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.delenv("PENSTOCK_KUBE_BIN", raising=False)
    return tmp_path / "asked"


@pytest.mark.usefixtures("asked")
def test_all_programs_are_there_afterwards_under_their_usual_names() -> None:
    said: list[str] = []
    assert not programs.are_available()
    where = programs.build(said.append)
    assert programs.are_available()
    assert programs.program("kubelet") == where / "kubelet"
    assert (where / "etcd").resolve() == where / "kube"
    assert [" ".join(line.split()[1:4]) for line in said] == [
        f"Kubernetes {programs.KUBERNETES} with",
        f"kwok {programs.KWOK}: about",
        "the S3 server",
        f"helm {programs.HELM}: about",
    ]
    assert s3_server.program_path() == s3_server.cached()


def test_the_s3_server_alone_is_built_once_and_not_where_there_is_one(asked: Path) -> None:
    for _ in range(2):
        programs.build_s3(lambda _: None)
    assert asked.read_text().splitlines() == [f"install -v -trimpath {s3_server.MODULE}"]
    assert s3_server.program_path() == s3_server.cached()
    assert not programs.are_available()
    s3_server.cached().rename(asked.parent / "bin" / "versitygw")
    (asked.parent / "bin" / "versitygw").chmod(0o755)
    programs.build_s3(lambda _: None)
    assert s3_server.program_path() == asked.parent / "bin" / "versitygw"
    assert len(asked.read_text().splitlines()) == 1


def test_two_who_ask_at_once_build_once(asked: Path) -> None:
    both = [threading.Thread(target=programs.build, args=(lambda _: None,)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(asked.read_text().splitlines()) == 4  # Kubernetes, kwok, the S3 server and helm


def test_karpenter_is_built_once_beside_the_others_with_a_cloud_that_may_be_empty(
    asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "karpenter"
    provider = source / "kwok/cloudprovider/cloudprovider.go"
    for file in (source / "pkg/apis/crds/pools.yaml", source / "kwok/apis/crds/classes.yaml", provider):
        file.parent.mkdir(parents=True)
        file.write_text(f"before\n{programs.KARPENTER_LAUNCHES}after\n")
    monkeypatch.setenv("SOURCE", str(source))
    for _ in range(2):
        programs.build(lambda _: None)
    before = asked.read_text()
    programs.build(lambda _: None, karpenter=True)
    where = programs.build(lambda _: None, karpenter=True)
    added = asked.read_text().removeprefix(before).splitlines()
    assert [line.split()[0] for line in added] == ["mod", "build"]
    assert added[1].endswith("./kwok")
    assert (where / "karpenter").resolve() == where / f"karpenter-{programs.KARPENTER}"
    crds = sorted(file.name for file in (programs.program("karpenter-definitions") / "crds").iterdir())
    assert crds == ["classes.yaml", "pools.yaml"]
    assert "stock-out" not in provider.read_text()  # Go's own copy is left alone
    programs._give_it_stock_outs(provider)
    assert provider.read_text() == f"before\n{programs.STOCK_OUTS}{programs.KARPENTER_LAUNCHES}after\n"


def test_cluster_api_is_built_in_a_module_of_ours_with_its_definitions(
    asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "cluster-api/core/config"
    for file in (config / "crd/bases/machines.yaml", config / "webhook/manifests.yaml"):
        file.parent.mkdir(parents=True)
        file.write_text("{}")
    monkeypatch.setenv("SOURCE", str(tmp_path / "cluster-api"))
    for _ in range(2):
        programs.build(lambda _: None)
    before = asked.read_text()
    programs.build(lambda _: None, cluster_api=True)
    where = programs.build(lambda _: None, cluster_api=True)
    added = asked.read_text().removeprefix(before).splitlines()
    assert [line.split()[0] for line in added] == ["build", "mod"]
    assert added[0].endswith("sigs.k8s.io/cluster-api/core")
    assert (where / "cluster-api").resolve() == where / f"cluster-api-{programs.CLUSTER_API}"
    definitions = programs.program("cluster-api-definitions")
    assert [file.name for file in (definitions / "crds").iterdir()] == ["machines.yaml"]
    assert (definitions / "webhooks.yaml").exists()


def test_the_recipe_of_cluster_api_is_for_its_version() -> None:
    assert f"sigs.k8s.io/cluster-api v{programs.CLUSTER_API}" in (programs.RECIPES / "capi/go.mod").read_text()


def test_the_autoscaler_is_built_for_its_toy_cloud_alone_with_the_definition_of_its_release(
    asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = tmp_path / "apis/config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml"
    definition.parent.mkdir(parents=True)
    definition.write_text("spec: {versions: [{name: v1beta1, storage: false}, {name: v1, storage: true}]}")
    monkeypatch.setenv("SOURCE", str(tmp_path / "apis"))
    for _ in range(2):
        programs.build(lambda _: None)
    before = asked.read_text()
    programs.build(lambda _: None, autoscaler=True)
    where = programs.build(lambda _: None, autoscaler=True)
    added = asked.read_text().removeprefix(before).splitlines()
    assert [line.split()[0] for line in added] == ["build", "mod"]
    assert "-tags kwok" in added[0]
    assert added[1].endswith("k8s.io/autoscaler/cluster-autoscaler/apis")  # of the version in our recipe
    assert (where / "cluster-autoscaler").resolve() == where / f"cluster-autoscaler-{programs.AUTOSCALER}"
    (crd,) = (programs.program("cluster-autoscaler-definitions") / "crds").iterdir()
    assert json.loads(crd.read_text()) == {"spec": {"versions": [{"name": "v1", "storage": True}]}}


@pytest.mark.usefixtures("asked")
def test_a_build_that_fails_says_why_and_leaves_nothing_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GO_FAILS", "1")
    with pytest.raises(BadInput, match=r"kubernetes could not be built: .*no such host"):
        programs.build(lambda _: None)
    assert not programs.are_available()


def test_without_go_one_sentence_says_so(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(asked.parent / "empty"))
    with pytest.raises(BadInput, match="needs Go"):
        programs.build(lambda _: None)


def test_programs_of_ones_own_are_taken_from_where_one_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_KUBE_BIN", str(tmp_path))
    (tmp_path / "kubectl").touch()
    assert programs.program("kubectl") == tmp_path / "kubectl"
    with pytest.raises(BadInput, match="there is no kubelet in it"):
        programs.program("kubelet")

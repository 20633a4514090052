"""What `-f` names, as kubectl reads it: files, folders, documents, lists, and what is wrong where."""

import json
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.cli.manifest_files import documents
from penstock.core.errors import BadInput


def read(*paths: object, recursive: bool = False) -> list[tuple[str, str]]:
    """Place, and name or error."""
    entries = documents([str(path) for path in paths], recursive=recursive)
    return [(each.place.rpartition("/")[2], each.error or each.manifest["metadata"]["name"]) for each in entries]


def thing(name: str) -> str:
    return f"{{kind: ConfigMap, apiVersion: v1, metadata: {{name: {name}}}}}"


def test_files_folders_documents_and_lists_are_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    (folder / "more").mkdir(parents=True)
    (folder / "b.yml").write_text(thing("b"))
    (folder / "a.yaml").write_text(f"---\n{thing('a1')}\n---\n---\n{thing('a2')}\n")
    (folder / "README.md").write_text("not one")
    (folder / "more" / "c.json").write_text(f"{{kind: List, items: [{thing('c1')}, {thing('c2')}]}}")
    file = tmp_path / "one.txt"
    file.write_text(thing("one"))
    flat = [("one.txt, document 1", "one"), ("a.yaml, document 1", "a1"), ("a.yaml, document 3", "a2")]
    flat.append(("b.yml, document 1", "b"))
    assert read(file, folder) == flat
    deep = [("c.json, document 1, item 1", "c1"), ("c.json, document 1, item 2", "c2")]
    assert read(file, folder, recursive=True) == flat + deep
    with pytest.raises(BadInput, match="no file in this folder ends in"):
        read(tmp_path)


def test_what_cannot_be_read_is_told_with_its_place_and_the_other_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{thing('a')}\n---\n{{kind: [\n---\n{thing('lost')}\n")
    (tmp_path / "b.yaml").write_text(f"hello\n---\n{thing('b')}\n")
    (tmp_path / "c.yaml").write_text("{kind: X, when: 2026-11-17}")
    (a, good), (bad, syntax), (b, word), (second, second_name), (dated, date) = read(tmp_path)
    assert (a, good, second, second_name) == ("a.yaml, document 1", "a", "b.yaml, document 2", "b")
    assert (bad, syntax[:10], b) == ("a.yaml, document 2", "not YAML (", "b.yaml, document 1")
    assert "is not a Kubernetes object" in word
    assert dated == "c.yaml, document 1"
    assert "is not JSON" in date
    ((name, missing),) = read(tmp_path / "no.yaml")
    assert name == "no.yaml"
    assert missing


def test_a_cluster_that_does_not_answer_is_asked_once_and_what_was_not_tried_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(f"{thing('a')}\n---\n{thing('b')}\n---\n{thing('c')}\n")
    user = {"name": "u", "user": {"token": "t"}}
    nobody = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    config = {"clusters": [nobody], "users": [user], "contexts": contexts, "current-context": "x"}
    (tmp_path / "k").write_text(json.dumps(config))
    assert main(["kubectl", "apply", "--kubeconfig", str(tmp_path / "k"), "-f", str(tmp_path / "a.yaml")]) == 1
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"Error: {tmp_path}/a.yaml, document 1: ")
    assert last == "1 of 3 documents failed, 2 were not tried. Nothing that was applied is undone."

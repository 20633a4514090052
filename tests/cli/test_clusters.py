"""Kubernetes objects from a file: whatever it holds, it is JSON of a bounded size, or one sentence."""

from pathlib import Path

import pytest

from penstock.cli.clusters import documents
from penstock.core.errors import BadInput

BOMB = "kind: Job\na0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]\n" for k in range(1, 40))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (BOMB, "more than 100,000 words, lists and keys; this cannot be a Job."),
        ("kind: Job\na: &a [*a]", "more than 100,000 words, lists and keys; this cannot be a Job."),
        ("a: [" + "a," * 200_000 + "]", "more than 100,000 words, lists and keys; this cannot be a Job."),
        ("[" * 400_000 + "]" * 400_000, "nested too deeply for a Job."),
        ("".join(f"%TAG !a{k}! tag:x:\n" for k in range(9_000)) + "---\na: 1", "more than 100 YAML directives (%...)"),
        ("kind: Job\nmetadata: {made: 2026-01-01}", "'2026-01-01' is not JSON, as a Job must be"),
        ("kind: Job\na: .inf", "'inf' is not JSON"),
        ("kind: Job\na: !!set {a}", "is not JSON"),
        ("kind: Job\na: !!python/name:os.system", "not YAML"),
        ("kind: Job\na: " + "9" * 9_000, "not YAML"),
    ],
)
def test_what_is_no_kubernetes_object_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as bad:
        documents(str(path))
    assert sentence in str(bad.value)

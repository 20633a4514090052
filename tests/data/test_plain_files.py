"""Files in folders that others may write to: what they have put there is neither followed nor kept."""

import os
import stat
import threading
from pathlib import Path

import pytest

from penstock.cli.connect import _merge
from penstock.config import read_sites
from penstock.core.errors import BadInput
from penstock.data.plain_files import replace_with

SITES = "currency: EUR\n"
BLOCK = """- name: lab
  driver: local
  offers: [{name: gpu, term: owned, gpu: A100, gpus_per_node: 4, nodes: 1}]
"""


def test_a_file_is_replaced_whole_and_nothing_beside_it_is_written_through(tmp_path: Path) -> None:
    """`penstock connect` wrote what it knew of a cluster through a link called `.sites.yaml.new`, wherever that led."""
    victim, file = tmp_path / "victim", tmp_path / "sites.yaml"
    victim.write_text("mine")
    for name in (".sites.yaml.new", "sites.yaml.new"):
        (tmp_path / name).symlink_to(victim)
    file.write_text(SITES)
    file.chmod(0o640)
    assert _merge(file, BLOCK, "lab") == "added"
    assert victim.read_text() == "mine"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [site.id for site in read_sites(str(file)).sites] == ["lab"]
    assert len(list(tmp_path.iterdir())) == 4  # and nothing is left beside it


def test_a_link_of_ones_own_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("before")
    link.symlink_to(file)
    replace_with(link, "after")
    assert (link.is_symlink(), file.read_text()) == (True, "after")


def test_a_reader_sees_the_file_of_before_or_the_new_one(tmp_path: Path) -> None:
    file, over, seen = tmp_path / "file", threading.Event(), set[str]()
    replace_with(file, "a" * 100_000)

    def read() -> None:
        while not over.is_set():
            seen.add(file.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for k in range(50):
        replace_with(file, "ab"[k % 2] * 100_000)
    over.set()
    reader.join()
    assert seen <= {"a" * 100_000, "b" * 100_000}


def test_what_is_no_sites_file_is_refused_and_stays(tmp_path: Path) -> None:
    pipe, bytes_ = tmp_path / "pipe", tmp_path / "bytes"
    os.mkfifo(pipe)
    bytes_.write_bytes(b"currency: \xff\n")
    for file, why in ((pipe, "is no plain file"), (bytes_, "is not UTF-8")):
        with pytest.raises(BadInput, match=why):
            _merge(file, BLOCK, "lab")
    assert bytes_.read_bytes() == b"currency: \xff\n"

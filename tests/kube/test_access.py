"""Which kubeconfigs are used, and which are refused before anything is run or sent (row 21 of the faults)."""

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.core.errors import BadInput
from penstock.kube.access import Access, connect


def kubeconfig(folder: Path, user: dict[str, Any], server: str = "https://127.0.0.1:1", insecure: bool = False) -> str:
    path = folder / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": insecure}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
                "current-context": "x",
            }
        )
    )
    return str(path)


def test_a_kubeconfig_with_a_token_is_used_with_its_own_namespace(tmp_path: Path) -> None:
    cluster = connect(Access(kubeconfig(tmp_path, {"token": "t"})))
    assert (cluster.context, cluster.namespace) == ("x", "n")
    asyncio.run(cluster.close())


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("http://cluster.example", "by http; only https"),
        ("https://169.254.169.254", "credentials are; refused"),
        ("https://[fd00:ec2::254]:443", "credentials are; refused"),
        ("https://[fe80::1]", "credentials are; refused"),
        ("https://[fe80::1%25eth0]", "credentials are; refused"),
        ("https://[::ffff:169.254.169.254]", "credentials are; refused"),
        ("https://[::ffff:a9fe:a9fe]", "credentials are; refused"),
        ("https://[::169.254.169.254]", "credentials are; refused"),
        ("https://[64:ff9b::a9fe:a9fe]", "credentials are; refused"),
        ("https://[2002:a9fe:a9fe::1]", "credentials are; refused"),
        ("https://[FD00:EC2:0:0::254]", "credentials are; refused"),
        ("https://2852039166", "credentials are; refused"),
        ("https://0xa9fea9fe", "credentials are; refused"),
        ("https://0xA9.0376.43518", "credentials are; refused"),
        ("https://0251.0376.0251.0376", "credentials are; refused"),
        ("https://1684301000", "credentials are; refused"),
        ("https://\u2460\u2465\u2468.254.169.254", "credentials are; refused"),
        ("https://METADATA.google.internal./x", "credentials are; refused"),
        ("cluster.example", "by no scheme"),
    ],
)
def test_row_21_plain_http_and_metadata_addresses_are_refused(tmp_path: Path, server: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        connect(Access(kubeconfig(tmp_path, {"token": "t"}, server)))


def test_a_cluster_that_is_not_checked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="certificate-authority"):
        connect(Access(kubeconfig(tmp_path, {"token": "t"}, insecure=True)))


@pytest.mark.parametrize("allowed", [(), ("aws",), ("login", "./login")])
def test_row_21_a_login_program_that_was_not_allowed_is_never_run(tmp_path: Path, allowed: tuple[str, ...]) -> None:
    program = tmp_path / "login"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(program)}}
    with pytest.raises(BadInput, match="allow_exec"):
        connect(Access(kubeconfig(tmp_path, user), allow_exec=allowed))
    assert not (tmp_path / "ran").exists()


def test_a_login_program_may_be_allowed_by_name_or_by_its_whole_path(tmp_path: Path) -> None:
    for command in ("aws", "/usr/bin/aws"):
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": command}}
        asyncio.run(connect(Access(kubeconfig(tmp_path, user), allow_exec=(command,))).close())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be used"),
        ("[]", "cannot be used"),
        ("clusters: 3", "cannot be used"),
        ("clusters: []\ncontexts: []\n", "No current context"),
        ("a: [", "cannot be used"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(BadInput, match=words) as raised:
        connect(Access(str(tmp_path / "config")))
    assert "\n" not in str(raised.value)


def test_a_context_or_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="moon"):
        connect(Access(kubeconfig(tmp_path, {"token": "t"}), "moon"))
    with pytest.raises(BadInput, match="nowhere"):
        connect(Access(str(tmp_path / "nowhere")))
    with pytest.raises(BadInput, match="service account of this pod"):
        connect(Access(in_cluster=True))

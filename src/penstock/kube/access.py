"""From a kubeconfig, or the account of the pod we run in, to a connection. Whoever wants a `Cluster` begins here.

Kubeconfig files and clouds' ways to log in are lightkube's; here is what we refuse before a byte is sent or a program
is run: programs that were not allowed by name, connections that anybody can read, and addresses that hand out a
machine's own credentials.
"""

import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.core.errors import BadInput
from penstock.core.values import value

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

    from penstock.kube.client import Cluster
    from penstock.kube.wire import Wire

METADATA: Final = ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "metadata.google.internal", "metadata")


@value
class Access:
    """Where a cluster is and as whom to ask. Relative paths are from the working folder."""

    kubeconfig: str = ""  # empty: $KUBECONFIG or ~/.kube/config
    context: str = ""  # empty: the file's current one
    in_cluster: bool = False  # the account of the pod that Penstock runs in
    allow_exec: tuple[
        str, ...
    ] = ()  # programs that a kubeconfig may run to log in, by name: aws, gke-gcloud-auth-plugin


def connect(access: Access) -> "Cluster":
    """Nothing is sent yet. Whatever is wrong with the file is a `BadInput` of one sentence."""
    from penstock.kube.client import Cluster

    config = _config(access)
    _check(config, access)
    return Cluster(_wire(config), config.context_name, config.namespace)


def _config(access: Access) -> "SingleConfig":
    import yaml
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.core.exceptions import ConfigError

    try:
        file = KubeConfig.from_service_account() if access.in_cluster else KubeConfig.from_file(_path(access))
        config = file.get(access.context or None)
    except (ConfigError, yaml.YAMLError, KeyError, TypeError, ValueError, OSError, AttributeError) as error:
        raise BadInput(f"{_what(access)} cannot be used ({_words(error)}).") from None
    if config is None or config.user is None:
        raise BadInput(f"{_what(access)} names no user for context '{access.context}'; give it one with a token.")
    return config


def _path(access: Access) -> Path:
    return Path(access.kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config")).expanduser()


def _what(access: Access) -> str:
    return "The service account of this pod" if access.in_cluster else f"The kubeconfig {_path(access)}"


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) if str(error) else type(error).__name__


def _check(config: "SingleConfig", access: Access) -> None:
    what, context = _what(access), config.context_name
    server = urlsplit(config.cluster.server)
    if server.scheme != "https":
        raise BadInput(f"{what} reaches '{context}' by {server.scheme or 'no scheme'}; only https is used.")
    if _hands_out_credentials(server.hostname or ""):
        raise BadInput(
            f"{what} points '{context}' to {server.hostname}, where a machine's own credentials are; refused."
        )
    if config.cluster.insecure:
        raise BadInput(f"{what} does not check who '{context}' is; give it the certificate-authority of the cluster.")
    user = config.user
    if user is not None and user.exec is not None and not _is_allowed(user.exec.command, access.allow_exec):
        raise BadInput(
            f"{what} runs '{user.exec.command}' to log in to '{context}'; if that is meant, write its name under"
            " 'allow_exec' of the site."
        )
    if user is not None and user.auth_provider is not None:
        raise BadInput(f"{what} logs in to '{context}' by an auth-provider, which Kubernetes has dropped; use a token.")


def _hands_out_credentials(host: str) -> bool:
    host = host.strip("[]").rstrip(".").lower()
    try:
        return host in METADATA or ipaddress.ip_address(host).is_link_local
    except ValueError:
        return False


def _is_allowed(command: str, allowed: Sequence[str]) -> bool:
    """By the name it is found under, or by its whole path. `./aws` is not the `aws` that somebody meant."""
    return command in allowed and (PurePath(command).name == command or PurePath(command).is_absolute())


def _wire(config: "SingleConfig") -> "Wire":
    from lightkube.config.client_adapter import user_auth, verify_cluster
    from lightkube.core.exceptions import ConfigError

    from penstock.kube.wire import Https

    assert config.user is not None  # `_config` saw to that
    try:
        verify = verify_cluster(config.cluster, config.user, config.abs_file)
        auth = user_auth(config.user)
    except (ConfigError, OSError, ValueError) as error:
        raise BadInput(f"The certificates of '{config.context_name}' cannot be used ({_words(error)}).") from None
    return Https(config.cluster.server, verify, auth)

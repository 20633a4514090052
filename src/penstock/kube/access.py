"""Connect to a cluster: from a kubeconfig file, a kubeconfig in a Secret, or the pod's own service account. Everyone
who needs a `Cluster` calls `connect`.

lightkube reads kubeconfigs and logs in to clouds. This module refuses, before anything is sent or run: login programs
that are not allowed by name, connections without TLS, and addresses that hand out a machine's own credentials.
"""

import base64
import ipaddress
import json
import os
import socket
import ssl
import unicodedata
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from penstock.core.errors import BadInput
from penstock.core.values import value
from penstock.kube.token_renewal import KubeconfigFile, TokenRenewal, TokenStore, life_asked, user_of

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig
    from lightkube.config.models import User

    from penstock.kube.client import Cluster
    from penstock.kube.transport import Transport

SECRET_KEY: Final = "kubeconfig"  #: the key of a Secret that holds a kubeconfig
SECRET_SECONDS: Final = 10.0
LOGIN: Final = "client.authentication.k8s.io"
#: IPv6 networks whose addresses end in one of IPv4: NAT64, and those that are compatible with it.
CARRY_IPV4: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96")))
METADATA: Final = ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "metadata.google.internal", "metadata")


@value
class Access:
    """Where a cluster is and which account to use. Relative paths start at the working folder."""

    kubeconfig: str = ""  # empty: $KUBECONFIG or ~/.kube/config
    context: str = ""  # empty: the file's current context
    in_cluster: bool = False  # use the service account of the pod that Penstock runs in
    #: Programs that a kubeconfig may run to log in, by name: aws, gke-gcloud-auth-plugin.
    allow_exec: tuple[str, ...] = ()
    secret: str = (
        ""  # `NAME` or `NAMESPACE/NAME`, in the cluster that Penstock runs in: its key `kubeconfig` is the file
    )


def connect(access: Access) -> "Cluster":
    """Make a client; nothing is sent yet. Any error in the file is a `BadInput` of one sentence."""
    from penstock.kube.client import Cluster

    config = _config(access)
    _check(config, access)
    return Cluster(_transport(config, _renewal(config, access)), config.context_name, config.namespace)


@value
class Endpoint:
    """An API server as a kubeconfig names it."""

    context: str
    server: str
    trust: ssl.SSLContext
    authority: bytes  # the certificates that the file trusts; empty: the system's
    proxy: str = ""  # `proxy-url` of the file, which we do not use


def endpoint(access: Access) -> Endpoint:
    """Where the kubeconfig points to, by the same rules as `connect`; nothing is sent."""
    from lightkube.config.client_adapter import verify_cluster

    config = _config(access)
    _check(config, access)
    cluster = config.cluster
    assert config.user is not None  # checked in `_config`
    try:
        trust = verify_cluster(cluster, config.user, config.abs_file)
        file = Path(config.abs_file(cluster.certificate_auth)) if cluster.certificate_auth else None
        held = base64.b64decode(cluster.certificate_auth_data or "")
    except (OSError, ValueError) as error:
        raise BadInput(f"The certificates of '{config.context_name}' cannot be used ({_words(error)}).") from None
    authority = file.read_bytes() if file else held
    return Endpoint(config.context_name, cluster.server, trust, authority, _proxy_of(access, config.context.cluster))


def _proxy_of(access: Access, cluster: str) -> str:
    if access.in_cluster or access.secret:
        return ""
    listed = KubeconfigFile(_path(access)).load()["clusters"]
    return next((str(entry["cluster"].get("proxy-url") or "") for entry in listed if entry["name"] == cluster), "")


def _config(access: Access) -> "SingleConfig":
    import yaml
    from lightkube.core.exceptions import ConfigError

    try:
        config = _file(access).get(access.context or None)
    except HTTPError as error:
        may = "; see 'penstock manifests rbac --secret'" if error.code in (401, 403) else ""
        raise BadInput(f"{_what(access)} cannot be read ({_words(error)}){may}.") from None
    except (ConfigError, yaml.YAMLError, KeyError, TypeError, ValueError, OSError, AttributeError) as error:
        raise BadInput(f"{_what(access)} cannot be used ({_words(error)}).") from None
    if config is None or config.user is None:
        raise BadInput(f"{_what(access)} names no user for context '{access.context}'; give it one with a token.")
    return config


def _file(access: Access) -> "KubeConfig":
    from lightkube.config.kubeconfig import KubeConfig

    if access.secret:
        return KubeConfig.from_dict(_OwnSecret(access.secret).load())
    return KubeConfig.from_service_account() if access.in_cluster else KubeConfig.from_file(_path(access))


class _OwnSecret:
    """A kubeconfig in a Secret, read and written with the service account of our pod."""

    def __init__(self, secret: str) -> None:
        self.namespace, _, self.name = secret.rpartition("/")

    def load(self) -> dict[str, Any]:
        import yaml

        held = self._ask("GET").get("data") or {}
        if SECRET_KEY not in held:
            raise ValueError(f"it has no key '{SECRET_KEY}'")
        kubeconfig = yaml.safe_load(base64.b64decode(held[SECRET_KEY]))
        if not isinstance(kubeconfig, dict):
            raise ValueError("it is no kubeconfig")
        return kubeconfig

    def save(self, kubeconfig: dict[str, Any]) -> None:
        text = base64.b64encode(json.dumps(kubeconfig).encode()).decode()
        self._ask("PATCH", json.dumps({"data": {SECRET_KEY: text}}).encode())

    def _ask(self, method: str, content: bytes | None = None) -> dict[str, Any]:
        from lightkube.config.client_adapter import verify_cluster
        from lightkube.config.kubeconfig import KubeConfig

        own = KubeConfig.from_service_account().get()
        assert own is not None  # that file has one context
        assert own.user is not None
        url = f"{own.cluster.server}/api/v1/namespaces/{self.namespace or own.namespace}/secrets/{self.name}"
        headers = {"Authorization": f"Bearer {own.user.token}", "Content-Type": "application/merge-patch+json"}
        asked = Request(url, content, headers, method=method)
        trust = verify_cluster(own.cluster, own.user, own.abs_file)
        with urlopen(asked, timeout=SECRET_SECONDS, context=trust) as answer:
            secret: dict[str, Any] = json.load(answer)
        return secret


def _path(access: Access) -> Path:
    return Path(access.kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config")).expanduser()


def _what(access: Access) -> str:
    if access.secret:
        return f"The kubeconfig in Secret {access.secret}"
    return "The service account of this pod" if access.in_cluster else f"The kubeconfig {_path(access)}"


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) if str(error) else type(error).__name__


def _check(config: "SingleConfig", access: Access) -> None:
    source, context = _what(access), config.context_name
    server = urlsplit(config.cluster.server)
    if server.scheme != "https":
        raise BadInput(f"{source} reaches '{context}' by {server.scheme or 'no scheme'}; only https is used.")
    if _hands_out_credentials(server.hostname or ""):
        raise BadInput(
            f"{source} points '{context}' to {server.hostname}, where a machine's own credentials are; refused."
        )
    if config.cluster.insecure:
        raise BadInput(f"{source} does not check who '{context}' is; give it the certificate-authority of the cluster.")
    user = config.user
    if access.secret and (config.cluster.certificate_auth or (user is not None and _names_files(user))):
        raise BadInput(
            f"{source} names files of this machine; write what is in them into it, as '...-data' or 'token'."
        )
    if user is not None and user.exec is not None and not _is_allowed(user.exec.command, access.allow_exec):
        raise BadInput(
            f"{source} runs '{user.exec.command}' to log in to '{context}'; if that is meant, write its name under"
            " 'allow_exec' of the site."
        )
    if user is not None and user.auth_provider is not None:
        raise BadInput(
            f"{source} logs in to '{context}' by an auth-provider, which Kubernetes has dropped; use a token."
        )


def _names_files(user: "User") -> bool:
    return bool(user.token_file or user.client_cert or user.client_key)


def _hands_out_credentials(host: str) -> bool:
    host = unicodedata.normalize("NFKC", host).strip("[]").rstrip(".").lower()
    address = _address(host)
    return host in METADATA or (address is not None and (address.is_link_local or str(address) in METADATA))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that the system's own reader makes of it; None: it is a name. One address has many spellings:
    decimal, hex, octal, short, and within an IPv6 address.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return None
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    for network in CARRY_IPV4:
        if address in network:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def _is_allowed(command: str, allowed: Sequence[str]) -> bool:
    """By the bare name, or by the whole path. `./aws` is not the allowed `aws`."""
    return command in allowed and (PurePath(command).name == command or PurePath(command).is_absolute())


def _renewal(config: "SingleConfig", access: Access) -> TokenRenewal | None:
    """For a token that `penstock connect` marked: it is replaced before it ends."""
    if access.in_cluster or config.user is None or not config.user.token or config.context.user is None:
        return None
    store: TokenStore = _OwnSecret(access.secret) if access.secret else KubeconfigFile(_path(access))
    try:
        life_s = life_asked(user_of(store.load(), config.context.user))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if not life_s:
        return None
    renewal = TokenRenewal(store, config.context.user, life_s)
    renewal.take(config.user.token)
    return renewal


def _transport(config: "SingleConfig", renewal: TokenRenewal | None) -> "Transport":
    from lightkube.config.client_adapter import user_auth, verify_cluster
    from lightkube.core.exceptions import ConfigError

    from penstock.kube.transport import HttpsTransport

    assert config.user is not None  # checked in `_config`
    try:
        verify = verify_cluster(config.cluster, config.user, config.abs_file)
        auth = user_auth(_with_login(config.user))
    except (ConfigError, OSError, ValueError) as error:
        raise BadInput(f"The certificates of '{config.context_name}' cannot be used ({_words(error)}).") from None
    return HttpsTransport(config.cluster.server, verify, auth, renewal)


def _with_login(user: "User") -> "User":
    """Give the login program its request in the environment, as kubectl does. lightkube does not, and knows only the
    beta versions of the answer; the final version has the same fields.
    """
    if user.exec is None:
        return user
    from lightkube.config.models import NameValue
    from msgspec.structs import replace

    request = {"apiVersion": user.exec.apiVersion, "kind": "ExecCredential", "spec": {"interactive": False}}
    env = [*(user.exec.env or ()), NameValue("KUBERNETES_EXEC_INFO", json.dumps(request))]
    version = f"{LOGIN}/v1beta1" if user.exec.apiVersion == f"{LOGIN}/v1" else user.exec.apiVersion
    return replace(user, exec=replace(user.exec, apiVersion=version, env=env))

"""The network of a dev cluster with real nodes: a bridge on this machine, and a veth pair to each node. `kubelet_nodes`
calls it.

In 10.K.0.0/16, for a free K: nodes in 10.K.0.0/24 (this machine is .1), pods of node n in 10.K.(n+1).0/24, services in
10.K.255.0/24. The API server listens at the first service address, where every pod looks for it, so service accounts
work in pods although nothing forwards services here.
"""

import json
import subprocess
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.core.errors import BadInput
from penstock.devcluster import refcount

FIRST_K, LAST_K = 130, 249
NODES: Final = 16  #: at most, of one real cluster
HERE: Final = "ps"  #: prefix of our devices' names


class Network(NamedTuple):
    bridge: str
    k: int

    @property
    def host(self) -> str:
        """This machine's address for pods of any cluster; servers for them listen here."""
        return f"10.{self.k}.0.1"

    @property
    def services(self) -> str:
        return f"10.{self.k}.255.0/24"

    @property
    def api(self) -> str:
        return f"10.{self.k}.255.1"

    def node(self, number: int) -> str:
        return f"10.{self.k}.0.{10 + number}"

    def pods(self, number: int) -> str:
        return f"10.{self.k}.{1 + number}.0/24"

    def routes(self, number: int) -> list[tuple[str, str]]:
        """From this node to the pods of its neighbours, also of those to come, and to this machine for all else."""
        others = [(self.pods(other), self.node(other)) for other in range(NODES) if other != number]
        return [("default", self.host), *others]


def make(mark: str, number: int) -> Network:
    """Create the bridge of a cluster; concurrent callers get different networks."""
    with refcount.locked():
        network = Network(f"{HERE}{mark}{number}", next(_free()))
        ip("link", "add", network.bridge, "type", "bridge")
        ip("address", "add", f"{network.host}/24", "dev", network.bridge)
        ip("address", "add", f"{network.api}/32", "dev", network.bridge)
        ip("link", "set", network.bridge, "up")
    return network


def connect(network: Network, number: int, pid: int) -> None:
    """A veth pair from the bridge to `eth0` of that process's network namespace; the kernel removes it with the
    process.
    """
    cable = f"{network.bridge}n{number}"
    ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    ip("link", "set", cable, "master", network.bridge, "up")
    ip("route", "replace", network.pods(number), "via", network.node(number))


def remove(mark: str) -> None:
    for link in _ip_json("link"):
        if str(link["ifname"]).startswith(f"{HERE}{mark}"):
            ip("link", "delete", str(link["ifname"]), may_fail=True)  # a link may just have gone with its node


def _free() -> Iterator[int]:
    taken = json.dumps([_ip_json("address"), _ip_json("route")])
    return (k for k in range(FIRST_K, LAST_K) if f'"10.{k}.' not in taken)


def _ip_json(what: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(ip("-json", what, "show") or "[]")
    return rows


def ip(*args: str, may_fail: bool = False) -> str:
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise BadInput(f"ip {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout

"""Real nodes: a kubelet and a containerd each, in their own namespaces, with simulated GPUs.

`cluster` calls it. It needs root and Debian's containerd, runc and CNI plugins; `prepare` installs them, `lacks` lists
what is missing. A node is one process to the rest of the machine (`node_init.py`): killing it is a power cut of the
node.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.core.errors import BadInput
from penstock.devcluster import images, network, processes
from penstock.devcluster.network import Network
from penstock.devcluster.processes import Process
from penstock.devcluster.programs import Say, program

PACKAGES: Final = ("containerd", "runc", "containernetworking-plugins", "busybox-static", "iproute2")
CNI: Final = Path("/usr/lib/cni")
CGROUPS: Final = Path("/sys/fs/cgroup")
INIT: Final = Path(__file__).with_name("node_init.py")
DOOR_S: Final = 30
CGROUP_S: Final = 10


class KubeletNode(NamedTuple):
    name: str
    folder: Path
    mark: str

    @property
    def process(self) -> Process:
        return Process(self.folder, "node", self.mark)

    @property
    def cgroup(self) -> str:
        return f"{cgroups_of(self.mark)}-{self.folder.parent.name}-{self.name}"


def start(node: KubeletNode, net: Network, kubeconfig: Path, dns: str = "") -> None:
    """Returns when its network is up; Kubernetes sees the node some seconds later. `dns`: the domain that pods ask the
    network's `host` about.
    """
    number = _free_number(node.folder.parent)
    node.folder.mkdir()
    for controller in _controllers():
        (controller / node.cgroup).mkdir(exist_ok=True)
    pipe = node.folder / "door"
    os.mkfifo(pipe)
    _write_files(node, number, net, kubeconfig, {"clusterDNS": [net.host], "clusterDomain": dns} if dns else {})
    node.process.start([
        "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--uts", "--ipc",
        sys.executable, "-I", str(INIT), str(node.folder / "spec.json"),
    ])  # fmt: skip
    writer = _opened(pipe, node.process)
    network.connect(net, number, node.process.pid)
    os.close(writer)


def add_image(node: KubeletNode, archive: Path) -> None:
    """One more image on a node that runs."""
    there = node.folder / archive.name
    shutil.copy(archive, there)
    inside = ["nsenter", f"--target={node.process.pid}", "--mount"]
    command = ["ctr", "--namespace", "k8s.io", "images", "import", "--no-unpack", f"/run/node/{archive.name}"]
    done = subprocess.run([*inside, *command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    there.unlink()
    if done.returncode:
        raise BadInput(f"The image was not added to {node.name}: {done.stderr.strip()[-300:]}")


def end(mark: str) -> None:
    """Remove what dead processes leave behind: the bridge and empty cgroups."""
    if os.geteuid() != 0 or not _are_installed():
        return
    network.remove(mark)
    for controller in _controllers():
        for group in controller.glob(f"{cgroups_of(mark)}-*"):
            _remove_cgroup(group)


def kill(node: KubeletNode) -> None:
    """A power cut; on return nothing runs on it."""
    if pid := node.process.pid:
        inside = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        processes.end([*map(int, inside), pid])


def lacks() -> str:
    """Empty if real pods can run here; otherwise one line on what is missing and how to get it."""
    if os.geteuid() != 0:
        return "real pods need root: run this as root, or leave out --real-pods"
    if not _are_installed() or not images.are_available():
        return "real pods need containerd, runc and CNI plugins: `make kube` as root installs them on Debian and Ubuntu"
    return ""


def prepare(say: Say) -> None:
    """Install packages and make the images; as root, where there is apt. Others are told what they cannot have."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        say("Real pods are left out: they need root, and apt to install containerd. Everything else works.")
        return
    if not _are_installed():
        say(f"Installing {', '.join(PACKAGES)}")
        _install()
    images.build(say)


def _are_installed() -> bool:
    return all(shutil.which(name) for name in ("containerd", "runc", "ip", "busybox")) and (CNI / "bridge").exists()


def _install() -> None:
    script = f"apt-get install -qy --no-install-recommends {' '.join(PACKAGES)}"
    done = subprocess.run(
        ["sh", "-c", f"{script} || (apt-get update -q && {script})"],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if done.returncode:
        raise BadInput(f"The packages for real pods could not be installed: {done.stderr.strip()[-300:]}")


# --- what a node is told -------------------------------------------------------------------------------------------


def _write_files(node: KubeletNode, number: int, net: Network, kubeconfig: Path, dns: dict[str, Any]) -> None:
    (node.folder / "cni").mkdir()
    (node.folder / "cni" / "10-bridge.conflist").write_text(json.dumps(_cni(net.pods(number))))
    (node.folder / "containerd.toml").write_text(_CONTAINERD.format(pause=images.BUSYBOX, cni=CNI))
    (node.folder / "kubelet.json").write_text(json.dumps(_kubelet(node) | dns))
    shutil.copy(kubeconfig, node.folder / "kubeconfig")
    os.link(_archive(node.folder.parent), node.folder / "images.tar")
    spec = {
        "door": str(node.folder / "door"),
        "folder": str(node.folder),
        "address": f"{net.node(number)}/24",
        "routes": net.routes(number),
        "number": number,
        "containerd": ["containerd", "--config", "/run/node/containerd.toml"],
        "kubelet": [
            str(program("kubelet")), "--kubeconfig=/run/node/kubeconfig", "--config=/run/node/kubelet.json",
            "--root-dir=/run/node/kubelet", f"--hostname-override={node.name}", f"--node-ip={net.node(number)}",
        ],
    }  # fmt: skip
    (node.folder / "spec.json").write_text(json.dumps(spec))


def _archive(folder: Path) -> Path:
    """The images of this cluster's nodes; the first node builds the archive."""
    target = folder / "images.tar"
    return target if target.exists() else images.archive(target)


def _free_number(cluster: Path) -> int:
    taken = {json.loads(spec.read_text())["number"] for spec in cluster.glob("*/spec.json")}
    return next(number for number in range(network.NODES) if number not in taken)


def _kubelet(node: KubeletNode) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Logs and exec through the API server without client certificates; only this machine reaches it.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "enforceNodeAllocatable": ["pods"],
        "evictionHard": {"nodefs.available": "1%", "memory.available": "50Mi"},  # the machine is not ours alone
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "oomScoreAdj": 0,
        "podLogsDir": "/run/node/pods",
        "resolvConf": "",
        "shutdownGracePeriod": "0s",
        "volumePluginDir": "/run/node/plugins",
    }


def _cni(pods: str) -> dict[str, Any]:
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni",
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


_CONTAINERD: Final = """
version = 2
root = "/run/node/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "/run/node/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


# --- the machine -----------------------------------------------------------------------------------------------------


def cgroups_of(mark: str) -> str:
    return f"penstock-{mark}"


def _controllers() -> list[Path]:
    """Cgroup mount points: one with version 2, one per controller with version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]


def _remove_cgroup(group: Path) -> None:
    """From the leaves up; the kernel may take a moment after the last process, and somebody else may be removing it."""
    until = time.monotonic() + CGROUP_S
    folders = [Path(folder) for folder, _, _ in os.walk(group, topdown=False)]  # what vanishes meanwhile is left out
    for folder in folders:
        while True:
            try:
                folder.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)


def _opened(pipe: Path, process: Process) -> int:
    """The pipe's writing end; it opens as soon as the node reads, inside its new namespaces."""
    until = time.monotonic() + DOOR_S
    while time.monotonic() < until:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            process.check()
            time.sleep(0.02)
    raise BadInput(f"A node did not come up: {process.last_words()}")

"""The first process of a real node: it lives in namespaces of its own, and with it the whole node ends.

`kubelet_nodes` runs this file by its path, inside `unshare --pid --net --mount`: when it dies the kernel ends every
process of the node and drops its mounts and its network, so nothing can be left behind. Standard library only.

    node_init.py SPEC       a JSON file that kubelet_nodes.py writes
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    spec: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    Path(spec["door"]).read_text()  # a pipe: blocks until our network device exists
    own_places(spec["folder"])
    own_network(spec["address"], spec["routes"])
    containerd = begin(spec["containerd"], "containerd.log")
    import_images(containerd)
    watch_over(containerd, spec["kubelet"])


def own_places(folder: str) -> None:
    """Mount private folders over paths where programs insist on writing. Sockets need short paths."""
    held = os.open(folder, os.O_PATH)  # it may lie in a place that we cover now
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name in ("node", "upper", "work"):
        Path("/run", name).mkdir()
    run("mount", "--bind", f"/proc/{os.getpid()}/fd/{held}", "/run/node")
    run("mount", "-t", "overlay", "overlay", "-o", "lowerdir=/var,upperdir=/run/upper,workdir=/run/work", "/var")


def own_network(address: str, routes: list[list[str]]) -> None:
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "address", "add", address, "dev", "eth0")
    for target, through in routes:
        run("ip", "route", "add", target, "via", through)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def import_images(containerd: int) -> None:
    until = time.monotonic() + 60
    while not Path("/run/containerd/containerd.sock").exists():
        if time.monotonic() > until or os.waitpid(containerd, os.WNOHANG) != (0, 0):
            sys.exit("containerd did not start; its log says why")
        time.sleep(0.02)
    run("ctr", "--namespace", "k8s.io", "images", "import", "--no-unpack", "/run/node/images.tar")


def watch_over(containerd: int, kubelet: list[str]) -> None:
    """Reap zombies, as pid 1 must, and restart the kubelet as a real machine would."""
    agent = begin(kubelet, "kubelet.log")
    while True:
        pid, _ = os.wait()
        if pid == containerd:
            sys.exit("containerd ended, and so does this node")
        if pid == agent:
            time.sleep(1)
            agent = begin(kubelet, "kubelet.log")


def begin(command: list[str], log: str) -> int:
    with open(f"/run/node/{log}", "ab") as log_file:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file).pid


def run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")


if __name__ == "__main__":
    main()

"""Where only the demo's packages are installed, each command runs, or says which extra it needs: no traceback.

    python -m tests.demo_only      # by the Python of a venv that `make demo` made, before `make venv`

`tests.bare` runs it after `make demo`, because every other test has all packages: an import too many goes unseen there.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from penstock.cli import main
from penstock.extras import install

#: Command line -> the extra that it names, and ends with exit code 2.
NAMES_EXTRA: Final = {
    "assess --kubeconfig KUBECONFIG": "kubernetes",
    "connect KUBECONFIG": "kubernetes",
    "demo --clouds": "kubernetes",
    "demo --kube": "kubernetes",
    "dev-cluster status": "kubernetes",
    "journal info postgresql://nobody@localhost/none": "postgres",
    "kubectl why job/none": "kubernetes",
    "manifests rbac": "kubernetes",
    "policy check examples/policy.yaml": "policy",
    "portability --kubeconfig KUBECONFIG --sites examples/cluster.yaml": "kubernetes",
    "shadow --kubeconfig KUBECONFIG --sites examples/cluster.yaml": "kubernetes",
    "up --sites examples/aks.yaml": "kubernetes",
    "up --sites examples/cluster.yaml": "kubernetes",
    "up --sites examples/karpenter.yaml": "kubernetes",
    "up --sites examples/kueue.yaml": "kubernetes",
    "watchman": "kubernetes",
}
#: These need nothing more.
RUNS: Final = ("--help", "--version", "dev-cluster build --help", "policy schema", "simulate --generate 20")
KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: none
clusters: [{name: none, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {token: none}}]
"""
SECONDS: Final = 60


def failures(folder: Path) -> list[str]:
    for name in main.COMMANDS:
        main.load(name)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    wanted = [(line, install(extra), 2) for line, extra in NAMES_EXTRA.items()]
    wanted += [(line, "", 0) for line in RUNS]
    problems = []
    for line, text, code in wanted:
        words = line.replace("KUBECONFIG", str(kubeconfig)).split()
        done = subprocess.run(
            [Path(sys.executable).with_name("penstock"), *words],
            capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != code or text not in done.stderr or "Traceback" in done.stderr:
            wanted_text = f" and {text}" if text else ""
            problems.append(f"""penstock {line}: exit code {code}{wanted_text} expected; it was {done.returncode}:
{done.stdout}{done.stderr}""")
    return problems


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        bad = failures(Path(temporary))
    print(*bad or [f"{len(NAMES_EXTRA)} commands name the extra they need, {len(RUNS)} need none."], sep="\n\n")
    sys.exit(1 if bad else 0)

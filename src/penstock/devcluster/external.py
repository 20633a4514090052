"""A cluster by its kubeconfig, whoever runs it: the tests' own, or any in PENSTOCK_TEST_KUBECONFIGS."""

import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from penstock.devcluster.programs import kubectl

LIMIT_S: Final = 180  #: generous, for a busy machine
#: Over before collecting garbage pays: a fifth less CPU.
BRIEF: Final[Mapping[str, str]] = {"GOGC": "off"}
Rule = Mapping[str, Sequence[str]]


class Refusal(RuntimeError):
    """kubectl failed; its error message."""


class ExternalCluster:
    def __init__(self, name: str, kubeconfig: Path) -> None:
        self.name, self.kubeconfig = name, kubeconfig

    def kubectl(self, *args: str, stdin: str = "") -> str:
        """kubectl's output; raises `Refusal` if it failed."""
        done = subprocess.run(
            self._command(args), env={**BRIEF, **os.environ}, input=stdin, capture_output=True, text=True, check=False,
            timeout=LIMIT_S,
        )  # fmt: skip
        if done.returncode:
            raise Refusal(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    @contextmanager
    def follow(self, *args: str) -> Iterator[Iterator[str]]:
        """Lines of `logs -f` or `get --watch` as they come, until the block ends."""
        with subprocess.Popen(
            self._command(args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as going:
            assert going.stdout is not None
            try:
                yield (line.rstrip("\n") for line in going.stdout)
            finally:
                going.kill()

    def _command(self, args: Sequence[str]) -> list[str]:
        return [kubectl(), "--kubeconfig", str(self.kubeconfig), *args]

    def get(self, *args: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.kubectl("get", *args, "-o", "json"))
        return answer

    def until_served(self, *kinds: str) -> None:
        """Wait until new kinds are served: `kubectl wait` fails on a definition that has no status yet."""
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                for kind in kinds:
                    self.get(kind, "--all-namespaces")
            except Refusal:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                return

    def apply(self, *objects: Mapping[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def define(self, folder: Path, *kinds: str) -> None:
        """Install the CRDs in this folder, and return when these kinds, named as `jobs.batch`, can be listed."""
        self.kubectl("apply", "--server-side", "-f", str(folder))
        self.until_served(*kinds)

    def new_namespace(self, name: str = "") -> str:
        """Returns when pods can be created in it: they need its default service account."""
        name = name or random_name()
        self.kubectl("create", "namespace", name)
        self.kubectl("-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=50s")
        return name

    def drop_namespace(self, name: str) -> None:
        """Delete it without waiting."""
        self.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")

    def let_go(self, namespace: str) -> None:
        """Remove finalizers of its Jobs, which would keep the namespace: here no journal will ever record their
        results.
        """
        held = [job["metadata"] for job in self.get("jobs", "-n", namespace)["items"]]
        if kept := [f"job/{workload['name']}" for workload in held if workload.get("finalizers")]:
            self.kubectl("patch", "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}', *kept)

    def token_for(self, account: str, rules: Sequence[Rule], namespace: str = "default") -> Path:
        """A kubeconfig that may do what these rules say, in all namespaces, and no more.

        `[{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch"]}]`. Asked again with the
        same name it changes what that account may do, at once; `revoke` ends it.
        """
        subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        rbac = "rbac.authorization.k8s.io"
        self.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}},
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": account}, "rules": list(rules)},
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": account},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": account},
                "subjects": [subject],
            },
        )
        token = self.kubectl("create", "token", account, "--namespace", namespace, "--duration", "24h").strip()
        return self._with_token(account, token)

    def revoke(self, account: str, namespace: str = "default") -> None:
        """On return its token is refused with 401. API servers cache a token for 10 s."""
        self.kubectl("delete", "serviceaccount", account, "--namespace", namespace)
        theirs = ExternalCluster(account, self._kubeconfig_of(account))
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            try:
                theirs.kubectl("auth", "whoami")
            except Refusal:
                return
            time.sleep(0.5)
        raise Refusal(f"{self.name} still knows the token of {account}")

    def _with_token(self, account: str, token: str) -> Path:
        """Our own kubeconfig's cluster, with the account as its user."""
        kubeconfig = json.loads(self.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
        kubeconfig["users"] = [{"name": account, "user": {"token": token}}]
        kubeconfig["contexts"][0]["context"]["user"] = account
        path = self._kubeconfig_of(account)
        path.touch(mode=0o600)
        path.write_text(json.dumps(kubeconfig))
        return path

    def _kubeconfig_of(self, account: str) -> Path:
        return self.kubeconfig.with_name(f"{self.name}-{account}.kubeconfig")


def random_name() -> str:
    return f"test-{secrets.token_hex(4)}"

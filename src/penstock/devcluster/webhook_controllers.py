"""What Kueue and JobSet have in common in a dev cluster: a controller that runs as a process beside the API server,
with the API server's certificate, and webhooks at its own address. `kueue` and `jobset` call it.
"""

import base64
import json
import shutil
from pathlib import Path
from typing import Any


def webhooks(manifest: Path, address: str, certificate: Path, groups: set[str]) -> list[dict[str, Any]]:
    """Those of the release for kinds of these groups, at the controller's own address."""
    import yaml

    configurations = list(yaml.safe_load_all(manifest.read_text()))
    trusted = base64.b64encode(certificate.read_bytes()).decode()
    for configuration in configurations:
        configuration["webhooks"] = [hook for hook in configuration["webhooks"] if _groups(hook) <= groups]
        for hook in configuration["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"{address}{path}", "caBundle": trusted}
    return configurations


def _groups(hook: dict[str, Any]) -> set[str]:
    return {group for rule in hook["rules"] for group in rule["apiGroups"]}


def write_configuration(folder: Path, certificate: Path, host: str, port: int, **own: object) -> Path:
    """The controller's configuration, with `own` keys of its kind, and its certificate in `tls` beside it."""
    tls = folder / "tls"
    tls.mkdir(parents=True)
    shutil.copy(certificate, tls / "tls.crt")
    shutil.copy(certificate.with_suffix(".key"), tls / "tls.key")
    configuration = {
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": host, "port": port, "certDir": str(tls)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        **own,
    }
    path = folder / "config.json"
    path.write_text(json.dumps(configuration))
    return path

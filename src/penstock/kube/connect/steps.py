"""Connects a cluster: `penstock connect` calls `connect_cluster` and prints what it returns.

1. Try the way there. 2. Look at what it has. 3. Make the account and its rights. 4. Write its kubeconfig. 5. Try that.
6. Write the site, and say what is missing.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from penstock.core.errors import BadInput
from penstock.core.values import value
from penstock.kube import access as kube_access
from penstock.kube.access import Access, Endpoint
from penstock.kube.client import JOBS, NODES, PODS, Cluster
from penstock.kube.connect import account, gpu_survey, kueue_survey, network_path, rent_survey, sites_block
from penstock.kube.connect.account import MayNot, Wanted
from penstock.kube.connect.gpu_survey import GpuNodes, Survey
from penstock.kube.connect.kueue_survey import KueueSurvey
from penstock.kube.connect.network_path import NetworkPath
from penstock.kube.connect.rent_survey import RentSurvey
from penstock.kube.connect.sites_block import SiteBlock
from penstock.kube.errors import KubeError
from penstock.kube.token_renewal import KubeconfigFile, read_token

OLDEST: Final = (1, 32)  #: home Jobs need `managedBy`
STORE: Final = "PENSTOCK_CHECKPOINTS"
S3: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


@value
class Connected:
    """What was found, what was made, and what is left to do."""

    server: str
    path: NetworkPath
    survey: Survey
    changed: tuple[str, ...]  # in the cluster
    kubeconfig: str  # of the new account; the given one if none could be made
    token_ends: float  # 0: it is not ours
    block: str  # the site, as text; empty: there is nothing to offer
    missing: tuple[str, ...]
    rent: RentSurvey | None = None  # what can be rented there, if that was asked
    manager: str = ""  # its Kueue for the sites file, as text, if that was asked


async def connect_cluster(given: Access, wanted: Wanted, block: SiteBlock, target: Path) -> Connected:
    """All steps. Raises `BadInput` if the way is broken, or if the login may not do what is needed."""
    endpoint = kube_access.endpoint(given)
    path = walked(endpoint)
    cluster = kube_access.connect(given)
    try:
        survey = await gpu_survey.survey(cluster)
        rent = await rent_survey.survey_rent(cluster, wanted.own) if wanted.rent else None
        queues = await kueue_survey.try_survey(cluster, account.CHECK) if wanted.kueue else None
        _refuse_without_kueue(queues)
        changed, token, blocked = await _account(cluster, wanted)
    finally:
        await cluster.close()
    ends = 0.0
    if token:
        made = account.kubeconfig(block.name, endpoint.server, endpoint.authority, token, wanted.own)
        _write(target, made, given)
        claims = read_token(token)
        ends = claims.ends if claims else 0.0
        blocked += await _tried(Access(str(target)), wanted)
    used = target if token else Path(given.kubeconfig)
    block, rented = _at(block, used, target.parent), rent_survey.rentable_nodes(rent)
    offered = bool(sites_block.offers(block, survey, rented))
    remarks = [*missing(survey, wanted, block), *(rent_survey.missing_for_rent(rent) if rent else ())]
    remarks += _of_kueue(queues, block)
    return Connected(
        server=endpoint.server,
        path=path,
        survey=survey,
        changed=tuple(changed),
        kubeconfig=str(used),
        token_ends=ends,
        block=sites_block.as_text(sites_block.site(block, survey, rented)) if offered else "",
        missing=(*blocked, *path.remarks, *dict.fromkeys(remarks), *_store(os.environ, wanted)),
        rent=rent,
        manager=sites_block.manager(block) if wanted.kueue else "",
    )


def _refuse_without_kueue(queues: KueueSurvey | KubeError | None) -> None:
    """Its AdmissionCheck could not be made."""
    if isinstance(queues, KueueSurvey) and not queues.served:
        raise BadInput(" ".join(kueue_survey.missing_for_kueue(queues, account.CHECK, "")))


def _of_kueue(queues: KueueSurvey | KubeError | None, block: SiteBlock) -> list[str]:
    if isinstance(queues, KubeError):
        return [f"This login may not look at Kueue's queues: {queues}"]
    return (
        [] if queues is None else kueue_survey.missing_for_kueue(queues, account.CHECK, sites_block.manager_name(block))
    )


def walked(endpoint: Endpoint) -> NetworkPath:
    """The way, with the proxy that Penstock itself would use."""
    where = urlsplit(endpoint.server)
    proxy = None if proxy_bypass(where.netloc) else getproxies().get(where.scheme)
    try:
        return network_path.walk(endpoint.server, endpoint.trust, proxy)
    except network_path.BrokenPath as error:
        named = (
            f" The kubeconfig names the proxy {endpoint.proxy}; give it in HTTPS_PROXY instead."
            if endpoint.proxy
            else ""
        )
        raise BadInput(f"{error}{named}") from None


async def _account(cluster: Cluster, wanted: Wanted) -> tuple[list[str], str, list[str]]:
    """What was changed, the token, and what is missing instead of it."""
    try:
        changed = await account.apply(cluster, account.objects(wanted))
        return changed, await account.token_for(cluster, wanted), []
    except MayNot as error:
        if wanted.role != "look":
            raise BadInput(
                f"This login may not make Penstock's account ({error}); run this with an administrator's kubeconfig, or"
                " have one apply what --print prints."
            ) from None
        await _may_look(cluster)
        return [], "", [f"This login may not make an account ({error}); it can look, which is enough for shadow."]


async def _may_look(cluster: Cluster) -> None:
    for kind in (JOBS, PODS, NODES):
        if not await cluster.may("list", kind):
            raise BadInput(
                f"This login may neither make an account nor list {kind.resource}; apply what"
                " `penstock manifests rbac --role look` prints, as an administrator."
            )


def _write(target: Path, made: dict[str, object], given: Access) -> None:
    if target.exists() and given.kubeconfig and target.samefile(given.kubeconfig):
        raise BadInput(f"{target} is the kubeconfig that you gave; give the site another --name.")
    try:
        KubeconfigFile(target).save(made)
    except OSError as error:
        raise BadInput(f"{target} cannot be written ({error.strerror}).") from None


async def _tried(own: Access, wanted: Wanted) -> list[str]:
    """The new account as Penstock will use it; a webhook or another policy may still say no."""
    cluster = kube_access.connect(own)
    verb, kind = ("list", NODES) if wanted.role == "look" else ("create", JOBS)
    try:
        if await cluster.may(verb, kind, "" if wanted.role == "look" else wanted.own):
            return []
        return [f"The account may still not {verb} {kind.resource}; look for a policy that forbids it."]
    except KubeError as error:
        return [f"The new account cannot log in yet: {error}"]
    finally:
        await cluster.close()


def _at(block: SiteBlock, used: Path, folder: Path) -> SiteBlock:
    """The kubeconfig as the sites file has it: by its name if both are in one folder."""
    from dataclasses import replace

    beside = used.resolve().parent == folder.resolve()
    return replace(block, kubeconfig=used.name if beside else str(used.absolute()))


# --- what is missing, pure --------------------------------------------------------------------------------------------


def missing(survey: Survey, wanted: Wanted, block: SiteBlock) -> list[str]:
    sentences = [f"This login may not look at {unseen}, so nothing is known of it." for unseen in survey.unseen]
    if version_of(survey.version) < OLDEST:
        sentences.append(f"The cluster is {survey.version}; Penstock needs Kubernetes 1.32 or newer.")
    if not survey.gpus and not wanted.rent:
        sentences.append(_no_gpus(survey))
    for kind in survey.gpus:
        sentences += _of_kind(kind, block)
    if survey.has_kueue and wanted.role != "look":
        sentences.append(
            "Kueue keeps quota here: write the LocalQueue under `kubernetes.queue` of each offer, unless the namespace"
            " has a LocalQueue `default`."
        )
    if wanted.role == "home" and not survey.policies:
        sentences.append(
            "The admission policies are not there, so anybody may write another user's name on a Job: apply what"
            " `penstock manifests admission` prints."
        )
    if block.price and not survey.grows and any(kind.nodes and kind.offered for kind in survey.gpus):
        sentences.append(
            "No autoscaler was seen, so `nodes` is written as it is now: a wider job is not sent there. Take it away if"
            " the cloud adds nodes."
        )
    if wanted.role == "act" and not block.namespaces:
        sentences.append(
            "Home Jobs come here only from namespaces with a map: run this again with --also NAMESPACE, or write"
            " `maps.namespaces`."
        )
    return sentences


def _no_gpus(survey: Survey) -> str:
    if not survey.grows:
        return "No node shows GPUs: install NVIDIA's device plugin, or add nodes; then run this again."
    how = "Karpenter" if survey.node_pools else "the cluster autoscaler"
    return (
        f"No node shows GPUs now, and {how} may add some: write the offer with the labels of its nodes (docs/sites.md)."
    )


def _of_kind(kind: GpuNodes, block: SiteBlock) -> list[str]:
    single, gpus = kind.nodes == 1, "MIG slices" if kind.mig else "GPUs"
    nodes = f"{kind.nodes} {'node' if single else 'nodes'} with {kind.gpus_per_node} {gpus}"
    if kind.shared:
        verb = "shares" if single else "share"
        return [f"{nodes} {verb} them by time slices; Penstock does not use shared GPUs, so they make no offer."]
    if kind.fenced_by:
        verb = "has" if single else "have"
        taints = ", ".join(kind.fenced_by)
        if not block.price or block.owned:
            return [f"{nodes} {verb} the taint {taints}: only Jobs that tolerate it use them."]
        return [f"{nodes} {verb} the taint {taints}: write an offer with a toleration if Penstock may use them."]
    sentences = []
    if not kind.model:
        sentences.append(
            f"No label names the GPU model of {nodes}: write it under `gpu`, or install GPU feature discovery."
        )
    if kind.mig and block.price:
        sentences.append(
            f"The price of a MIG slice ({kind.mig}) is written as that of a whole GPU: write what a slice costs."
        )
    return sentences


def version_of(text: str) -> tuple[int, int]:
    """`(1, 35)` of `v1.35.8` or `v1.31.2-eks-1-31`."""
    parts = text.lstrip("v").split(".")
    numbers = ["".join(letter for letter in part if letter.isdigit()) for part in parts[:2]]
    return (int(numbers[0] or 0), int(numbers[1] or 0)) if len(numbers) == 2 else (0, 0)


def _store(env: Mapping[str, str], wanted: Wanted) -> list[str]:
    """The object store for checkpoints, tried from here; pods take their own way to it."""
    if wanted.role == "look":
        return []
    place = env.get(STORE, "")
    if not place.startswith("s3://"):
        return [f"No object store is set ({STORE}): a job that moves to another cluster begins anew."]
    url = next((env[key] for key in S3 if env.get(key)), "https://s3.amazonaws.com")
    try:
        network_path.reach(url)
    except network_path.BrokenPath as error:
        return [f"The object store {place} is not reached from here. {error}"]
    return []

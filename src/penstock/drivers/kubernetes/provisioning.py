"""Asks a cluster's autoscaler for all nodes of an attempt before its pods are there, by a ProvisioningRequest.
`KubernetesDriver.start` calls `provide`; `reconcile` removes the request when the attempt is over, and the tick sweeps.

The suspended execution Job is the record: a control plane that dies starts the attempt again and continues here, one
that is too late finds that the Job has been told to end, and what is left goes with the Job.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

from penstock.core.model import events as e
from penstock.core.units import SECOND, Instant
from penstock.drivers.driver import Refused, Unreachable
from penstock.drivers.kubernetes import provisioning_request as written
from penstock.drivers.kubernetes import terminate
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.pods import annotation_of
from penstock.drivers.kubernetes.provisioning_request import Answer
from penstock.drivers.kubernetes.scaling import CLOSED_MS
from penstock.kube import annotations, errors
from penstock.kube.client import JOBS, POD_TEMPLATES, PROVISIONING_REQUESTS, Obj
from penstock.site_answers import check_leads

LOOK_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0)  #: between looks at the request; the last one again and again


async def provide(here: Connection, execution: Execution) -> None:
    """Returns when its Job may run, or has been told to end. No pod is made before."""
    waits, since, reported = list(LOOK_SECONDS), here.clock(), Answer("coming", "")
    began_at = since
    while written.awaits_nodes(execution.job) and execution.name in here.executions.by_name:
        execution.news.clear()
        answer = await _answer(here, execution)
        if answer is None:
            await here.change(execution, partial(_released, here))
            return
        if answer.words != reported.words:
            here.say(e.AttemptQueued(here.clock(), execution.attempt, answer.words))
        if answer.kind != reported.kind:
            since = here.clock()
        reported = answer
        if here.clock() >= _until(here, answer, began_at, since):
            await _refuse(here, execution, answer)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(waits[0]):
                await execution.news.wait()
        waits = waits[1:] or waits


def _until(here: Connection, answer: Answer, began_at: Instant, since: Instant) -> Instant:
    """How long it may go on saying so."""
    if answer.final:
        return since
    return began_at + here.settings.scale_ms if answer.kind == "coming" else since + here.settings.no_node_ms


def _released(here: Connection, job: Obj) -> Obj | None:
    return written.released(job, here.clock())


async def _answer(here: Connection, execution: Execution) -> Answer | None:
    try:
        return written.answer(await _request(here, execution))
    except errors.NotFound:
        return written.unserved()


async def _request(here: Connection, execution: Execution) -> Obj:
    """As the autoscaler left it; made, if it is not there. Raises `NotFound` where no such kind is served."""
    name, namespace, cluster = execution.name, execution.namespace, here.cluster
    with suppress(errors.NotFound):
        return _own(here, execution, await cluster.get(PROVISIONING_REQUESTS, name, namespace))
    try:
        job = await cluster.get(JOBS, name, namespace)
    except errors.NotFound:
        raise Unreachable(f"the Job of {execution.attempt} was deleted before it began") from None
    with suppress(errors.AlreadyExists):
        await cluster.create_when_sent(POD_TEMPLATES, partial(_if_we_lead, written.pod_template(job)), namespace)
    try:
        return await cluster.create_when_sent(
            PROVISIONING_REQUESTS, partial(_if_we_lead, written.request(job)), namespace
        )
    except errors.AlreadyExists:
        return _own(here, execution, await cluster.get(PROVISIONING_REQUESTS, name, namespace))


def _if_we_lead(made: Obj) -> Obj:
    check_leads()
    return made


def _own(here: Connection, execution: Execution, request: Obj) -> Obj:
    meta = request["metadata"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    ours = annotations.label_value(here.installation)
    if (labels.get(annotations.INSTALLATION), notes.get(annotations.ATTEMPT)) != (ours, execution.attempt):
        raise Refused(f"ProvisioningRequest {meta['name']} is not this installation's; remove it")
    return request


async def _refuse(here: Connection, execution: Execution, answer: Answer) -> None:
    """The start's answer is read from the Job, also by a control plane that restarts."""
    note = {annotations.OBSTACLE: "unfit"} if answer.kind == "impossible" else {}
    if answer.kind in CLOSED_MS:
        note = {annotations.SHORTAGE: answer.kind}
    words = answer.words
    if answer.kind == "coming":
        words = f"no nodes within {here.settings.scale_ms // SECOND} s: {words}"
    change = {"metadata": {"annotations": note}}
    await here.change(execution, lambda job: change if note and written.awaits_nodes(job) else None)
    await terminate.end(here, execution, "refused", words)


# --- its end ----------------------------------------------------------------------------------------------------------


async def remove(here: Connection, execution: Execution) -> None:
    """Its attempt is over: nodes that are still to come are not wanted. What fails here, the sweep does."""
    if annotation_of(execution.job, annotations.PROVISIONING):
        with suppress(errors.KubeError):
            await _delete(here, execution.name, execution.namespace)


async def sweep(here: Connection) -> None:
    """Delete requests whose attempt is over or unknown: a create that was slow may come after the end."""
    if not any(place.provisioning_class for place in here.places.values()):
        return
    labels = f"{annotations.INSTALLATION}={annotations.label_value(here.installation)}"
    with suppress(errors.KubeError):
        for namespace in here.namespaces:
            requests, _ = await here.cluster.list(PROVISIONING_REQUESTS, namespace, labels=labels)
            for name in [request["metadata"]["name"] for request in requests]:
                here.executions.check()
                execution = here.executions.by_name.get(name)
                if execution is None or execution.concluded:
                    await _delete(here, name, namespace)


async def _delete(here: Connection, name: str, namespace: str) -> None:
    for kind in (PROVISIONING_REQUESTS, POD_TEMPLATES):
        with suppress(errors.NotFound):
            await here.cluster.delete(kind, name, namespace)

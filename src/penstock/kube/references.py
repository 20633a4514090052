"""Everything that a Job's pods refer to in their cluster: images, volumes, Secrets, ConfigMaps, selectors, host access.
`portability` judges and maps these references.

One walk serves reading and rewriting: each reference has a kind, a name, and a function that replaces it. Malformed
parts are skipped: refusing them is the API server's task.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from penstock.core.values import value
from penstock.kube import node_terms
from penstock.kube.gpu_models import WHOLE, is_gpu
from penstock.kube.maps import EMPTY_DIR, LEFT_OUT, Kind

Json: TypeAlias = dict[str, Any]
Put: TypeAlias = Callable[[str], None]

#: Volumes that need nothing of the cluster.
OF_THE_POD: Final = ("emptyDir", "downwardAPI")
USUAL_SCHEDULER: Final = "default-scheduler"
#: What every kubelet lets a pod set, as of Kubernetes 1.36.
SAFE_SYSCTLS: Final = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    }
)


@value
class Reference:
    kind: Kind
    name: str
    put: Put  # replaces the name; empty: removes the reference
    optional: bool = False  # the pod also runs without it


def references(job: Json) -> Iterator[Reference]:
    """All references in reading order. `put` changes the Job that was passed in."""
    metadata, pod = part(job, "metadata"), pod_of(job)
    yield Reference("namespace", str(metadata.get("namespace") or "default"), _setter(metadata, "namespace"))
    for container in containers(pod):
        yield from _of_container(container)
    yield from _of_resources(part(pod, "resources"))
    for volume in parts(pod, "volumes"):
        yield from _of_volume(volume)
    yield from _of_pod(pod)
    yield from _of_host_names(pod, str(metadata.get("namespace") or "default"))
    yield from _of_nodes(pod)
    yield from _of_the_host(pod)


def pod_of(job: Json) -> Json:
    return part(part(part(job, "spec"), "template"), "spec")


def containers(pod: Json) -> list[Json]:
    return parts(pod, "initContainers") + parts(pod, "containers")


# --- containers and volumes -------------------------------------------------------------------------------------------


def _of_container(container: Json) -> Iterator[Reference]:
    yield from _named("image", container, "image")
    for variable in parts(container, "env"):
        source = part(variable, "valueFrom")
        yield from _named("config map", part(source, "configMapKeyRef"), "name")
        yield from _named("secret", part(source, "secretKeyRef"), "name")
    for source in parts(container, "envFrom"):
        yield from _named("config map", part(source, "configMapRef"), "name")
        yield from _named("secret", part(source, "secretRef"), "name")
    yield from _of_resources(part(container, "resources"))


def _of_resources(resources: Json) -> Iterator[Reference]:
    """Devices beside GPUs, and huge pages."""
    asked = {**part(resources, "requests"), **part(resources, "limits")}
    for name, count in asked.items():
        extended = "/" in name and not name.startswith("kubernetes.io/") and not is_gpu(name)
        if (extended or name.startswith("hugepages-")) and str(count) != "0":
            yield Reference("resource", name, _resource(resources, name))


def _of_volume(volume: Json) -> Iterator[Reference]:
    yield from _named("config map", part(volume, "configMap"), "name")
    yield from _named("secret", part(volume, "secret"), "secretName")
    yield from _named("image", part(volume, "image"), "reference")
    for source in parts(part(volume, "projected"), "sources"):
        yield from _named("config map", part(source, "configMap"), "name")
        yield from _named("secret", part(source, "secret"), "name")
        yield from _named("token audience", part(source, "serviceAccountToken"), "audience")
    yield from _of_storage(volume)


def _of_storage(volume: Json) -> Iterator[Reference]:
    """A claim by its name; other storage of this cluster by the volume's name."""
    kinds = [kind for kind in volume if kind != "name"]
    if kinds == ["hostPath"]:
        yield _untravelled(f"hostPath {part(volume, 'hostPath').get('path', '')}")
    elif kinds == ["persistentVolumeClaim"]:
        yield Reference("volume", str(part(volume, kinds[0]).get("claimName", "")), _claim(volume))
    elif kinds and kinds[0] not in (*OF_THE_POD, "configMap", "secret", "image", "projected"):
        yield Reference("volume", str(volume.get("name", "")), _claim(volume))


def _claim(volume: Json) -> Put:
    def put(to: str) -> None:
        name, read_only = volume.get("name"), part(volume, "persistentVolumeClaim").get("readOnly")
        volume.clear()
        claim = {"claimName": to, **({} if read_only is None else {"readOnly": read_only})}
        volume.update({"name": name, **({EMPTY_DIR: {}} if to == EMPTY_DIR else {"persistentVolumeClaim": claim})})

    return put


# --- the pod, its nodes, its host -------------------------------------------------------------------------------------


def _of_pod(pod: Json) -> Iterator[Reference]:
    for secret in list(parts(pod, "imagePullSecrets")):
        yield Reference("pull secret", str(secret.get("name", "")), _in_list(pod["imagePullSecrets"], secret))
    account = str(pod.get("serviceAccountName") or pod.get("serviceAccount") or "default")
    if account != "default":
        yield Reference("service account", account, _account(pod))
    yield from _named("priority class", pod, "priorityClassName", also=("priority",))
    yield from _named("runtime class", pod, "runtimeClassName")
    if pod.get("schedulerName") != USUAL_SCHEDULER:
        yield from _named("scheduler", pod, "schedulerName")
    for gate in list(parts(pod, "schedulingGates")):
        yield Reference("scheduling gate", str(gate.get("name", "")), _in_list(pod["schedulingGates"], gate))


def _of_host_names(pod: Json, namespace: str) -> Iterator[Reference]:
    """The Service that gives its pods their host names, and whole names of hosts in what its containers are told."""
    yield from _named("service", pod, "subdomain")
    service = pod.get("subdomain")
    if isinstance(service, str) and service and _says(pod, f"{service}.{namespace}"):
        yield Reference("host names in namespace", namespace, lambda _: None)


def _says(pod: Json, name: str) -> bool:
    texts = [text for container in containers(pod) for text in _words_of(container)]
    return any(re.search(rf"(?<![-a-z0-9]){re.escape(name)}(?![-a-z0-9])", text) for text in texts)


def _words_of(container: Json) -> Iterator[str]:
    for key in ("command", "args"):
        words = container.get(key)
        yield from (word for word in words if isinstance(word, str)) if isinstance(words, list) else ()
    yield from (str(variable.get("value") or "") for variable in parts(container, "env"))


def _of_nodes(pod: Json) -> Iterator[Reference]:
    """Node selector and node name; `node_terms` reads required node affinity."""
    selector = part(pod, "nodeSelector")
    for key, text in list(selector.items()):
        for (demand,) in node_terms.expression(key, "In", [str(text)]):
            keep = demand.kind == "architecture"
            yield Reference(demand.kind, demand.name, (lambda _: None) if keep else _selector(selector, key))
    if name := pod.get(node_terms.NODE_NAME):
        yield Reference("node selector", f"{node_terms.NODE_NAME}={name}", _node_name(pod))
    for toleration in list(parts(pod, "tolerations")):
        taint = str(toleration.get("key") or "every taint")
        if taint not in WHOLE:  # all offers' nodes with such GPUs may have it
            yield Reference("toleration", taint, _in_list(pod["tolerations"], toleration))
    yield from _of_topology(pod)


def _of_topology(pod: Json) -> Iterator[Reference]:
    """Labels by whose values pods are spread or kept together: a node without the label takes none of them."""
    affinity = part(part(pod, "affinity"), "podAffinity")
    together = parts(affinity, node_terms.REQUIRED)
    spread = parts(pod, "topologySpreadConstraints")
    must = [rule for rule in spread if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]
    for holder, rules in ((affinity.get(node_terms.REQUIRED), together), (pod.get("topologySpreadConstraints"), must)):
        for rule in rules:
            key = str(rule.get("topologyKey") or node_terms.HOSTNAME)
            if key != node_terms.HOSTNAME:
                yield Reference("node selector", key, _topology(holder or [], rule))


def _of_the_host(pod: Json) -> Iterator[Reference]:
    """Whatever reaches beyond the pod. It never leaves home: another cluster's host is not ours."""
    yield from (_untravelled(key) for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key) is True)
    yield from _of_security(part(pod, "securityContext"))
    for container in containers(pod):
        security = part(container, "securityContext")
        if security.get("privileged") is True:
            yield _untravelled(f"privileged container {container.get('name', '')}".rstrip())
        yield from _of_security(security)
        ports = [port["hostPort"] for port in parts(container, "ports") if port.get("hostPort")]
        yield from (_untravelled(f"hostPort {number}") for number in ports)
    for claim in parts(pod, "resourceClaims"):
        yield _untravelled(f"resource claim {claim.get('name', '')}")


def _of_security(security: Json) -> Iterator[Reference]:
    """Profiles on the node's own disk, and settings of its kernel that its kubelet must allow."""
    for key, called in (("seccompProfile", "seccomp profile"), ("appArmorProfile", "AppArmor profile")):
        profile = part(security, key)
        if profile.get("type") == "Localhost":
            yield _untravelled(f"{called} {profile.get('localhostProfile', '')}".rstrip())
    for setting in parts(security, "sysctls"):
        name = str(setting.get("name", ""))
        if name not in SAFE_SYSCTLS:
            yield _untravelled(f"sysctl {name}".rstrip())


def _untravelled(name: str) -> Reference:
    return Reference("host access", name, lambda _: None)


# --- putting another name in its place --------------------------------------------------------------------------------


def _named(kind: Kind, holder: Json, key: str, also: tuple[str, ...] = ()) -> Iterator[Reference]:
    name = holder.get(key)
    if isinstance(name, str) and name:
        yield Reference(kind, name, _setter(holder, key, also), optional=holder.get("optional") is True)


def _setter(holder: Json, key: str, also: tuple[str, ...] = ()) -> Put:
    def put(to: str) -> None:
        for gone in (key, *also):
            holder.pop(gone, None)
        if to != LEFT_OUT:
            holder[key] = to

    return put


def _account(pod: Json) -> Put:
    return _setter(pod, "serviceAccountName", also=("serviceAccount",))


def _in_list(holder: list[Json], item: Json) -> Put:
    def put(to: str) -> None:
        if to == LEFT_OUT:
            holder.remove(item)
        else:
            item["name"] = to

    return put


def _selector(holder: Json, key: str) -> Put:
    def put(to: str) -> None:
        holder.pop(key, None)
        if to != LEFT_OUT:
            name, _, wanted = to.partition("=")
            holder[name] = wanted

    return put


def _topology(holder: list[Json], rule: Json) -> Put:
    def put(to: str) -> None:
        if to == LEFT_OUT:
            holder.remove(rule)
        else:
            rule["topologyKey"] = to.partition("=")[0]

    return put


def _node_name(pod: Json) -> Put:
    def put(to: str) -> None:
        pod.pop(node_terms.NODE_NAME, None)
        if to != LEFT_OUT:
            name, _, wanted = to.partition("=")
            pod["nodeSelector"] = {**part(pod, "nodeSelector"), name: wanted}

    return put


def _resource(resources: Json, name: str) -> Put:
    def put(to: str) -> None:
        for holder in (part(resources, "requests"), part(resources, "limits")):
            if name in holder:
                count = holder.pop(name)
                holder.update({to: count} if to != LEFT_OUT else {})

    return put


# --- shapes -----------------------------------------------------------------------------------------------------------


def part(holder: Json, key: str) -> Json:
    inner = holder.get(key)
    return inner if isinstance(inner, dict) else {}


def parts(holder: Json, key: str) -> list[Json]:
    items = holder.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def looks_private(image: str) -> bool:
    """True if only this network knows the registry: a name without a dot, a port, or a private address."""
    host, slash, _ = image.partition("/")
    if not slash or ("." not in host and ":" not in host and host != "localhost"):
        return False  # `python:3.12`, `library/python`: the usual public registry
    name = host.partition(":")[0]
    try:
        return ipaddress.ip_address(name).is_private
    except ValueError:
        return "." not in name or name.endswith((".local", ".internal", ".lan", ".home.arpa", ".svc"))

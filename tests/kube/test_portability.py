"""What becomes of a Job's references away from home: each is mapped, copied, left out, or why it stays."""

import copy
from typing import Any

import pytest

from penstock.config import parse_sites
from penstock.core.decide.rules import meets
from penstock.core.errors import BadInput
from penstock.kube import annotations
from penstock.kube.job_needs import job_needs
from penstock.kube.maps import Maps, has
from penstock.kube.portability import STAYS, Disposition, Unmapped, packed, rewrite, verdicts

Json = dict[str, Any]


def job(**pod: Any) -> Json:
    """A Job at home in namespace vision; `container` is added to its container."""
    container = {"name": "train", "image": "python:3.12", **pod.pop("container", {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "vision", "uid": "u1", "annotations": {annotations.HOME: "lab"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container], **pod}}},
    }


def may_go(judged: list[Disposition]) -> bool:
    return all(verdict.outcome not in STAYS for verdict in judged)


def maps(**tables: Any) -> Maps:
    fields: Json = {key: tuple(to.items()) if isinstance(to, dict) else to for key, to in tables.items()}
    known: Json = {"namespaces": (("vision", "ml-vision"),), **fields}
    return Maps("east", **known)


def pod_of(manifest: Json) -> Json:
    pod: Json = manifest["spec"]["template"]["spec"]
    return pod


def claim(name: str) -> Json:
    return {"name": "work", "persistentVolumeClaim": {"claimName": name}}


def needs(manifest: Json) -> tuple[str, ...]:
    return job_needs(manifest).needs


def why_not(manifest: Json, there: Maps) -> list[str]:
    return [verdict.says for verdict in verdicts(manifest, there) if verdict.outcome in ("stays home", "never travels")]


def test_a_plain_job_goes_where_its_namespace_is_mapped_and_nowhere_else() -> None:
    assert rewrite(job(), maps()).manifest["metadata"]["namespace"] == "ml-vision"
    nowhere = Maps("east")
    assert why_not(job(), nowhere) == [
        "namespace vision is not known at east; write maps: {namespaces: {vision: NAME-THERE}}."
    ]
    with pytest.raises(Unmapped, match="namespace vision is not known at east"):
        rewrite(job(), nowhere)


def test_at_home_nothing_is_changed_whatever_it_refers_to() -> None:
    manifest = job(volumes=[claim("scratch")], hostNetwork=True, serviceAccountName="trainer")
    assert rewrite(manifest, Maps("lab")).manifest == manifest


def test_the_job_that_was_given_stays_as_it_was() -> None:
    manifest = job(volumes=[claim("scratch")])
    before = copy.deepcopy(manifest)
    rewrite(manifest, maps(volumes={"scratch": "scratch-east"}))
    assert manifest == before


def test_an_image_is_mapped_by_the_longest_prefix_that_fits() -> None:
    there = maps(images={"lab.example/": "mirror.example/", "lab.example/vision/": "eu.example/v/"})
    manifest = job(
        container={"image": "lab.example/vision/train:1"},
        initContainers=[{"name": "init", "image": "lab.example/tools:2"}, {"name": "more", "image": "busybox"}],
    )
    pod = pod_of(rewrite(manifest, there).manifest)
    assert pod["containers"][0]["image"] == "eu.example/v/train:1"
    assert [container["image"] for container in pod["initContainers"]] == ["mirror.example/tools:2", "busybox"]


@pytest.mark.parametrize(
    "image", ["registry:5000/a", "lab.internal/a", "10.0.0.7/a", "localhost/a", "hub.local:80/a/b"]
)
def test_an_image_of_a_private_registry_stays_home_without_a_map(image: str) -> None:
    (sentence,) = why_not(job(container={"image": image}), maps())
    host = image.partition("/")[0]
    assert sentence.startswith(f"image {image} is not known at east; write maps: {{images: {{")
    assert host in sentence


@pytest.mark.parametrize(
    "image", ["python", "library/python:3", "ghcr.io/a/b@sha256:0", "nvcr.io/nvidia/pytorch:25.01"]
)
def test_an_image_that_anybody_can_pull_goes_as_it_is(image: str) -> None:
    assert pod_of(rewrite(job(container={"image": image}), maps()).manifest)["containers"][0]["image"] == image


def test_a_volume_claim_is_mapped_to_another_or_to_an_empty_one() -> None:
    manifest = job(volumes=[claim("scratch"), {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}])
    there = maps(volumes={"scratch": "scratch-east", "cache": "emptyDir"})
    assert pod_of(rewrite(manifest, there).manifest)["volumes"] == [
        {"name": "work", "persistentVolumeClaim": {"claimName": "scratch-east"}},
        {"name": "cache", "emptyDir": {}},
    ]
    assert why_not(manifest, maps(volumes={"cache": "emptyDir"})) == [
        "volume scratch is not known at east; write maps: {volumes: {scratch: CLAIM-THERE or emptyDir}}."
    ]


def test_storage_of_the_home_network_is_mapped_by_the_volumes_own_name() -> None:
    manifest = job(volumes=[{"name": "home", "nfs": {"server": "nas", "path": "/x"}}])
    assert "volume home" in needs(manifest)
    assert pod_of(rewrite(manifest, maps(volumes={"home": "emptyDir"})).manifest)["volumes"] == [
        {"name": "home", "emptyDir": {}}
    ]


SECRET_ENV = {"env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "t"}}}]}


def test_a_secret_is_never_copied_and_goes_only_by_another_name_there() -> None:
    manifest = job(container=SECRET_ENV)
    assert why_not(manifest, maps(copy_config_maps=True)) == [
        "secret hub is not known at east; write maps: {secrets: {hub: NAME-THERE}}."
    ]
    made = rewrite(manifest, maps(secrets={"hub": "hub-east"}))
    (variable,) = pod_of(made.manifest)["containers"][0]["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "hub-east", "key": "t"}
    assert made.copies == ()


def test_a_secret_that_a_program_reads_cannot_be_left_out_but_a_pull_secret_can() -> None:
    assert not may_go(verdicts(job(container=SECRET_ENV), maps(secrets={"hub": ""})))
    pulled = job(imagePullSecrets=[{"name": "regcred"}, {"name": "other"}])
    there = maps(secrets={"regcred": "", "other": "other-east"})
    assert pod_of(rewrite(pulled, there).manifest)["imagePullSecrets"] == [{"name": "other-east"}]


def test_what_is_optional_keeps_nobody_home() -> None:
    manifest = job(container={"envFrom": [{"secretRef": {"name": "extra", "optional": True}}]})
    assert may_go(verdicts(manifest, maps()))
    assert rewrite(manifest, maps()).manifest["metadata"]["namespace"] == "ml-vision"


SETTINGS = {"kind": "ConfigMap", "metadata": {"name": "settings", "uid": "x"}, "data": {"lr": "0.1"}}


def test_a_config_map_travels_with_the_job_named_by_its_content() -> None:
    everywhere = job(
        container={
            "env": [{"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "lr"}}}],
            "envFrom": [{"configMapRef": {"name": "settings"}}],
        },
        volumes=[
            {"name": "a", "configMap": {"name": "settings"}},
            {"name": "b", "projected": {"sources": [{"configMap": {"name": "settings"}}]}},
        ],
    )
    made = rewrite(packed(everywhere, [SETTINGS]), maps(copy_config_maps=True))
    (copied,) = made.copies
    name = copied["metadata"]["name"]
    assert name.startswith("settings-")
    assert copied["metadata"]["namespace"] == "ml-vision"
    assert copied["data"] == {"lr": "0.1"}
    assert "uid" not in copied["metadata"]
    text = str(made.manifest)
    assert text.count(name) == 4
    assert "'settings'" not in text
    other = rewrite(packed(everywhere, [{**SETTINGS, "data": {"lr": "0.2"}}]), maps(copy_config_maps=True))
    assert other.copies[0]["metadata"]["name"] != name


def test_a_config_map_that_was_not_there_keeps_the_job_home() -> None:
    manifest = job(container={"envFrom": [{"configMapRef": {"name": "settings"}}]})
    with pytest.raises(Unmapped, match="config map settings was not there"):
        rewrite(manifest, maps(copy_config_maps=True))
    with pytest.raises(Unmapped, match=r"write maps: \{config_maps: copy\}"):
        rewrite(manifest, maps())


@pytest.mark.parametrize(
    ("pod", "feature"),
    [
        ({"volumes": [{"name": "d", "hostPath": {"path": "/data"}}]}, "hostPath /data"),
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostPID": True}, "hostPID"),
        ({"container": {"securityContext": {"privileged": True}}}, "privileged container train"),
        ({"resourceClaims": [{"name": "gpu"}]}, "resource claim gpu"),
        ({"container": {"ports": [{"containerPort": 80, "hostPort": 8080}]}}, "hostPort 8080"),
        ({"securityContext": {"sysctls": [{"name": "net.core.somaxconn"}]}}, "sysctl net.core.somaxconn"),
        (
            {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "audit.json"}}},
            "seccomp profile audit.json",
        ),
        (
            {"container": {"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "lab"}}}},
            "AppArmor profile lab",
        ),
    ],
)
def test_what_reaches_into_the_host_never_travels(pod: Json, feature: str) -> None:
    assert why_not(job(**pod), maps()) == [f"{feature} reaches into the host, and that never travels."]
    assert f"{feature}, which never travels" in needs(job(**pod))


TOKEN: Json = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": "sts.lab"}}]}}
ZONE = "topology.kubernetes.io/zone"
SPREAD: Json = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
TOGETHER: Json = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE}]}}


@pytest.mark.parametrize(
    ("pod", "need", "table"),
    [
        ({"schedulerName": "kai-scheduler"}, "scheduler kai-scheduler", {"schedulers": {"kai-scheduler": ""}}),
        (
            {"schedulingGates": [{"name": "lab.example/quota"}]},
            "scheduling gate lab.example/quota",
            {"scheduling_gates": {"lab.example/quota": ""}},
        ),
        ({"volumes": [TOKEN]}, "token audience sts.lab", {"token_audiences": {"sts.lab": "sts.east"}}),
        ({"topologySpreadConstraints": [SPREAD]}, f"node selector {ZONE}", {"node_selectors": {ZONE: "zone"}}),
        ({"affinity": TOGETHER}, f"node selector {ZONE}", {"node_selectors": {ZONE: ""}}),
    ],
)
def test_what_only_the_scheduler_and_the_issuer_at_home_know_is_a_need_like_any_other(
    pod: Json, need: str, table: Json
) -> None:
    """Such Jobs "could burst anywhere", and hung there for ever: no scheduler of that name, no node with that label."""
    manifest = job(**copy.deepcopy(pod))
    assert need in needs(manifest)
    (why,) = why_not(manifest, maps())
    assert f"{need} is not known at east" in why
    there = maps(**table)
    assert all(meets(has(there), wanted) for wanted in needs(manifest))
    written = pod_of(rewrite(manifest, there).manifest)
    assert str(pod) not in str(written), "it was renamed or left out"
    assert all(to in str(written) for table_of in table.values() for to in table_of.values())


def test_what_every_cluster_has_is_no_need() -> None:
    host = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    soft = {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}
    plain = job(
        schedulerName="default-scheduler",
        topologySpreadConstraints=[host, soft],
        securityContext={"seccompProfile": {"type": "RuntimeDefault"}, "sysctls": [{"name": "kernel.shm_rmid_forced"}]},
    )
    assert needs(plain) == needs(job())


def test_selectors_classes_and_accounts_are_mapped_or_left_out() -> None:
    manifest = job(
        nodeSelector={"lab/rack": "a", "zone": "z1", "kubernetes.io/arch": "amd64", "nvidia.com/gpu.product": "A100"},
        priorityClassName="high",
        priority=1000,
        serviceAccountName="trainer",
        runtimeClassName="nvidia",
        tolerations=[{"key": "lab/only", "operator": "Exists"}, {"key": "nvidia.com/gpu", "operator": "Exists"}],
    )
    there = maps(
        node_selectors={"lab/rack": "", "zone=z1": "zone=eu-1"},
        priority_classes={"high": "urgent"},
        service_accounts={"trainer": ""},
        runtime_classes={"nvidia": "nvidia"},
    )
    pod = pod_of(rewrite(manifest, there).manifest)
    assert pod["nodeSelector"] == {"zone": "eu-1", "kubernetes.io/arch": "amd64"}
    assert pod["priorityClassName"] == "urgent"
    assert "priority" not in pod
    assert "serviceAccountName" not in pod
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert len(why_not(manifest, maps())) == 5


def test_another_architecture_stays_home() -> None:
    arm = job(nodeSelector={"kubernetes.io/arch": "arm64"})
    assert why_not(arm, maps()) == [
        "architecture arm64 is not known at east; write maps: {architectures: [amd64, arm64]}."
    ]
    assert may_go(verdicts(arm, maps(architectures=("amd64", "arm64"))))


def test_required_node_affinity_stays_home_unless_it_may_be_left_out() -> None:
    terms: Json = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    manifest = job(affinity={"nodeAffinity": terms})
    assert not may_go(verdicts(manifest, maps()))
    pod = pod_of(rewrite(manifest, maps(node_selectors={"affinity": ""})).manifest)
    assert pod["affinity"] == {"nodeAffinity": {}}


EVERYTHING = job(
    container={**SECRET_ENV, "image": "lab.internal/a:1"},
    volumes=[claim("scratch"), {"name": "s", "configMap": {"name": "settings"}}],
    imagePullSecrets=[{"name": "regcred"}],
    nodeSelector={"lab/rack": "a", "kubernetes.io/arch": "amd64"},
    serviceAccountName="trainer",
    priorityClassName="high",
)
TABLES: dict[str, Any] = {
    "secrets": {"hub": "hub", "regcred": ""},
    "images": {"lab.internal/": "x.example/"},
    "volumes": {"scratch": "s"},
    "copy_config_maps": True,
    "node_selectors": {"lab/rack": ""},
    "service_accounts": {"trainer": ""},
    "priority_classes": {"high": ""},
}


@pytest.mark.parametrize("without", [None, *TABLES, "architectures", "namespaces"])
def test_the_engines_rule_and_the_verdicts_agree(without: str | None) -> None:
    """Whatever map is missing: a Job that the engine lets go can be rewritten, and one that it keeps cannot."""
    tables = {key: to for key, to in TABLES.items() if key != without}
    there = maps(**tables, **({without: ()} if without in ("architectures", "namespaces") else {}))
    lets_go = all(meets(has(there), need) for need in needs(EVERYTHING))
    assert lets_go == may_go(verdicts(EVERYTHING, there)) == (without is None)
    if lets_go:
        rewrite(packed(EVERYTHING, [SETTINGS]), there)


def test_a_job_of_no_shape_at_all_is_read_without_a_stumble() -> None:
    odd: list[Json] = [{}, {"spec": []}, {"spec": {"template": {"spec": {"volumes": "x", "containers": [{"env": 2}]}}}}]
    for manifest in odd:
        assert needs(manifest)[0] == "a Kubernetes cluster"


# --- host names -------------------------------------------------------------------------------------------------------

SERVICE: Json = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "rendezvous", "namespace": "vision", "uid": "u2"},
    "spec": {
        "clusterIP": "None",
        "clusterIPs": ["None"],
        "selector": {"job-name": "train"},
        "ports": [{"port": 29500, "nodePort": 31000}],
    },
}


def test_the_service_of_a_subdomain_is_copied_under_its_own_name_without_what_its_cluster_gave_it() -> None:
    made = rewrite(packed(job(subdomain="rendezvous"), [SERVICE]), maps(copy_services=True))
    (copied,) = made.copies
    assert copied["metadata"] == {
        "name": "rendezvous",
        "namespace": "ml-vision",
        "labels": {annotations.COPY: "service"},
        "annotations": {annotations.COPY_OF: "vision/rendezvous"},
    }
    assert copied["spec"] == {"clusterIP": "None", "selector": {"job-name": "train"}, "ports": [{"port": 29500}]}
    assert pod_of(made.manifest)["subdomain"] == "rendezvous"


def test_a_service_that_is_not_there_keeps_the_job_home_and_the_line_to_write_is_named() -> None:
    """Its pods would look for each other until its lease ends."""
    named = job(subdomain="rendezvous")
    assert why_not(named, maps()) == ["service rendezvous is not known at east; write maps: {services: copy}."]
    assert "service rendezvous" in needs(named)
    with pytest.raises(Unmapped, match="service rendezvous was not there to be copied"):
        rewrite(named, maps(copy_services=True))
    assert "subdomain" not in pod_of(rewrite(named, maps(services={"rendezvous": ""})).manifest)


def test_host_names_with_their_namespace_need_a_namespace_of_that_name() -> None:
    whole = {"env": [{"name": "MASTER_ADDR", "value": "train-0.rendezvous.vision.svc.cluster.local"}]}
    named = job(subdomain="rendezvous", container=whole)
    there = maps(copy_services=True)
    says = "Its host names have the namespace vision in them, which east has not; leave the namespace out of them, or"
    assert why_not(named, there) == [f"{says} write maps: {{namespaces: {{vision: vision}}}}."]
    assert why_not(named, maps(copy_services=True, namespaces={"vision": "vision"})) == []
    short = {"command": ["run", "train-0.rendezvous:29500"]}
    assert why_not(job(subdomain="rendezvous", container=short), there) == []


# --- the sites file ---------------------------------------------------------------------------------------------------

SITES = """
currency: EUR
sites:
  - name: east
    driver: kubernetes
    offers: [{{name: gpu, term: owned, gpu: A100, gpus_per_node: 8, nodes: 1, price: {{per: gpu_hour, list: 2}}}}]
    maps: {maps}
"""


def test_the_sites_file_says_what_a_site_has() -> None:
    text = "{namespaces: {vision: ml-vision}, config_maps: copy, secrets: {regcred: }, volumes: {scratch: emptyDir}}"
    file = parse_sites(SITES.format(maps=text).encode(), "sites.yaml")
    (site_maps,) = file.maps
    assert (site_maps.namespaces, site_maps.copy_config_maps) == ((("vision", "ml-vision"),), True)
    assert file.sites[0].has == has(site_maps)
    assert meets(file.sites[0].has, "config map anything")
    assert not meets(file.sites[0].has, "secret regcred")
    assert meets(file.sites[0].has, "pull secret regcred")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{volume: {a: b}}", "unknown key 'volume'; did you mean 'volumes'?"),
        ("{volumes: {a: B_C}}", "'B_C' is not a name in Kubernetes"),
        ("{namespaces: {a: ''}}", "'' is not a name in Kubernetes"),
        ("{config_maps: copied}", "config_maps"),
    ],
)
def test_a_mistake_in_the_maps_is_one_sentence_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(BadInput) as bad:
        parse_sites(SITES.format(maps=text).encode(), "sites.yaml")
    assert sentence in str(bad.value)
    assert "sites.yaml, line 7" in str(bad.value)


def test_maps_are_for_kubernetes_sites() -> None:
    text = SITES.format(maps="{config_maps: copy}").replace("driver: kubernetes", "driver: local")
    with pytest.raises(BadInput, match="this is for sites with 'driver: kubernetes'"):
        parse_sites(text.encode(), "sites.yaml")

"""The sites file's keys, one class per level. docs/sites.md has a table for each."""

from typing import ClassVar, Literal, TypeAlias

import msgspec

from penstock.config.convert import Section
from penstock.config.scalars import (
    Amount,
    Ceiling,
    Count,
    Currency,
    Day,
    Duration,
    Flag,
    Grams,
    Interval,
    Name,
    NamespacePath,
    Number,
    Percent,
    Priority,
    Profile,
    Rate,
    Scope,
    Size,
    Text,
    Word,
)
from penstock.core.model.types import Guarantee, SoldBy, Term
from penstock.core.units import GB, HOUR, MINUTE, SECOND


class RateSection(Section, frozen=True):
    currency: Currency
    rate: Rate
    dated: Day
    margin: Percent = Percent(0)


class PriceSection(Section, frozen=True):
    per: Literal["gpu_hour", "node_hour"] = "gpu_hour"
    list_price: Amount | None = msgspec.field(name="list", default=None)
    contract: Amount | None = None
    most: Ceiling | None = None
    marginal: Amount | None = None


class ShapeSection(Section, frozen=True):
    gpus_per_node: Count
    nodes: Count | None = None
    node_type: Text | None = None
    price: PriceSection | None = None


class ExtrasSection(Section, frozen=True):
    disk_per_hour: Amount = Amount(0)
    address_per_hour: Amount = Amount(0)
    cluster_per_hour: Amount = Amount(0)
    nat_per_gb: Amount = Amount(0)
    launch_fee: Amount = Amount(0)


class TolerationSection(Section, frozen=True):
    key: Text | None = None
    value: Word | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class NodeSelectionSection(Section, frozen=True):
    selector: dict[str, Word] = msgspec.field(default_factory=dict)
    tolerations: tuple[TolerationSection, ...] = ()
    resource: Text | None = None
    queue: Name | None = None
    headroom: tuple[Number, ...] = ()
    provisioning_class: Text | None = None


class NodeClassSection(Section, frozen=True):
    group: Text
    kind: Text
    name: Word


class TaintSection(Section, frozen=True):
    key: Text
    value: Word | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class ManagementSection(Section, frozen=True):
    kubeconfig: Text | None = None
    context: Text | None = None
    in_cluster: Flag = Flag(False)
    kubeconfig_secret: Text | None = None
    allow_exec: tuple[Text, ...] = ()


class RentSection(Section, frozen=True):
    way: Literal["karpenter", "cluster_api", "eks", "aks", "gke", "ovh"]
    node_class: NodeClassSection | None = None
    deployment: Word | None = None
    namespace: Word | None = None
    management: ManagementSection | None = None
    watchman: Word | None = None
    cluster: Text | None = None
    region: Text | None = None
    node_role: Word | None = None
    subscription: Text | None = None
    resource_group: Text | None = None
    project: Text | None = None
    location: Text | None = None
    accelerator: Text | None = None
    accelerators: Count | None = None
    topology: Text | None = None
    service_account: Text | None = None
    subnets: tuple[Word, ...] | None = None
    image: Text | None = None
    disk: Size | None = None
    monthly: Flag | None = None
    endpoint: Word | None = None
    notices: Word | None = None
    instance_types: tuple[Text, ...] = ()
    zones: tuple[Text, ...] = ()
    labels: dict[str, Word] = msgspec.field(default_factory=dict)
    taints: tuple[TaintSection, ...] = ()


Weekday: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class WarmSection(Section, frozen=True):
    nodes: Count
    budget: Scope
    hours: Text | None = None
    days: tuple[Weekday, ...] = ()
    gpus: Count | None = None
    forecast: Flag = Flag(False)


class OfferSection(Section, frozen=True):
    name: Name
    gpu: Text
    term: Term = "on_demand"
    mig: Profile | None = None
    gpus_per_node: Count | None = None
    nodes: Count | None = None
    node_type: Text | None = None
    family: Text | None = None
    price: PriceSection | None = None
    shapes: tuple[ShapeSection, ...] | None = None
    start: Duration = Duration(0)
    lost_every: Interval | None = None
    limit_gpus: Count | None = None
    sold_by: SoldBy | None = None
    billing_step: Interval | None = None
    billing_minimum: Duration | None = None
    kill: Duration | None = None
    guarantee: Guarantee | None = None
    extras: ExtrasSection | None = None
    kubernetes: NodeSelectionSection | None = None
    rent: RentSection | None = None
    warm: WarmSection | None = None
    closed: Flag = Flag(False)


class TierSection(Section, frozen=True):
    per_gb: Amount
    up_to: Size | None = None


class LocalSection(Section, frozen=True):
    notice: Duration = Duration(2_000)
    grace: Duration = Duration(10_000)
    lost_after: tuple[Duration, ...] = ()
    folder: Word | None = None
    pass_env: tuple[Name, ...] = ()
    log_limit: Size = Size(256 << 20)
    memory: Size | None = None
    processes: Count = Count(16_384)


class ClusterSection(Section, frozen=True):
    kubeconfig: Word | None = None
    kubeconfig_secret: Word | None = None
    context: Text | None = None
    in_cluster: Flag = Flag(False)
    allow_exec: tuple[Text, ...] = ()
    namespace: Name = Name("penstock")
    namespaces: tuple[Name, ...] = ()
    shared: Flag = Flag(False)
    secret: Name | None = None
    grace: Duration = Duration(30_000)
    room: Interval = Interval(MINUTE)
    scale: Interval = Interval(15 * MINUTE)


class MapsSection(Section, frozen=True):
    namespaces: dict[str, Word | None] = msgspec.field(default_factory=dict)
    images: dict[str, Word | None] = msgspec.field(default_factory=dict)
    config_maps: Literal["copy"] | dict[str, Word | None] = msgspec.field(default_factory=dict)
    services: Literal["copy"] | dict[str, Word | None] = msgspec.field(default_factory=dict)
    secrets: dict[str, Word | None] = msgspec.field(default_factory=dict)
    service_accounts: dict[str, Word | None] = msgspec.field(default_factory=dict)
    volumes: dict[str, Word | None] = msgspec.field(default_factory=dict)
    node_selectors: dict[str, Word | None] = msgspec.field(default_factory=dict)
    priority_classes: dict[str, Word | None] = msgspec.field(default_factory=dict)
    runtime_classes: dict[str, Word | None] = msgspec.field(default_factory=dict)
    schedulers: dict[str, Word | None] = msgspec.field(default_factory=dict)
    scheduling_gates: dict[str, Word | None] = msgspec.field(default_factory=dict)
    token_audiences: dict[str, Word | None] = msgspec.field(default_factory=dict)
    resources: dict[str, Word | None] = msgspec.field(default_factory=dict)
    gpus: dict[str, Text] = msgspec.field(default_factory=dict)
    architectures: tuple[Name, ...] = (Name("amd64"),)


class QueueSection(Section, frozen=True):
    manager: Name
    cluster: Word | None = None
    check: Word | None = None
    wait: Interval = Interval(15 * MINUTE)


DriverName: TypeAlias = Literal["local", "rehearsal", "kubernetes", "kueue"]


class TransientSection(Section, frozen=True):
    cluster_class: Name = msgspec.field(name="class")
    version: Text
    fee: Amount
    budget: Scope
    namespace: Name = Name("default")
    management: ManagementSection | None = None
    variables: dict[str, Word] = msgspec.field(default_factory=dict)
    workers: dict[str, Count] = msgspec.field(default_factory=dict)
    start: Duration = Duration(5 * MINUTE)
    up_within: Duration = Duration(15 * MINUTE)
    idle: Duration = Duration(10 * MINUTE)
    at_most: Duration = Duration(12 * HOUR)
    kill: Duration = Duration(10 * MINUTE)
    billing_step: Interval = Interval(SECOND)
    guarantee: Literal["watchman", "none"] = "watchman"
    watchman: Name = Name("penstock")


class SiteSection(Section, frozen=True):
    name: Name
    offers: tuple[OfferSection, ...]
    location: Text | None = None
    operator: Text | None = None
    law: Text | None = None
    cloud: Name | None = None
    region: Text | None = None
    front_door: Flag = Flag(False)
    carbon_g_per_kwh: Grams = Grams(0)
    currency: Currency | None = None
    egress: tuple[TierSection, ...] = ()
    ingress_per_gb: Amount = Amount(0)
    driver: DriverName | None = None
    local: LocalSection | None = None
    maps: MapsSection | None = None
    kubernetes: ClusterSection | None = None
    kueue: QueueSection | None = None
    cluster: TransientSection | None = None

    @property
    def reached_by(self) -> DriverName | None:
        """Its driver: the one it names, or the one whose keys it has."""
        if self.driver is not None:
            return self.driver
        if self.kueue is not None:
            return "kueue"
        return "kubernetes" if self.kubernetes is not None else "local" if self.local is not None else None


class DataSection(Section, frozen=True):
    name: Name
    size: Size
    site: Name
    data_class: Name | None = msgspec.field(name="class", default=None)
    folder: Text | None = None
    teams: tuple[Name, ...] = ()


class DataRuleSection(Section, frozen=True):
    data_class: Name = msgspec.field(name="class")
    sites: tuple[Text, ...] = ()
    locations: tuple[Text, ...] = ()
    laws: tuple[Text, ...] = ()


class CapSection(Section, frozen=True):
    scope: Scope
    per_month: Amount | None = None
    per_hour: Amount | None = None


class TeamSection(Section, frozen=True):
    name: Name
    namespaces: tuple[NamespacePath, ...] = ()
    projects: tuple[Name, ...] = ()
    classes: tuple[Name, ...] | None = None
    highest_priority: Priority = Priority(1000)
    queued_jobs: Count = Count(10_000)
    journal_per_day: Size = Size(2 * GB)


class FaultSection(Section, frozen=True):
    at: Duration
    what: Text
    lasts: Interval


class PolicySection(Section, frozen=True):
    renamed: ClassVar = {"value_of_waiting": "cost_of_delay"}

    cost_of_delay: Amount = Amount(20)
    longest_wait: Interval = Interval(23 * HOUR)
    come_home: Flag = Flag(True)
    share_nodes: Flag = Flag(True)
    stay: Duration = Duration(30 * MINUTE)
    least_left: Duration = Duration(30 * MINUTE)
    least_lease: Interval = Interval(10 * MINUTE)
    preempt: Flag = Flag(False)
    displace: Flag = Flag(False)
    when_exhausted: Literal["checkpoint_stop", "move_home"] = "checkpoint_stop"
    hard_caps: Flag = Flag(False)


class ConfigMapSection(Section, frozen=True):
    site: Name
    name: Word
    namespace: Word | None = None
    key: Word = Word("policy.yaml")


class KueueSection(Section, frozen=True):
    name: Name
    kubeconfig: Word | None = None
    kubeconfig_secret: Word | None = None
    context: Text | None = None
    in_cluster: Flag = Flag(False)
    allow_exec: tuple[Text, ...] = ()
    namespaces: tuple[Name, ...] = ()
    check: Word = Word("penstock")


class FileSection(Section, frozen=True):
    sites: tuple[SiteSection, ...]
    currency: Currency = Currency("USD")
    rates: tuple[RateSection, ...] = ()
    data: tuple[DataSection, ...] = ()
    data_rules: tuple[DataRuleSection, ...] = ()
    caps: tuple[CapSection, ...] = ()
    teams: tuple[TeamSection, ...] = ()
    faults: tuple[FaultSection, ...] = ()
    policy: PolicySection = PolicySection()
    policy_config_map: ConfigMapSection | None = None
    kueue: tuple[KueueSection, ...] = ()
    time_zone: Text | None = None

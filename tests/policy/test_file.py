"""The policy file: plain keys in, the core's values out; whatever is wrong is one sentence that says where."""

import contextlib
import hashlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import PolicyOptions, SitesFile, parse_sites, read_sites
from penstock.config.convert import keys_of
from penstock.config.sections import PolicySection
from penstock.config.teams import Team
from penstock.core.errors import BadFile, BadInput
from penstock.core.model import governance as g
from penstock.core.model.types import DataRule
from penstock.core.units import HOUR, MINUTE, money
from penstock.live.config_facts import configured, policy_of
from penstock.policy.file import PolicyFile, governed, parse_policy, read_policy
from penstock.policy.hours import window
from penstock.policy.sections import PolicyFileSection
from tests.conftest import ROOT

WHOLE = """\
version: 1
organisation: {per_month: 50000}
projects: {atlas: {per_hour: 10}}
teams:
  vision:
    {per_month: 20000, per_hour: 120, per_job: 4000, share: 40%, gpus_at_once: 64, egress_per_month: 5TB,
     projects: [atlas], namespaces: [vision], classes: [training], highest_priority: 7, queued_jobs: 50,
     journal_per_day: 1GB, allow: {regions: [eu-central-1]}}
  speech: {}
classes:
  inference: {where: owned, because: "flat cost, low latency"}
  experiment: {where: rented, spot: required, longest: 24h, cost_of_delay: 5}
  training: {cost_of_delay: 0.5}
  critical: {preempts: [experiment], spot: forbidden}
burst_when:
  - {queued_jobs: 20}
  - {expected_wait: 2h}
  - {utilisation: 95%, for: 15m}
  - {deadline_at_risk: true}
never_burst_above: {per_gpu_hour: 4.50, per_job: 2000}
allow: {clouds: [aws, ovhcloud], regions: ["eu-*"], families: [p4d, "gpu_*"], gpus: [H100]}
data:
  personal: {locations: [EU], laws: [EU]}
  restricted: {sites: [lab]}
quiet_hours: [{from: "22:00", to: "06:00", zone: Europe/Berlin}]
idle_nodes_end_after: 10m
headroom:
  - {site: lab, gpus: 8, from: "22:00", to: "06:00", zone: Europe/Berlin, for: inference}
  - {site: lab, gpus: 2, days: [tue, mon]}
approvals:
  - {when: "quote.cost > 2000", by: role:approver, within: 4h}
rules:
  - {name: old-cards, deny: 'offer.gpu == "H100"', because: "tests use older cards"}
  - {name: wide, approval: "job.gpus > 64", by: role:operator, within: 1h, because: "half of the cluster"}
hard_caps: true
cost_of_delay: 7.50
come_home: false
"""

SITES = b"""
sites:
  - name: lab
    front_door: true
    offers: [{name: a, term: owned, gpu: A100, gpus_per_node: 8, nodes: 2}]
  - {name: cloud, offers: [{name: b, gpu: H100, price: {list: 2}}]}
"""


def parsed(text: str, sites: SitesFile | None = None) -> PolicyFile:
    return parse_policy(text.encode(), "policy.yaml", sites)


def refused(text: str, sites: SitesFile | None = None) -> list[str]:
    with pytest.raises(BadFile) as bad:
        parsed(text, sites)
    return [str(error).removeprefix("policy.yaml, ") for error in bad.value.errors]


def site_file(more: str = "") -> SitesFile:
    return parse_sites(SITES + more.encode(), "sites.yaml")


def test_every_part_of_the_file_becomes_a_value_with_its_line() -> None:
    made = parsed(WHOLE)
    night = window(22 * 60, 6 * 60, "Europe/Berlin")
    early = window(0, 24 * 60, "UTC", (0, 1))
    assert made.governance == g.Governance(
        classes=(
            g.ClassRule("inference", "owned", because="flat cost, low latency", source="policy.yaml:11"),
            g.ClassRule("experiment", "rented", "required", 24 * HOUR, money("5"), source="policy.yaml:12"),
            g.ClassRule("training", cost_of_delay=money("0.5"), source="policy.yaml:13"),
            g.ClassRule("critical", spot="forbidden", preempts=("experiment",), source="policy.yaml:14"),
        ),
        teams=(
            g.TeamRule(
                team="vision",
                share_permille=400,
                gpus_at_once=64,
                per_job=money("4000"),
                egress_bytes_per_month=5_000_000_000_000,
                allow=g.Allow(regions=("eu-central-1",), source="policy.yaml:8"),
                source="policy.yaml:5",
            ),
            g.TeamRule("speech", source="policy.yaml:9"),
        ),
        burst_when=(
            g.BurstTrigger("queued_jobs", 20, source="policy.yaml:16"),
            g.BurstTrigger("expected_wait", 2 * HOUR, source="policy.yaml:17"),
            g.BurstTrigger("utilisation", 950, 15 * MINUTE, "policy.yaml:18"),
            g.BurstTrigger("deadline_at_risk", 1, source="policy.yaml:19"),
        ),
        never_above=g.PriceLimit(money("4.50"), money("2000"), "policy.yaml:20"),
        allow=g.Allow(("aws", "ovhcloud"), ("eu-*",), ("p4d", "gpu_*"), ("H100",), "policy.yaml:21"),
        quiet_hours=(g.QuietHours(night.id, "policy.yaml:25"),),
        headroom=(
            g.Headroom(night.id, "lab", 8, "inference", "policy.yaml:28"),
            g.Headroom(early.id, "lab", 2, source="policy.yaml:29"),
        ),
        windows=(night, early),
        idle_nodes_end_after_ms=10 * MINUTE,
        approvals=(
            g.ApprovalRule("approval-1", "quote.cost > 2000", "approver", 4 * HOUR, source="policy.yaml:31"),
            g.ApprovalRule("wide", "job.gpus > 64", "operator", HOUR, "half of the cluster", "policy.yaml:34"),
        ),
        rules=(g.DenyRule("old-cards", 'offer.gpu == "H100"', "tests use older cards", "policy.yaml:33"),),
        version=1,
        digest=hashlib.sha256(WHOLE.encode()).hexdigest(),
    )
    assert made.options == PolicyOptions(
        cost_of_delay=money("7.50"), come_home=False, hard_caps=True, hard_caps_source="policy.yaml:35"
    )
    assert made.caps == (
        ("org", money("50000"), None),
        ("project:atlas", None, money("10")),
        ("team:vision", money("20000"), money("120")),
    )
    assert made.data_rules == (
        DataRule("personal", (), ("EU",), ("EU",), "policy.yaml:23"),
        DataRule("restricted", ("lab",), source="policy.yaml:24"),
    )
    assert made.teams == (
        Team("vision", ("vision",), ("atlas",), ("training",), 7, 50, 1_000_000_000),
        Team("speech"),
    )


def test_the_sites_file_then_says_what_the_policy_file_says() -> None:
    sites = site_file()
    file = governed(sites, parsed(WHOLE, sites))
    policy = policy_of(file)
    assert policy.governance == parsed(WHOLE).governance
    assert (policy.require_hard_caps, policy.home, policy.waiting.value_per_hour) == (True, False, money("7.5"))
    assert policy.hard_caps_source == "policy.yaml:35"
    assert policy.data_rules == parsed(WHOLE).data_rules
    caps = SitesFile("USD", (), caps=parsed(WHOLE).caps, cap_sources=parsed(WHOLE).cap_sources)
    assert [fact for fact in configured(file) if type(fact).__name__ == "CapSet"] == [*configured(caps)[:3]]
    assert [source.partition(":")[0] for _, source in file.cap_sources] == ["policy.yaml"] * len(file.cap_sources)
    assert governed(sites, parsed("version: 1\n")).policy == sites.policy


def test_what_only_the_sites_file_says_still_holds() -> None:
    sites = site_file("caps: [{scope: org, per_month: 5}]\ndata_rules: [{class: x, sites: [lab]}]\n")
    file = governed(sites, parsed("version: 1\nteams: {a: {gpus_at_once: 8}}\n", sites))
    assert (file.caps, file.data_rules) == (sites.caps, sites.data_rules)
    assert [team.name for team in file.teams] == ["a"]


def test_what_both_files_say_is_an_error_that_names_the_lines_to_delete() -> None:
    old = "caps:\n  - {scope: org, per_month: 5}\nteams: [{name: a}]\ndata_rules: [{class: x}]\npolicy: {stay: 1m}\n"
    new = "version: 1\nteams:\n  a: {per_hour: 3}\ndata: {x: {sites: [lab]}}\npreempt: true\n"
    says = "the sites file says this, too, under"
    assert refused(new, site_file(old)) == [
        f"line 2, teams: {says} 'teams'; delete line 9 there, or this here.",
        f"line 3, teams.a.per_hour: {says} 'caps'; delete lines 7 to 8 there, or this here.",
        f"line 4, data: {says} 'data_rules'; delete line 10 there, or this here.",
        f"line 5, preempt: {says} 'policy'; delete line 11 there, or this here.",
    ]


ONE = "classes: {a: {}}\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("caps: hard", "line 2: unknown key 'caps'; did you mean 'hard_caps'?"),
        ("teams: {x y: {}}", "line 2, teams.x y: 'x y' is not a name"),
        ("teams: {a: {classes: [b]}}\n" + ONE, "line 2, teams.a.classes[0]: there is no class 'b'; known here: a."),
        ("classes: {a: {preempts: [b]}}", "line 2, classes.a.preempts[0]: there is no class 'b'; known here: a."),
        ("classes: {a: {preempts: [a]}}", "line 2, classes.a.preempts[0]: jobs of a class do not preempt each other"),
        ("classes: {a: {where: home}}", "line 2, classes.a.where: unknown word 'home'; known here: owned, owned_first"),
        ("classes: {a: {where: owned, spot: required}}", "line 2, classes.a.spot: what is never rented is never on"),
        ("headroom: [{site: lab, gpus: 1, for: b}]\n" + ONE, "line 2, headroom[0].for: there is no class 'b'"),
        ("organisation: {}", "line 2, organisation: the key 'per_month' is missing, or 'per_hour'"),
        ("projects: {a: {}}", "line 2, projects.a: the key 'per_month' is missing, or 'per_hour'"),
        ("never_burst_above: {}", "line 2, never_burst_above: the key 'per_gpu_hour' is missing, or 'per_job'"),
        ("burst_when: [{for: 5m}]", "line 2, burst_when[0]: a condition has one of queued_jobs, expected_wait,"),
        ("burst_when: [{expected_wait: 5m, for: 5m}]", "line 2, burst_when[0].for: 'for' is of queued_jobs and"),
        ("quiet_hours: [{from: 9, to: '10:00'}]", "line 2, quiet_hours[0].from: '9' is not a time of day like 08:00"),
        ("quiet_hours: [{from: '24:00', to: '10:00'}]", "line 2, quiet_hours[0].from: a day ends at 24:00; write"),
        (
            "quiet_hours: [{from: '09:00', to: '10:00', zone: Mars}]",
            "line 2, quiet_hours[0].zone: 'Mars' is not a time",
        ),
        (
            "quiet_hours: [{from: '09:00', to: '10:00', owned_only: false}]",
            "line 2, quiet_hours[0].owned_only: hours in",
        ),
        ("allow: {regions: ['*-west']}", "line 2, allow.regions[0]: '*-west' is not a name, or its beginning and a *"),
        (
            "approvals: [{when: 'true', by: role:boss, within: 1h}]",
            "line 2, approvals[0].by: 'role:boss' is not a role that",
        ),
        (
            "approvals: [{when: 'true', by: ada, within: 1h}]",
            "line 2, approvals[0].by: 'ada' is not a role that may approve: role:",
        ),
        ("rules: [{name: a}]", "line 2, rules[0] (a): a rule has 'deny' or 'approval'; it has neither."),
        (
            "rules: [{name: a, deny: 'true', by: role:admin}]",
            "line 2, rules[0].by (a): 'by' is for rules with 'approval'",
        ),
        ("rules: [{name: a, approval: 'true', by: role:admin}]", "line 2, rules[0] (a): the key 'within' is missing"),
        (
            "rules: [{name: a, deny: 'true'}, {name: a, deny: 'true'}]",
            "line 2, rules[1].name (a): 'a' is taken by rules",
        ),
        ("rules: [{name: a, deny: 'job.clas == 1'}]", "line 2, rules[0].deny (a): column 1: There is no job.clas; did"),
        ("rules: [{name: a, deny: job.gpus}]", "line 2, rules[0].deny (a): The condition gives a whole number, and"),
        ("rules: [{name: a, deny: 'job.data.all(x, true)'}]", "line 2, rules[0].deny (a): Loops over lists (exists,"),
        ("rules: [{name: a, deny: 'quote.cost > 1'}]", "line 2, rules[0].deny (a): column 1: There is no quote.cost"),
        ("approvals: [{when: '1 +', by: role:admin, within: 1h}]", "line 2, approvals[0].when: column 4: Syntax error"),
        ("least_lease: 1ms", "line 2, least_lease: leases this short leave no time"),
        ("data: {x: {sites: [lap]}}", "line 2, data.x.sites[0]: there is no site 'lap'; did you mean 'lab'?"),
        ("headroom: [{site: x, gpus: 1}]", "line 2, headroom[0].site: there is no site 'x'; known here: lab, cloud."),
        ("headroom: [{site: cloud, gpus: 1}]", "line 2, headroom[0].site: site 'cloud' has no owned or reserved GPUs"),
        ("headroom: [{site: lab, gpus: 17}]", "line 2, headroom[0].gpus: site 'lab' has 16 owned and reserved GPUs,"),
        ("teams: {a: {namespaces: [cloud/x]}}", "line 2, teams.a.namespaces[0]: there is no site with 'front_door: tr"),
        ("currency: EUR", "line 2, currency: the sites file counts in USD"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_with_line_and_key(text: str, sentence: str) -> None:
    (message,) = refused(f"version: 1\n{text}\n", site_file())
    assert message.startswith(sentence)


def test_a_newer_version_is_refused_before_its_keys_are_judged() -> None:
    assert refused("version: 2\nlater: {}\n") == [
        "line 1, version: this file is of version 2, and this Penstock reads version 1; install a newer one."
    ]


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "the file is empty; it needs at least 'version: 1' (examples/policy.yaml shows how)."),
        (b"- a", "this must be a group of keys; it is a list."),
        (b"version: 1\nteams: &t {a: {}}\nprojects: *t\n", "YAML aliases (*name) are not understood; write it out."),
        (b"a: " + b"{a: " * 60 + b"}" * 60, "nested too deeply for a policy file."),
        (b"version: 1\nrules: [" + b"a," * 60_000 + b"]", "more than 50,000 words, lists and keys; this cannot be a"),
        (b"\xff", "not UTF-8 text; save the file as UTF-8."),
        (
            b"version: 1\nteams: {" + b",".join(b"t%d: {}" % k for k in range(1_001)) + b"}",
            "line 2, teams: 1,001 entries are too many; at most 1,000.",
        ),
        (
            b"version: 1\nrules: [" + b",".join(b"{name: r%d, deny: 'false'}" % k for k in range(501)) + b"]",
            "line 2, rules: 501 conditions in CEL with 2,505 characters; a file has at most 500 with 50,000.",
        ),
    ],
)
def test_a_hostile_file_costs_little_and_is_refused(raw: bytes, sentence: str) -> None:
    with pytest.raises(BadInput) as bad:
        parse_policy(raw, "policy.yaml")
    assert sentence in str(bad.value)


WORDS = ("1", "-1", "x", "40%", "5TB", "2h", "true", "[]", "{}", "[a]", "{a: {}}", "", "~", "role:a", '"22:00"')


@given(
    st.lists(
        st.tuples(st.sampled_from([*keys_of(PolicyFileSection)]), st.sampled_from(WORDS)), unique_by=lambda t: t[0]
    )
)
def test_whatever_stands_there_it_is_read_or_refused_by_a_sentence(pairs: list[tuple[str, str]]) -> None:
    text = "".join(f"{key}: {word}\n" for key, word in pairs)
    with contextlib.suppress(BadFile):
        parsed(text, site_file())


def test_the_keys_of_the_sites_files_policy_have_the_same_defaults_here() -> None:
    here = {field.name: field.default for field in msgspec.structs.fields(PolicyFileSection)}
    for field in msgspec.structs.fields(PolicySection):
        assert here[field.name] == field.default, field.name


def test_the_example_goes_with_the_examples_sites(capsys: pytest.CaptureFixture[str]) -> None:
    sites = read_sites(str(ROOT / "examples" / "sites.yaml"))
    policy = read_policy(str(ROOT / "examples" / "policy.yaml"), sites)
    assert governed(sites, policy).notes == ()
    assert capsys.readouterr() == ("", "")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none.yaml: cannot be read \(No such file or directory\)\.$"):
        read_policy(str(tmp_path / "none.yaml"))

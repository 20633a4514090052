"""Warnings of `penstock policy check`: what a policy says that it probably does not mean."""

import pytest

from penstock.config import SitesFile, parse_sites
from penstock.core.units import money
from penstock.live.config_facts import policy_of
from penstock.policy.check import warnings
from penstock.policy.file import governed, parse_policy

SITES = b"""
sites:
  - name: lab
    offers: [{name: a, term: owned, gpu: A100, gpus_per_node: 8, nodes: 2}]
  - name: cloud
    cloud: aws
    region: eu-central-1
    offers:
      - {name: h, gpu: H100, node_type: p5.48xlarge, price: {list: 2}}
      - {name: s, gpu: A100, term: spot, node_type: p4d.24xlarge, price: {list: 1, most: 2}}
data: [{name: scans, size: 1GB, site: lab, class: personal, teams: [vision]}]
"""


def warned(text: str, sites: SitesFile | None = None, **more: object) -> list[str]:
    file = parse_policy(f"version: 1\n{text}\n".encode(), "policy.yaml", sites)
    merged = governed(sites or SitesFile("USD", ()), file)
    raised = warnings(file, policy_of(merged), sites, **more)  # type: ignore[arg-type]  # as the test says
    return [str(warning).removeprefix("policy.yaml, ") for warning in raised]


def there() -> SitesFile:
    return parse_sites(SITES, "sites.yaml")


def rules(*conditions: str) -> str:
    return "rules:\n" + "".join(f"  - {{name: r{k}, deny: '{text}'}}\n" for k, text in enumerate(conditions))


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        (rules('offer.gpu == "H200"'), "line 3, r0: r0 never matches, tried on 2 cases with the sites' 3 offers."),
        (rules("job.gpus > 0"), "line 3, r0: r0 denies everything, tried on 7 cases with the sites' 3 offers."),
        (rules("job.gpus / job.priority > 1"), "line 3, r0: r0 can fail (divide by zero), and then denies; tried on"),
        (
            "classes: {small: {}}\n" + rules('job.class == "smal"'),
            "line 4, r0: r0 never matches, tried on 1 case with the sites' 3 offers. Is a name misspelt?",
        ),
        (
            rules("job.gpus > 8", "job.gpus <= 8"),
            "line 4, r1: r1 and r0 (line 3) contradict: together they deny everything, tried on",
        ),
        (rules("job.gpus > 8", "job.gpus >= 9"), "line 4, r1: r1 and r0 (line 3) deny the same, tried on"),
        (rules("job.gpus > 8", "job.gpus > 64"), "line 4, r1: r1 denies nothing that r0 does not deny already, tried"),
        (rules("job.gpus > 64", "job.gpus > 8"), "line 3, r0: r0 denies nothing that r1 does not deny already, tried"),
        ("allow: {clouds: [gcp, aws]}", "line 2, allow.clouds[0]: No site has 'gcp'; the sites file has aws."),
        ("allow: {families: ['p3*']}", "line 2, allow.families[0]: No site has 'p3*'; the sites file has p5, p4d."),
        ("data: {x: {laws: [EU]}, personal: {}}", "line 2, data: The rule for data class 'x' names law 'EU', and no"),
        (
            "data: {x: {sites: [lab]}}",
            "line 2, data: Data class 'personal' has no rule: its data stays where it lives.",
        ),
        (
            "teams: {a: {}}\ndata: {personal: {}}",
            "line 2, teams: Data set scans is for team vision, which is not here.",
        ),
        (
            "classes: {a: {where: rented, spot: required}}\nallow: {families: [p5]}",
            (
                "line 2, classes.a: No offer is left for jobs of class a, tried with one GPU and no data: class a runs "
                "on rented GPUs only (policy.yaml:2); class a rents spot only (policy.yaml:2); family p4d is not "
                "allowed (policy.yaml:3)."
            ),
        ),
    ],
)
def test_what_is_probably_not_meant_is_a_warning_with_its_line(text: str, beginning: str) -> None:
    data = "" if "data:" in text else "data: {personal: {}}\n"
    assert [warning for warning in warned(f"{text}\n{data}", there()) if warning.startswith(beginning)]


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("teams: {a: {share: 60%}, b: {share: 41%}}", "line 2, teams: The teams' shares sum up to 101 % of the owned"),
        (
            "classes: {a: {where: owned}}\nburst_when: [{queued_jobs: 2}]",
            "line 3, burst_when: No class is 'owned_first'",
        ),
        (
            "classes: {a: {where: rented}, b: {preempts: [a]}}",
            "line 2, classes.b.preempts[0]: Jobs of class a never run",
        ),
        (
            "classes: {a: {where: rented}}\nheadroom: [{site: lab, gpus: 1, for: a}]",
            "line 3, headroom[0]: Jobs of class",
        ),
        (rules('offer.gpu == "H100" && offer.gpu == "A100"'), "line 3, r0: r0 never matches, tried on 3 cases. Is a"),
    ],
)
def test_some_are_found_without_a_sites_file(text: str, beginning: str) -> None:
    (warning,) = warned(text)
    assert warning.startswith(beginning)


def test_classes_that_preempt_each_other_are_warned_of() -> None:
    """The engine lets neither stop the other, since their jobs would take turns for ever; nobody was told."""
    assert warned("classes:\n  a: {preempts: [b]}\n  b: {preempts: [a]}") == [
        "line 3, classes.a.preempts[0]: Class b preempts a, too: neither stops the other's jobs.",
        "line 4, classes.b.preempts[0]: Class a preempts b, too: neither stops the other's jobs.",
    ]
    around = "classes:\n  a: {preempts: [b, d]}\n  b: {preempts: [c]}\n  c: {preempts: [a]}\n  d: {}"
    assert warned(around) == [
        "line 3, classes.a.preempts[0]: Class b preempts c, which preempts a: neither stops the other's jobs.",
        "line 4, classes.b.preempts[0]: Class c preempts a, which preempts b: neither stops the other's jobs.",
        "line 5, classes.c.preempts[0]: Class a preempts b, which preempts c: neither stops the other's jobs.",
    ]


def test_a_teams_cap_above_the_organisations_is_told() -> None:
    """It could never be reached, and nobody said so."""
    text = "organisation: {per_month: 50000, per_hour: 5}\nteams:\n  risk: {per_month: 90000, per_hour: 4}"
    (warning,) = warned(text)
    assert warning == (
        "line 4, teams.risk.per_month: $90,000.00 a month is more than the organisation's $50,000.00, which binds "
        "team:risk first."
    )


def test_a_cap_below_what_is_spent_and_a_team_that_is_not_named_are_told_by_the_journal() -> None:
    spent = {"team:a": money("6"), "org": money("9"), "team:b": 0}
    text = "organisation: {per_month: 10}\nteams: {a: {per_month: 5}}"
    assert sorted(warned(text, spent=spent, teams=["a", "b"])) == [
        (
            "line 3, teams.a.per_month: $5.00 a month is below the $6.00 that team:a has spent this month: nothing "
            "more is rented before the next."
        ),
        "line 3, teams: Team b has submitted jobs, and is not here: only the organisation's cap binds it.",
    ]


def test_a_policy_that_means_what_it_says_gets_no_warning() -> None:
    text = 'classes: {a: {where: owned}, b: {}}\nallow: {gpus: [A100, H100]}\ndata: {personal: {sites: ["*"]}}\n'
    assert warned(text + rules('job.class == "b" && offer.gpu == "H100"'), there()) == []

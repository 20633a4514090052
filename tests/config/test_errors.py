"""A file is checked whole: all its errors in one answer, by line, and none that only follows from another."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import parse_sites, read_sites
from penstock.config.jobs import parse_job, parse_json_job
from penstock.core.errors import BadFile, FileError
from tests.conftest import ROOT

EXAMPLE = re.sub(" *#.*", "", (ROOT / "examples" / "sites.yaml").read_text("utf-8"))


def errors(text: str) -> list[str]:
    try:
        parse_sites(text.encode(), "s.yaml")
    except BadFile as bad:
        return [str(error) for error in bad.errors]
    return []


def test_every_error_of_a_sites_file_is_told_at_once() -> None:
    text = """
currency: euro
rates:
  - {currency: USD, rate: 0, dated: 2026-08-22}
sites:
  - name: lab
    currency: USD
    location: DE
    offers:
      - {name: a100, term: owned, gpu: A100, gpus_per_node: eight, nodes: 4, kill: 5m}
      - {name: a100, term: on-demand, gpu: A100, price: {list: free}}
      - {name: h100, gpu: H100, kill: soon}
  - name: lab
    kubernetes: {namespace: Not_One, kubeconfg: x}
    maps: {secrets: {a: B}}
    offers: []
data:
  - {name: x, size: 1GB, site: lap}
  - {name: y, size: big, site: lab}
caps:
  - {scope: org}
  - {scope: everyone, per_hour: 1}
faults:
  - {at: 1h, what: moon, lasts: 1h}
policy: {preempt: maybe, hard_cap: true}
time_zone: Mars/Olympus
"""
    whole = "a whole number from 1 to 1,000,000"
    amount = "an amount of money like 1500 or 12.50, from 0 to 1,000,000,000,000"
    duration = "a duration like 90s, 5m, 1h30m or 2d, at most ten years"
    assert errors(text) == [
        "s.yaml, line 2, currency: 'euro' is not a currency code: three capital letters like EUR.",
        "s.yaml, line 4, rates[0].rate: '0' is not an exchange rate above zero like 0.92, at most 1,000,000.",
        f"s.yaml, line 10, sites[0].offers[0].gpus_per_node (lab/a100): 'eight' is not {whole}.",
        (
            "s.yaml, line 10, sites[0].offers[0].kill (lab/a100): 'kill' is for rented offers; "
            "what is owned is paid for anyway."
        ),
        "s.yaml, line 11, sites[0].offers[1].term (lab/a100): unknown word 'on-demand'; did you mean 'on_demand'?",
        f"s.yaml, line 11, sites[0].offers[1].price.list (lab/a100): 'free' is not {amount}.",
        "s.yaml, line 11, sites[0].offers[1].name (lab/a100): 'a100' is taken by sites[0].offers[0] already.",
        f"s.yaml, line 12, sites[0].offers[2].kill (lab/h100): 'soon' is not {duration}.",
        (
            "s.yaml, line 12, sites[0].offers[2] (lab/h100): the key 'price' is missing; "
            "an offer that is on_demand has one."
        ),
        "s.yaml, line 13, sites[1].name (lab): 'lab' is taken by sites[0] already.",
        "s.yaml, line 14, sites[1].kubernetes (lab): unknown key 'kubeconfg'; did you mean 'kubeconfig'?",
        (
            "s.yaml, line 14, sites[1].kubernetes.namespace (lab): 'Not_One' is not a namespace: "
            "small letters, digits and '-'."
        ),
        (
            "s.yaml, line 15, sites[1].maps.secrets.a (lab): 'B' is not a name in Kubernetes: "
            "small letters, digits, '-' and '.'."
        ),
        "s.yaml, line 16, sites[1].offers (lab): this list is empty; a site needs at least one offer.",
        "s.yaml, line 18, data[0].site (x): there is no site 'lap'; did you mean 'lab'?",
        (
            "s.yaml, line 19, data[1].size (y): 'big' is not a size above zero like 500MB, 200GB or 1.5TB, "
            "at most 1,000PB."
        ),
        "s.yaml, line 21, caps[0]: the key 'per_month' is missing, or 'per_hour'; a cap needs an amount.",
        "s.yaml, line 22, caps[1].scope: 'everyone' is not a scope: org, team:NAME or project:NAME.",
        (
            "s.yaml, line 24, faults[0].what: 'moon' is neither a site nor a standing node; "
            "write SITE, or SITE/OFFER/NUMBER with numbers from 0."
        ),
        "s.yaml, line 25, policy.preempt: 'maybe' is not true or false.",
        "s.yaml, line 25, policy: unknown key 'hard_cap'; did you mean 'hard_caps'?",
        "s.yaml, line 26, time_zone: there is no time zone 'Mars/Olympus'; write it like Europe/Berlin.",
    ]


def test_what_may_be_meant_by_something_unread_is_no_further_error() -> None:
    """The data set's site may be the one whose name cannot be read; the node may be one of that offer."""
    text = """
sites:
  - name: the lab
    offers: [{name: a, term: owned, gpu: A100, gpus_per_node: 8, nodes: 4}]
data: [{name: x, size: 1GB, site: lab}]
data_rules: [{class: c, sites: [lab]}]
faults: [{at: 1h, what: lab/a/3, lasts: 1h}]
"""
    assert [error.split(":")[0] for error in errors(text)] == ["s.yaml, line 3, sites[0].name (the lab)"]


def test_every_error_of_a_job_is_told_at_once() -> None:
    text = "gpus: two\ncomand: x\nclass: two words\nenv: {1A: b, PENSTOCK_X: c}\nfolder: here\ngpu: [{speed: 0}]\n"
    with pytest.raises(BadFile) as bad:
        parse_job(text.encode(), "job.yaml")
    assert [(error.line, error.key) for error in bad.value.errors] == [
        (1, "gpus"),
        (2, ""),
        (3, "class"),
        (4, "env"),
        (4, "env.PENSTOCK_X"),
        (5, "folder"),
        (6, "gpu[0]"),
        (6, "gpu[0].speed"),
    ]


def test_json_has_keys_instead_of_lines() -> None:
    with pytest.raises(BadFile) as bad:
        parse_json_job(json.dumps({"gpus": 0, "name": ["x"]}).encode(), "The job")
    assert [(error.line, error.key) for error in bad.value.errors] == [(None, "gpus"), (None, "name"), (None, "")]


def test_a_message_shows_twenty_errors_and_counts_the_others() -> None:
    file_errors = [FileError("s.yaml", 40 - k, f"k{k}", "wrong.") for k in range(32)]
    lines = str(BadFile(file_errors)).split("\n")
    assert lines[0] == "s.yaml: 32 errors."
    assert lines[1:-1] == [f"s.yaml, line {line}, k{40 - line}: wrong." for line in range(9, 29)]
    assert lines[-1] == "And 12 more."
    assert str(BadFile(file_errors[:1])) == "s.yaml, line 40, k0: wrong."
    assert str(BadFile(file_errors[:20], more=5)).endswith("\nAnd 5 more.")


def test_an_old_key_works_with_a_notice_that_names_the_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sites.yaml"
    text = "sites: [{name: lab, offers: [{name: a, gpu: A100, price: {list: 2}}]}]\npolicy: {KEY: 7.5}\n"
    path.write_text(text.replace("KEY", "value_of_waiting"))
    old = read_sites(str(path))
    notice = "'value_of_waiting' is called 'cost_of_delay' now; the old name works for a release."
    moves = "'policy' (line 2) moves to a policy file, which --policy names; the old place works for a release."
    assert capsys.readouterr() == ("", f"Notice: {path}, line 2: {notice}\nNotice: {path}: {moves}\n")
    assert old.policy.cost_of_delay == 7_500_000
    assert parse_sites(text.replace("KEY", "cost_of_delay").encode(), "s.yaml") == old
    both = "value_of_waiting: 1, cost_of_delay"
    assert errors(text.replace("KEY", both)) == [
        (
            "s.yaml, line 2, policy.value_of_waiting: this is the old name of 'cost_of_delay', which is here, too; "
            "keep that one."
        )
    ]


#: Amounts, durations, sizes and counts of the example, which can all be misspelt.
NUMBERS = [match.span(1) for match in re.finditer(r"[ {]\w+: ([0-9][0-9.]*[a-zA-Z%]*)(?=[ ,}\n])", EXAMPLE)]


@given(st.sets(st.sampled_from(NUMBERS), min_size=2, max_size=6))
def test_errors_do_not_hide_each_other_and_bring_no_others(places: set[tuple[int, int]]) -> None:
    """Each number that is misspelt is the same error, alone or among others."""
    alone = [error for place in places for error in misspelt(frozenset([place]))]
    assert len(alone) >= len(places)
    assert sorted(misspelt(frozenset(places))) == sorted(alone)


@cache
def misspelt(places: frozenset[tuple[int, int]]) -> list[str]:
    text = EXAMPLE
    for start, end in places:
        text = f"{text[:start]}{'x' * (end - start)}{text[end:]}"
    return errors(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("command: [" + "a," * 7_000 + "]", "more than 6,000 words, lists and keys; this cannot be a job file."),
        ("a: " + "{a: " * 60 + "}" * 60, "nested too deeply for a job file."),
        ("[" * 400_000 + "]" * 400_000, "nested too deeply for a job file."),
        ("- " * 10_000, "nested too deeply for a job file."),
        ("".join(f"%TAG !a{k}! tag:x:\n" for k in range(200)) + "---\na: 1", "more than 100 YAML directives"),
    ],
)
def test_a_job_file_has_bounded_parts(text: str, sentence: str) -> None:
    with pytest.raises(BadFile) as bad:
        parse_job(text.encode(), "job.yaml")
    assert sentence in str(bad.value)


def test_json_has_the_same_bounds() -> None:
    for text, sentence in (
        ('{"command": [' + "1," * 7_000 + "1]}", "more than 6,000 words"),
        ("[" * 100 + "]" * 100, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
    ):
        with pytest.raises(BadFile, match=sentence):
            parse_json_job(text.encode(), "job.json")


def test_only_the_first_wrong_keys_come_with_a_guess() -> None:
    """A guess costs as much as hundreds of checks, and one of a thousand helps nobody."""
    with pytest.raises(BadFile) as bad:
        parse_job("".join(f"comman{k}: a\n" for k in range(1_000)).encode(), "job.yaml")
    messages = [error.message for error in bad.value.errors]
    assert sum("did you mean" in sentence for sentence in messages) == 20
    assert bad.value.more + len(messages) == 1_001

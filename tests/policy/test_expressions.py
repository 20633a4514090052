"""Conditions in CEL: what compiles, what is said of what does not, and that no answer but False lets anything pass."""

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policy.expressions import MOST_CHARACTERS, MOST_LISTED, MOST_TEXT, BadExpression, compiled
from penstock.policy.fields import OF_APPROVALS, OF_RULES, Read

SAMPLE: dict[str, Read] = {"text": "a", "whole": 8, "amount": 4.5, "truth": True, "texts": ["a", "b"]}
VALUES: dict[str, Read] = {field.name: SAMPLE[field.kind] for field in OF_APPROVALS}


def ask(text: str, **values: Read) -> bool | str:
    named = {name.replace("_", ".", 1): value for name, value in values.items()}
    return compiled(text, OF_RULES).holds({**VALUES, **named})


def fault(text: str) -> str:
    with pytest.raises(BadExpression) as raised:
        compiled(text, OF_RULES)
    return str(raised.value)


def test_a_condition_holds_or_not_and_says_what_it_reads() -> None:
    old_cards = compiled('job.class == "experiment" && offer.gpu == "H100"', OF_RULES)
    assert old_cards.reads == ("job.class", "offer.gpu")
    assert old_cards.holds({"job.class": "experiment", "offer.gpu": "H100"}) is True
    assert old_cards.holds({"job.class": "experiment", "offer.gpu": "A100"}) is False
    assert old_cards.holds({"job.class": "experiment", "offer.gpu": "H100"}) is True, "as before"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("offer.price_per_gpu_hour > 4", True),
        ("offer.price_per_gpu_hour > 4.50", False),
        ("offer.price_per_gpu_hour * 2.0 >= 9.0", True),
        ('"b" in job.gpu_models', True),
        ('job.class in ["training", "a"]', True),
        ('site.region.startsWith("eu-")', False),
        ("!job.interruptible || job.gpus > 4", True),
        ('job.`class` == "a"', True),
        ('{"x": job.user}["x"] == "a"', True),
    ],
)
def test_what_people_write(text: str, answer: bool) -> None:
    assert ask(text) is answer


def test_names_are_found_however_they_are_written() -> None:
    text = '{"x": job.user}["x"] == "a" || [job . cap][0] > 3 || job.`class` == "job.team"'
    assert compiled(text, OF_RULES).reads == ("job.class", "job.user", "job.cap")


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("", "The condition is empty."),
        (
            'job.clas == "x"',
            "column 1: There is no job.clas; did you mean job.class? A rule may read job.class, job.team,",
        ),
        ('true\n && job.usr == "b"', "2:5: There is no job.usr; did you mean job.user?"),
        ('offer.region == "x"', "column 1: There is no offer.region; did you mean site.region?"),
        ('job["class"] == "x"', "column 1: job has fields, written like job.class."),
        ("now() > 3", "column 4: There is no now. A rule may read fields of job, offer, site, team."),
        ("quote.cost > 2000", "column 1: There is no quote.cost. A rule may read fields of job, offer, site, team."),
        ('job.gpus > "a"', "column 10: '>' does not work on a whole number and text."),
        ("job.gpus > 1.5", "column 10: '>' does not work on a whole number and a number with decimals. Write"),
        (
            'job.class == "a" && offer.price_per_gpu_hour * 8 > 30',
            "'*' does not work on a number with decimals and a whole number. Write the whole number with a decimal",
        ),
        ("job.class ==", "column 13: Syntax error: it ends too early."),
        ("job.gpus", "The condition gives a whole number, and must give true or false."),
        ('job.class == "\ud800"', "The condition has characters that are no text."),
        ("(" * 50 + "true" + ")" * 50, "The condition is nested too deeply."),
        ("+".join(["1"] * 900) + " > 3", "The condition is nested too deeply."),
        ("true || " * 400 + "true", f"The condition has 3,204 characters; {MOST_CHARACTERS:,} are the most."),
    ],
)
def test_a_mistake_is_told_with_its_place_and_a_hint(text: str, beginning: str) -> None:
    assert fault(text).startswith(beginning)


@pytest.mark.parametrize("macro", ['exists(m, m == "a")', 'all(m, m == "a")', 'exists_one(m, m == "a")'])
def test_loops_are_refused(macro: str) -> None:
    assert fault(f"job.gpu_models.{macro}").startswith("Loops over lists")
    assert fault(f"true && (false || job.gpu_models.{macro})").startswith("Loops over lists")
    assert fault(f'job.class == "a" ? {{"k": job.gpu_models.{macro}}}["k"] : true').startswith("Loops over lists")


@pytest.mark.parametrize("macro", ["map(m, m)", 'filter(m, m == "a")'])
def test_loops_that_make_lists_are_refused(macro: str) -> None:
    assert fault(f"size(job.gpu_models.{macro}) > 1").startswith("Loops over lists")


@pytest.mark.parametrize(
    ("text", "values", "beginning"),
    [
        ("job.gpus / 0 > 1", {}, "divide by zero"),
        ("job.gpus + 1 > 1", {"job_gpus": 2**63 - 1}, "integer overflow"),
        ('job.gpu_models[5] == "a"', {}, "Index error: index=5 size=2"),
        ('job.class.matches("[")', {}, "invalid regular expression"),
        (
            '"a" in job.data',
            {"job_data": ["x"] * (MOST_LISTED + 1)},
            "job.data has 257 entries, and a rule reads at most",
        ),
        ('job.user == "a"', {"job_user": "x" * (MOST_TEXT + 1)}, "job.user is longer than 4,096 characters"),
        ('job.user == "a"', {"job_user": "\ud800"}, "RuntimeError: "),
    ],
)
def test_a_condition_that_fails_answers_with_the_error_and_never_raises(
    text: str, values: dict[str, Read], beginning: str
) -> None:
    answer = ask(text, **values)
    assert isinstance(answer, str)
    assert answer.startswith(beginning)


def test_a_value_that_is_missing_is_an_error_too() -> None:
    assert compiled("job.gpus > 3", OF_RULES).holds({}) == "KeyError: 'job.gpus'"


def test_an_approval_reads_the_quote() -> None:
    dear = compiled("quote.cost > 2000", OF_APPROVALS)
    assert (dear.holds({"quote.cost": 2000.01}), dear.holds({"quote.cost": 2000.0})) == (True, False)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80) | st.text('job.clas&|!()=<>"0123456789 offerpusy+-*/?:{}[],', max_size=60))
def test_any_text_compiles_or_gets_a_sentence(text: str) -> None:
    try:
        answer: object = compiled(text, OF_RULES).holds(VALUES)
    except BadExpression as error:
        answer = error.message
    assert answer in (True, False) or isinstance(answer, str)


def test_the_slowest_that_compiles_takes_little_time() -> None:
    longest = " || ".join(['"x" in job.data'] * (MOST_CHARACTERS // 19))
    condition = compiled(longest, OF_RULES)
    before = time.process_time()
    assert condition.holds({"job.data": ["y" * 100] * MOST_LISTED}) is False
    pattern = compiled('job.user.matches("((x+x+)+x+)+y")', OF_RULES)
    assert pattern.holds({"job.user": "x" * MOST_TEXT}) is False
    assert time.process_time() - before < 0.5


def test_the_command_line_does_not_import_cel() -> None:
    code = "import sys, penstock.policy.rules, penstock.cli.main; sys.exit('cel_expr_python' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The report as one self-contained HTML file: printable, light or dark as the reader's system is, without scripts or
requests. Pure: numbers to text. `sections` writes the parts; here is the frame and what stands at the top.
"""

from html import escape
from importlib.resources import files

from penstock.assess.assessment import Assessment, day_of
from penstock.assess.pieces import tied
from penstock.assess.sections import ReportWords, sections
from penstock.assess.sentences import how_sure
from penstock.assess.ways import AS_IT_WAS
from penstock.core.units import HOUR
from penstock.sim.charts import comparison


def page(assessment: Assessment, made_up: bool = False) -> str:
    say = ReportWords(assessment)
    words = {
        "title": escape(title(assessment)),
        "lede": f'<span class="sure">{escape(tied(" ".join(how_sure(assessment.report))))}</span>'
        f"{escape(tied(lede(assessment)))}",
        "foot": escape(
            "Made by penstock assess, which reads and never writes. Ways are replayed by the engine that would run"
            " them live; what is not known is said, and not guessed over."
        ),
    }
    body = f'<dl class="facts">{_facts(assessment, say)}</dl>\n{"".join(sections(assessment, say))}'
    return comparison.framed(words, chip="Made up" if made_up else "Replayed", body=body, css=_look("report.css"))


def title(assessment: Assessment) -> str:
    day = day_of(assessment.report.calendar)
    return f"GPUs, {day(assessment.report.from_at)} to {day(assessment.report.to_at - 1)}: is bursting worth it?"


def lede(assessment: Assessment) -> str:
    return " ".join(assessment.decision.says)


def _facts(assessment: Assessment, say: ReportWords) -> str:
    was = assessment.ways.way(AS_IT_WAS)
    best = assessment.ways.way(assessment.decision.best)
    assert was is not None
    assert best is not None
    waits, use = assessment.report.waits.all, assessment.report.use
    owned_hours = use.owned_gpu_hours or max(1.0, assessment.owned_gpus * _length_h(assessment))
    seen = say.hours(waits.sum_ms / HOUR / max(1, waits.jobs))
    used = use.total.used_share
    facts = [
        (
            "Answer",
            "Go" if assessment.decision.answer == "go" else "No-go",
            f"best: {best.in_a_sentence}",
        ),
        (
            "Money",
            say.money(best.measured.money),
            f"{_more(best.measured.money - was.measured.money, say)}, in {say.days()}",
        ),
        (
            "Mean delay",
            say.hours(best.measured.mean_delay_h),
            f"instead of {say.hours(was.measured.mean_delay_h)}; {seen} was seen",
        ),
        (
            "Owned GPUs",
            f"{assessment.owned_gpus:,}",
            f"{say.share(use.total.allocated / owned_hours)} of their hours allocated",
        ),
        (
            "GPU time used",
            "unknown" if used is None else say.share(used),
            "nobody measured it" if used is None else f"{use.idle_gpu_hours:,.0f} GPU-h stood idle",
        ),
    ]
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(number)}</dd><dd>{escape(more)}</dd></div>"
        for name, number, more in facts
    )


def _length_h(assessment: Assessment) -> float:
    return (assessment.report.to_at - assessment.report.from_at) / HOUR


def _more(amount: float, say: ReportWords) -> str:
    if round(amount) == 0:
        return "the same as it was"
    return f"{say.money(abs(amount))} {'more' if amount > 0 else 'less'} than as it was"


def _look(name: str) -> str:
    return (files("penstock.assess") / "look" / name).read_text("utf-8").strip()

"""The report as one self-contained HTML file: printable, light or dark as the reader's system is, without scripts or
requests. Pure: numbers to text. `sections` writes the parts; here is the frame and what stands at the top.
"""

from html import escape
from importlib.resources import files

from penstock.assess.assessment import Assessment, day_of
from penstock.assess.sections import ReportWords, sections
from penstock.assess.ways import AS_IT_WAS
from penstock.core.units import HOUR
from penstock.sim.charts import comparison


def page(assessment: Assessment, made_up: bool = False) -> str:
    say = ReportWords(assessment)
    words = {
        "title": escape(title(assessment)),
        "lede": escape(lede(assessment)),
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
    used = assessment.report.use.total.used_share
    assert was is not None
    assert best is not None
    waits = assessment.report.waits.all
    seen = say.hours(waits.sum_ms / HOUR / max(1, waits.jobs))
    facts = [
        (
            "Answer",
            "Go" if assessment.decision.answer == "go" else "No-go",
            f"best: {best.label[0].lower()}{best.label[1:]}",
        ),
        (
            "Money",
            say.money(best.measured.money),
            f"instead of {say.money(was.measured.money)} in {say.days()}; rent {say.money(best.measured.rent)}",
        ),
        (
            "Mean delay",
            say.hours(best.measured.mean_delay_h),
            f"instead of {say.hours(was.measured.mean_delay_h)}; {seen} was seen",
        ),
        (
            "Owned GPUs",
            f"{assessment.owned_gpus:,}",
            f"{say.share(assessment.buy_or_rent.owned.utilisation)} of their hours wanted",
        ),
        (
            "GPU time used",
            "unknown" if used is None else say.share(used),
            "nobody measured it" if used is None else f"{assessment.report.use.idle_gpu_hours:,.0f} GPU-h stood idle",
        ),
    ]
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(number)}</dd><dd>{escape(more)}</dd></div>"
        for name, number, more in facts
    )


def _look(name: str) -> str:
    return (files("penstock.assess") / "look" / name).read_text("utf-8").strip()

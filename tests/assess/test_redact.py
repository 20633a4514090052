"""`assess --redact`: whatever names are, none is left in the report, its JSON or its page."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.assess import sentences
from penstock.assess.assessment import DecisionOptions, assess
from penstock.assess.history import Coverage, Disagreement, JobRecord, MonthHistory
from penstock.assess.page import page
from penstock.assess.redact import redact
from penstock.cli.main import main
from tests.assess.test_decision import job, month

MARK = "Ж"  #: is in each name, and in no word of ours
odd_names = st.sampled_from([f"{MARK}a + {MARK}b.csv", f"/{MARK}: {MARK}", f"{MARK} {MARK}"])
names = st.text(alphabet=f"{MARK}a1 +:-/#.\n<&'\"", max_size=12).map(lambda text: MARK + text) | odd_names
sources = st.tuples(st.sampled_from(("csv", "sacct", "journal", "Prometheus", "cluster")), names).map(" ".join)


@st.composite
def named_jobs(draw: st.DrawFn) -> JobRecord:
    k = draw(st.integers(0, 10**6))
    plain = job(k, submit=k % 40, start=k % 40 + 1, run=2, idle_gpu_ms=8 * 3_600_000)
    several = draw(st.lists(sources, min_size=1, max_size=2))
    team, name = draw(names), draw(names)
    return replace(
        plain,
        id=f"{draw(names)}/{k}",
        source=" + ".join(several),
        name=name,
        team=team,
        user=draw(names),
        key=f"{team}/{name}",
        uid=draw(names),
        volumes=draw(st.none() | st.tuples(names)),
        data=draw(st.none() | st.tuples(names)),
        priority=draw(st.none() | names),
    )


@st.composite
def named_months(draw: st.DrawFn) -> MonthHistory:
    jobs = draw(st.lists(named_jobs(), min_size=3, max_size=6, unique_by=lambda record: record.id))
    whole = month(jobs)
    name = draw(names)
    cover = Coverage(
        source=draw(sources), from_at=0, to_at=whole.to_at, jobs=len(jobs), missing=(f"pods cannot be listed: {name}.",)
    )
    differs = Disagreement("started", draw(sources), draw(sources), 1, jobs[0].id, 600_000)
    template = {"metadata": {"name": draw(names)}}
    return replace(whole, coverage=(cover,), disagreements=(differs,), manifests=((jobs[0].key, template),))


@settings(max_examples=15, deadline=None)
@given(named_months())
def test_no_name_is_left_in_the_json_the_sentences_or_the_page(history: MonthHistory) -> None:
    assessment = assess(redact(history, b"k" * 32), DecisionOptions())
    lines = [
        *sentences.not_seen(assessment.report),
        *sentences.use(assessment.report),
        *sentences.waits(assessment.report),
    ]
    whole = [json.dumps(asdict(assessment), ensure_ascii=False, default=sorted), page(assessment), *lines]
    assert [text for text in whole if MARK in text] == []


@settings(max_examples=50)
@given(named_months())
def test_equal_names_stay_equal_and_different_ones_different(history: MonthHistory) -> None:
    hidden = redact(history, b"k" * 32)
    for field in ("id", "team", "key", "user"):
        before, after = ([getattr(record, field) for record in whole.jobs] for whole in (history, hidden))
        pairs = set(zip(before, after, strict=True))
        assert len(pairs) == len(set(before)) == len(set(after))


SITES = """
currency: USD
sites:
  - name: geheimlab
    operator: Geheim AG
    offers: [{name: geheimown, term: owned, gpu: A100, gpus_per_node: 8, nodes: 10}]
  - name: geheimwolke
    operator: Geheimcloud
    cloud: aws
    region: eu-central-1
    offers:
      - {name: geheimh, gpu: A100, term: on_demand, gpus_per_node: 8, price: {list: 4.5}}
      - {name: geheims, gpu: A100, term: spot, gpus_per_node: 8, price: {list: 2.0}, lost_every: 20h}
      - {name: geheimzu, gpu: A100, term: on_demand, gpus_per_node: 8, price: {list: 4.0}, closed: true}
"""


@pytest.mark.slow
def test_no_name_of_a_sites_file_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--redact --sites` left names of sites, offers and operators in the JSON, for whoever gets the mail."""
    folder, ways = tmp_path / "geheimordner", []
    folder.mkdir()
    (folder / "geheim.yaml").write_text(SITES)
    for hide in (["--redact"], []):
        out = tmp_path / f"{len(hide)}.html"
        words = ["assess", "--demo", "--sites", str(folder / "geheim.yaml"), "--html", str(out), "--json", *hide]
        assert main(words) == 0
        said = capsys.readouterr()
        assert bool(hide) != ("geheim" in said.out.lower())
        assert not hide or "geheim" not in (said.err + out.read_text()).lower()
        ways.append([way["name"] for way in json.loads(said.out)["ways"]["ways"]])
    assert ways[0] == ways[1] != []

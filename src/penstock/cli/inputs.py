"""What commands have in common: from options to a scenario. Converts and passes on; the sense is in `sim`."""

from dataclasses import replace
from typing import Any

import click

from penstock.core.errors import BadInput
from penstock.core.model import DataRule
from penstock.core.units import Money, money
from penstock.sim.generate import generate, nodes_for
from penstock.sim.scenario import Scenario, checkpointed, prepare, yardstick
from penstock.sim.simulator import known
from penstock.sim.traces import Trace, TraceJob, read
from penstock.sim.world import Fault, Zone


def scenario_from(options: dict[str, Any]) -> Scenario:
    jobs = jobs_from(options)
    caps = budgets(options.get("budgets") or ())
    if options.get("sites"):
        return _from_sites_file(jobs, caps, options)
    scenario = yardstick(
        jobs,
        _nodes(jobs, options),
        costs=options["costs"],
        knowledge=options["knowledge"],
        seed=options["seed"],
        zones=_zones(jobs, options),
    )
    return _with_caps(scenario, caps)


def _nodes(jobs: list[TraceJob], options: dict[str, Any]) -> int:
    nodes: int | None = options.get("nodes")
    load: float | None = options.get("load")
    if nodes is not None and load is not None:
        raise BadInput("--nodes and --load both say what you own; give one of them.")
    if nodes is not None:
        return nodes
    if load is None and not options.get("generate"):
        other = "--load X (demand / owned capacity)" if "load" in options else "--sites FILE"
        raise BadInput(f"How much do you own? Say --nodes N (nodes of 8 GPUs), or {other}.")
    return nodes_for(Trace(tuple(jobs), {}), 1.0 if load is None else load)


def jobs_from(options: dict[str, Any]) -> list[TraceJob]:
    trace, made = options.get("trace") or "", options.get("generate")
    if bool(trace) == bool(made):
        raise BadInput("Name one trace of jobs, or make some up with --generate JOBS.")
    if made:
        return list(generate(made, seed=options["seed"]).jobs)
    found = read(trace, format=options.get("form"), columns=_columns(options.get("columns") or ()))
    if any(job.spec.checkpoint_every_ms for job in found.jobs):
        return list(found.jobs)
    return checkpointed(found.jobs)


def budgets(given: tuple[str, ...]) -> dict[str, Money]:
    """`vision=5000` is a cap on team vision; `org=20000` on everybody together."""
    caps = {}
    for text in given:
        name, equals, amount = text.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"--budget is TEAM=AMOUNT, like vision=5000, not '{text}'.")
        cap = money(amount)
        if cap < 0:
            raise BadInput(f"--budget {text}: a cap cannot be negative.")
        caps["org" if name == "org" else f"team:{name.strip()}"] = cap
    return caps


def _columns(given: tuple[str, ...]) -> dict[str, str] | None:
    mapping = {}
    for text in given:
        field, equals, name = text.partition("=")
        if not equals:
            raise BadInput(f"--column is FIELD=NAME, like submit=SubmitTime, not '{text}'.")
        mapping[field.strip()] = name.strip()
    return mapping or None


def _zones(jobs: list[TraceJob], options: dict[str, Any]) -> dict[str, Zone] | None:
    if not options.get("spot"):
        return None
    from penstock.sim.spot import recorded_zones

    until = 2 * (jobs[-1].submit_at + max(job.run_ms for job in jobs))
    return recorded_zones(options["spot"], "2023-02-15", 1, until)


def _with_caps(scenario: Scenario, caps: dict[str, Money]) -> Scenario:
    return replace(scenario, caps=scenario.caps + tuple((scope, cap, None) for scope, cap in caps.items()))


def _from_sites_file(jobs: list[TraceJob], caps: dict[str, Money], options: dict[str, Any]) -> Scenario:
    from penstock.config import read_sites

    if options.get("nodes") is not None:
        raise BadInput("--nodes and --sites both say what you own; give one of them.")
    file = read_sites(options["sites"])
    for note in file.notes:
        click.echo(f"Note: {note}", err=True)
    prepared = prepare(known(jobs, options["knowledge"], options["seed"]), options["costs"])
    hourly = {scope: per_hour for scope, _, per_hour in file.caps}
    monthly = {**{scope: cap for scope, cap, _ in file.caps}, **caps}
    rules: tuple[DataRule, ...] = file.data_rules
    return Scenario(
        tuple(prepared),
        file.sites,
        {},
        file.data,
        rules,
        tuple((scope, cap, hourly.get(scope)) for scope, cap in monthly.items()),
        tuple(Fault(*fault) for fault in file.faults),
        file.currency,
        options["seed"],
    )

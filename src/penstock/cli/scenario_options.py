"""Options that `simulate` and `compare` share, converted to a scenario. The logic is in `sim`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.core.errors import BadInput
from penstock.core.model.types import Policy
from penstock.core.units import Money, money
from penstock.policy.presets import BASELINES, OURS
from penstock.sim.engine.simulator import known
from penstock.sim.engine.world import Fault, Zone
from penstock.sim.scenario import Scenario, checkpointed, prepare, yardstick
from penstock.sim.suited import firm_of, suited
from penstock.sim.traces.generate import generate, nodes_for
from penstock.sim.traces.trace import Trace, TraceJob, read

if TYPE_CHECKING:
    from penstock.config import SitesFile


def scenario_from(options: dict[str, Any]) -> Scenario:
    return file_and_scenario(options)[1]


def file_and_scenario(
    options: dict[str, Any], policy: str = "", like: Sequence[str] = ()
) -> "tuple[SitesFile, Scenario]":
    """The sites with what a policy file says of them, and the jobs there. `like`: policy files that judge the sites
    later; generated jobs have the teams, classes and data of all of them.
    """
    from penstock.config import SitesFile, read_sites

    if options.get("sites") and (said := [name for name in ("nodes", "load") if options.get(name) is not None]):
        raise BadInput(f"--{said[0]} and --sites both say what you own; give one of them.")
    base = read_sites(options["sites"]) if options.get("sites") else None
    governed_by = {path: under_policy(base or SitesFile("USD", ()), path) for path in (policy, *like) if path}
    jobs = jobs_from(options, tuple(governed_by.values()))
    caps = budgets(options.get("budgets") or ())
    if base is not None:
        _say_notes(base, governed_by)
        return _at_sites_file(jobs, caps, options, governed_by.get(policy, base))
    scenario = yardstick(
        jobs,
        _nodes(jobs, options),
        costs=options["costs"],
        knowledge=options["knowledge"],
        seed=options["seed"],
        zones=_zones(jobs, options),
    )
    return _at_yardstick(scenario, caps, policy)


def is_policy_file(name: str) -> bool:
    """True for `policy.yaml`, also where the name of a built-in policy may stand."""
    return name.endswith((".yaml", ".yml"))


def policy_of_file(file: "SitesFile", path: str) -> Policy:
    """The policy that a running Penstock would have, under the file's name. The scenario has its data rules."""
    from penstock.live.config_facts import policy_of

    return replace(policy_of(file), name=Path(path).name, data_rules=())


def knob_from(policy: str, cost_of_delay: str | None, knob: str | None) -> str | None:
    """The one setting of a policy: what an hour of delay costs, or the waiting budget of a baseline."""
    if cost_of_delay is not None and knob is not None:
        raise BadInput("--cost-of-delay and --knob both set the policy; give one of them.")
    if cost_of_delay is not None and policy in BASELINES:
        raise BadInput(f"'{policy}' has no cost of delay but a waiting budget; write --knob 0.25.")
    if knob is not None and is_policy_file(policy):
        raise BadInput(f"{policy} has no waiting budget but a cost of delay; write --cost-of-delay 20.")
    if knob is not None and policy in OURS:
        click.echo(
            f"Notice: --knob of '{policy}' is called --cost-of-delay now; the old name works for a release.", err=True
        )
    return knob if cost_of_delay is None else cost_of_delay


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


def jobs_from(options: dict[str, Any], governed_by: "Sequence[SitesFile]" = ()) -> list[TraceJob]:
    trace, made = options.get("trace") or "", options.get("generate")
    if bool(trace) == bool(made):
        raise BadInput("Name one trace of jobs, or make some up with --generate JOBS.")
    if made:
        firm = firm_of(governed_by)
        return suited(generate(made, seed=options["seed"], names=firm.teams).jobs, firm, options["seed"])
    return jobs_of(read(trace, format=options.get("form"), columns=_columns(options.get("columns") or ())))


def jobs_of(trace: Trace) -> list[TraceJob]:
    """The trace's jobs; if none of them has checkpoints, all get some."""
    silent = not any(job.spec.checkpoint_every_ms for job in trace.jobs)
    return checkpointed(trace.jobs) if silent else list(trace.jobs)


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
    from penstock.sim.engine.spot import recorded_zones

    until = 2 * (jobs[-1].submit_at + max(job.run_ms for job in jobs))
    return recorded_zones(options["spot"], "2023-02-15", 1, until)


def _at_yardstick(scenario: Scenario, caps: dict[str, Money], policy: str) -> "tuple[SitesFile, Scenario]":
    """The benchmark's own sites, with its own rule for the data that it makes up."""
    from penstock.config import SitesFile

    file = under_policy(SitesFile(scenario.currency, scenario.sites), policy)
    rules = scenario.data_rules + file.data_rules
    return file, replace(scenario, caps=_all_caps(file, caps), data_rules=rules)


def _say_notes(base: "SitesFile", governed_by: "Mapping[str, SitesFile]") -> None:
    """What is odd about the sites, as the policy files make them: a rule that the policy has is not missing."""
    for path, file in (governed_by or {"": base}).items():
        of = f" ({path})" if len(governed_by) > 1 else ""
        for note in file.notes:
            click.echo(f"Note{of}: {note}", err=True)


def _at_sites_file(
    jobs: list[TraceJob], caps: dict[str, Money], options: dict[str, Any], file: "SitesFile"
) -> "tuple[SitesFile, Scenario]":
    prepared = prepare(known(jobs, options["knowledge"], options["seed"]), options["costs"])
    return file, scenario_at(file, prepared, caps, options["seed"])


def under_policy(file: "SitesFile", policy: str) -> "SitesFile":
    """With what the policy file says; without one, as it is."""
    if not policy:
        return file
    from penstock.policy.file import governed, read_policy

    return governed(file, read_policy(policy, file))


def _all_caps(file: "SitesFile", caps: Mapping[str, Money]) -> tuple[tuple[str, Money | None, Money | None], ...]:
    hourly = {scope: per_hour for scope, _, per_hour in file.caps}
    monthly = {**{scope: cap for scope, cap, _ in file.caps}, **caps}
    return tuple((scope, cap, hourly.get(scope)) for scope, cap in monthly.items())


def scenario_at(file: "SitesFile", jobs: Iterable[TraceJob], caps: Mapping[str, Money], seed: int = 0) -> Scenario:
    """These jobs at the sites of a file, with its caps and further ones."""
    return Scenario(
        jobs=tuple(jobs),
        sites=file.sites,
        zones={},
        data=file.data,
        data_rules=file.data_rules,
        caps=_all_caps(file, caps),
        faults=tuple(Fault(*fault) for fault in file.faults),
        currency=file.currency,
        seed=seed,
    )

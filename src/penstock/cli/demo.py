"""`penstock demo`: the product at work on this machine, with real processes. It checks every claim it makes; a false
one is exit code 1. `--month` shows a simulated month instead (`demo_month.py`).
"""

import contextlib
import importlib.util
import json
import platform
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.demo.console import Console
    from penstock.demo.machine import Machine
    from penstock.devcluster import ClusterGroup

JOBS = 8_000  #: of the simulated month


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep it running at the end, until ^C.")
@click.option("--out", default="penstock-demo", show_default=True, metavar="DIR", help="Output folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of the story.")
@click.option("--kube", is_flag=True, help="Use three real Kubernetes clusters; needs root and `make kube`.")
@click.option("--clouds", is_flag=True, help="Rent nodes from zero at two toy clouds; needs `make kube KARPENTER=1`.")
@click.option("--month", is_flag=True, help="Simulate a month instead, with tables and a picture.")
@click.option("--jobs", type=click.IntRange(1), default=JOBS, show_default=True, help="With --month: number of jobs.")
@click.option("--seed", type=int, default=0, show_default=True, help="With --month: random seed.")
def command(keep: bool, out: str, as_json: bool, kube: bool, clouds: bool, month: bool, jobs: int, seed: int) -> int:
    """Run the demo: ten small trainings on this machine."""
    if not kube and not clouds:
        _ask_for_numpy()
    if month:
        from penstock.cli.demo_month import show_month

        return show_month(jobs, seed, out, as_json)
    from penstock.demo.interrupts import Interrupts

    with Interrupts():
        if kube:
            return _play_on_clusters(keep, Path(out), as_json)
        return _play_on_clouds(keep, Path(out), as_json) if clouds else _play(keep, Path(out), as_json)


def _ask_for_numpy() -> None:
    """Refuse to start without numpy: the trainings and the month's lower bound need it. The pods' training does not."""
    from penstock.core.errors import BadInput
    from penstock.extras import install

    if importlib.util.find_spec("numpy") is None:
        raise BadInput(f"The demo's trainings need numpy: {install('demo')}")


def _play_on_clusters(keep: bool, out: Path, as_json: bool) -> int:
    from penstock.demo import clusters
    from penstock.demo.machine import Machine

    def machine(group: "ClusterGroup", home: Path) -> Machine:
        hosts = [cluster.network.host for cluster in group.clusters()]
        return Machine(home, clusters.sites_file(group, home), hosts, clusters.POLICY)

    look = "kubectl --kubeconfig {kubeconfig} --context lab get jobs -n research"
    return _play_in_group(clusters, machine, keep, out, as_json, look)


def _play_on_clouds(keep: bool, out: Path, as_json: bool) -> int:
    from penstock.demo import clouds
    from penstock.demo.machine import Machine

    def machine(group: "ClusterGroup", home: Path) -> Machine:
        return Machine(home, clouds.sites_file(group, home), policy=clouds.POLICY, checkpoints=False)

    look = "kubectl --kubeconfig {kubeconfig} --context east get nodeclaims"
    return _play_in_group(clouds, machine, keep, out, as_json, look)


def _play_in_group(
    tale: Any,
    make_machine: "Callable[[ClusterGroup, Path], Machine]",
    keep: bool,
    out: Path,
    as_json: bool,
    look: str,
) -> int:
    """`tale`: the module of a demo in clusters of its own."""
    from penstock.cli.compare import folder_for
    from penstock.core.errors import BadInput
    from penstock.demo.console import Console
    from penstock.demo.script import keep_journal
    from penstock.devcluster import ClusterGroup

    tale.ask_for_programs()
    voice, folder = Console(quiet=as_json), folder_for(out)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as home:
        voice.say(tale.BEGINS)
        with ClusterGroup(Path(home) / "bed", tale.PLANS) as group:
            machine = make_machine(group, Path(home) / "plane")
            with machine:
                try:
                    figures, seen = tale.play(machine, group, voice)
                except BadInput as error:
                    raise BadInput(f"{error}{machine.last_words()}") from None
                if keep:
                    voice.say(f"\nTry: {look.format(kubeconfig=group.kubeconfig)}")
                    _look_at_it(voice, machine, next(iter(seen.jobs)), figures)
            keep_journal(machine, folder)
    if not keep:
        click.echo(json.dumps(figures))
    for claim in tale.untrue(figures):
        click.echo(f"Not true: {claim} is {figures[claim]}.", err=True)
    return 1 if tale.untrue(figures) else 0


def _play(keep: bool, out: Path, as_json: bool) -> int:
    from penstock.cli.compare import folder_for
    from penstock.cli.terminal import program
    from penstock.core.errors import BadInput
    from penstock.demo.console import Console
    from penstock.demo.machine import Machine
    from penstock.demo.script import keep_journal, play, untrue

    if platform.system() != "Linux":
        raise BadInput("The demo's sites are local, and those need Linux. Try `penstock demo --month`.")
    voice, folder = Console(quiet=as_json), folder_for(out)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as home:
        machine = Machine(Path(home))
        with machine:
            try:
                figures, seen = play(machine, voice)
            except BadInput as error:
                raise BadInput(f"{error}{machine.last_words()}") from None
            job = next((attempt.promise.job for attempt in seen.lost()), "j1")
            if keep:
                _look_at_it(voice, machine, job, figures)
        journal = keep_journal(machine, folder)
    if not keep:
        own = program()
        voice.say(
            f"\nThe page was at {machine.address}/ and `make demo KEEP=1` leaves it there to look at. Try next:\n"
            f"  {own} why {job} --journal {journal}\n  {own} redecide {journal}\n  {own} assess --demo\n  {own} up"
        )
        click.echo(json.dumps(figures))
    for claim in untrue(figures):
        click.echo(f"Not true: {claim} is {figures[claim]}.", err=True)
    return 1 if untrue(figures) else 0


def _look_at_it(voice: "Console", machine: "Machine", job: str, figures: dict[str, Any]) -> None:
    """Keep everything running until ^C."""
    from penstock.cli.terminal import program

    at = f"PENSTOCK_HOME={machine.home} {program()}"
    voice.say(f"\nThe page: {machine.address}/  Try next:\n  {at} why {job}\n  {at} costs\n  {at} run --gpus 1 -- date")
    click.echo(json.dumps(figures))
    voice.say("It goes on until ^C.")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            signal.pause()

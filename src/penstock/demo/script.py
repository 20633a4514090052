"""The demo's script, and the figures it ends with. `penstock demo` calls `play`, and so do its tests.

Each part waits for the effect of the part before, as the journal shows it; nothing waits for time alone. All claims at
the end are counted from the journal and the jobs' own logs.
"""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from penstock.core.errors import BadInput
from penstock.core.model import reasons as r
from penstock.demo import resimulate
from penstock.demo.console import CURRENCY, Console
from penstock.demo.interrupts import again_if_lost
from penstock.demo.jobs import FIRST, SECOND, THIRD, Training, job_file
from penstock.demo.machine import Machine, still_running
from penstock.demo.observer import LIMIT_S, LOOK_S, AttemptTrail, Observer, Printed, doubled, missing, price_of, printed
from penstock.formatting import money

Figures: TypeAlias = dict[str, Any]
Logs: TypeAlias = dict[str, Printed]  #: by attempt

NEAR: Final = 0.02  #: so near the simulated rent should be to the real one
#: What must be true at the end.
CLAIMS: Final[dict[str, Callable[[Any], bool]]] = {
    "bursts": lambda n: n >= 2,
    "spot_losses": lambda n: n >= 1,
    "resumed_from_step": lambda n: n > 0,
    "came_home": lambda n: n >= 1,
    "refused_by_cap": lambda n: n >= 1,
    "control_plane_kills": lambda n: n >= 1,
    "doubled": lambda n: n == 0,
    "lost": lambda n: n == 0,
    "redecide": lambda verdict: verdict == "equal",
}


def play(machine: Machine, voice: Console) -> tuple[Figures, Observer]:
    """Runs the whole demo and returns its figures; the control plane still runs."""
    machine.start()
    way = "an S3 server" if machine.bucket else "folders that are copied"
    voice.say(
        f"Penstock is up at {machine.address}/ with two GPUs that are owned, one to rent on spot, and more on demand."
    )
    voice.say(f"GPUs are slots on this machine; checkpoints pass between sites through {way}.\n")
    seen = Observer(machine.journal, voice.tell)
    with voice.watching():
        fill(machine, seen)
        lose_spot(seen)
        kill(machine, seen, voice)
        come_home(seen)
        seen.until(seen.over, "all jobs done and paid for")
    voice.live = None
    logs = {attempt.id: printed(machine.log(attempt.promise.job, attempt.id)) for attempt in seen.tries.values()}
    figures = count(machine, seen, logs)
    sum_up(voice, seen, logs, figures)
    for trail in [seen.jobs[lost.promise.job] for lost in seen.lost()][:1]:
        voice.say(f"\n$ penstock why {trail.id}\n{machine.ask('why', trail.id).rstrip()}")
    return figures, seen


def untrue(figures: Figures) -> list[str]:
    return [name for name, true in CLAIMS.items() if not true(figures[name])]


# --- the course ------------------------------------------------------------------------------------------------------


def fill(machine: Machine, seen: Observer) -> None:
    """More jobs than owned GPUs: one goes to spot when its waiting is no longer worth it, then others on demand."""
    submit(machine, FIRST)
    seen.until(lambda: bool(seen.bursts()), "the first burst")
    submit(machine, SECOND)
    seen.until(lambda: len(seen.bursts()) >= 2, "a second burst")
    seen.until(lambda: bool(seen.refused()), "a cap that binds")


def lose_spot(seen: Observer) -> None:
    """The site takes its spot node away by itself; the job goes on from its checkpoint."""
    seen.until(lambda: bool(seen.lost()), "the spot node's loss")
    seen.until(lambda: bool(seen.resumed()), "the lost job's next attempt")


def kill(machine: Machine, seen: Observer, voice: Console) -> None:
    """SIGKILL while jobs run: they go on, and the next control plane finds them."""
    submit(machine, THIRD)
    seen.until(lambda: _runs_away(seen) and not seen.starting(), "the longest job to run on rented GPUs")
    before, killed = len(seen.running()), time.monotonic()
    machine.kill()
    voice.now(f"The control plane was killed (SIGKILL) with {before} jobs running.")
    _until_steps_grow(machine, voice)
    machine.start()
    voice.now(f"It is back after {time.monotonic() - killed:.1f} s, and has read its journal and looked at its sites.")


def come_home(seen: Observer) -> None:
    """Owned GPUs are free and the queue is empty: a rented job with much left to do moves back."""
    seen.until(lambda: bool(seen.came_home()), "a job to come home")


def submit(machine: Machine, trainings: tuple[Training, ...]) -> None:
    for training in trainings:
        machine.submit(job_file(training))


def _runs_away(seen: Observer) -> bool:
    trail = seen.named(THIRD[-1].name)
    return trail is not None and any(attempt.rented and attempt.started_at for attempt in trail.tries)


def _until_steps_grow(machine: Machine, voice: Console) -> None:
    """Without a control plane, waits until each job's own log has grown or the job has ended."""
    sites = machine.home / "sites"
    before = {folder: _size(folder) for folder in still_running(sites)}
    waiting, end = list(before), time.monotonic() + LIMIT_S
    while waiting:
        if time.monotonic() > end:
            raise BadInput(f"{len(waiting)} jobs stand still without a control plane.")
        time.sleep(LOOK_S)
        again_if_lost()
        running = list(still_running(sites))
        waiting = [folder for folder in waiting if folder in running and _size(folder) == before[folder]]
    voice.now(f"Nobody is in charge, and all {len(before)} go on: each has printed further steps.")


def _size(attempt: Path) -> int:
    log = attempt / "log"
    return log.stat().st_size if log.exists() else 0


# --- the figures -----------------------------------------------------------------------------------------------------


def count(machine: Machine, seen: Observer, logs: Logs) -> Figures:
    verdict = json.loads(machine.ask("redecide", str(machine.journal), "--json", codes=(0, 1)))
    accounts = {trail.id: [logs[attempt.id] for attempt in trail.tries] for trail in seen.jobs.values()}
    asked = {training.name: training.steps for training in (*FIRST, *SECOND, *THIRD)}
    unfinished = len(asked) - sum(trail.done for trail in seen.jobs.values())
    gaps = sum(missing(accounts[trail.id], asked[trail.spec.name]) for trail in seen.jobs.values())
    twice = len(seen.jobs) - len({trail.spec.name for trail in seen.jobs.values()})
    return {
        "bursts": len(seen.bursts()),
        "spot_losses": len(seen.lost()),
        "resumed_from_step": min((logs[resumed.id].began_with for resumed in seen.resumed()), default=0),
        "came_home": len(seen.came_home()),
        "refused_by_cap": len(seen.refused()),
        "control_plane_kills": machine.kills,
        "doubled": twice + sum(doubled(tries) for tries in accounts.values()),
        "lost": unfinished + gaps,
        "redecide": "equal" if not verdict["different"] else f"{verdict['different']} steps differ",
    }


def sum_up(voice: Console, seen: Observer, logs: Logs, figures: Figures) -> None:
    _tell_jobs(voice, seen, logs)
    _tell_loss(voice, seen, logs)
    _tell_cap(voice, seen)
    doubled = f"Steps that two copies of a job did at the same time: {figures['doubled']}."
    voice.say(f"The journal, decided again: {figures['redecide']}. {doubled}")
    _tell_days(voice, seen)


def _tell_jobs(voice: Console, seen: Observer, logs: Logs) -> None:
    voice.say(f"\n{'job':22}{'went':52}{'loss':>16}{'charged':>9}")
    for trail in seen.jobs.values():
        steps = [step for attempt in trail.tries for step in logs[attempt.id].steps]
        went = " > ".join(attempt.promise.offer for attempt in trail.tries)
        curve = f"{steps[0][1]:.3f} > {steps[-1][1]:.3f}" if steps else ""
        voice.say(f"{trail.name:22}{went:52}{curve:>16}{money(trail.charged, CURRENCY):>9}")
    voice.say()


def _tell_loss(voice: Console, seen: Observer, logs: Logs) -> None:
    for before, after in seen.pairs():
        if before.how == "lost":
            kept, of = (
                logs[after.id].began_with,
                len({s for attempt in seen.of(before) for s, _, _ in logs[attempt.id].steps}),
            )
            lost_ms = _redone_ms(before, after)
            cost = money(price_of(before, lost_ms), CURRENCY)
            name = seen.jobs[before.promise.job].name
            voice.say(
                f"{name} lost its spot GPU: step {kept} of {of} kept, {lost_ms / 1000:.1f} s of work lost, {cost}."
            )


def _redone_ms(before: AttemptTrail, after: AttemptTrail) -> int:
    because = after.promise.because
    if isinstance(because, r.LostNode):
        return because.redone_ms
    ran = (before.ended_at or 0) - (before.started_at or 0)
    return max(0, before.promise.resume_ms + ran - before.kept_ms)


def _tell_cap(voice: Console, seen: Observer) -> None:
    for trail in seen.refused():
        assert trail.denied is not None
        cap, needed = money(trail.denied.cap, CURRENCY), money(trail.denied.needed, CURRENCY)
        voice.say(f"{trail.name} did not burst: {trail.denied.scope} may spend {cap} and {needed} had to be held.")


def _tell_days(voice: Console, seen: Observer) -> None:
    real, simulated = resimulate.day_of("what really happened", seen), resimulate.days(seen)
    voice.say(f"\nThe same day under three policies, simulated\n{'':24}{'rent':>8}{'mean wait':>12}{'all done in':>14}")
    for day in (*simulated, real):
        rent, wait, last = money(day.rent, CURRENCY), f"{day.mean_wait_ms / 1000:.1f} s", f"{day.last_ms / 1000:.0f} s"
        voice.say(f"{day.name:24}{rent:>8}{wait:>12}{last:>14}")
    _tell_difference(voice, seen, simulated[-1], real)


def _tell_difference(
    voice: Console, seen: Observer, ours: resimulate.SimulatedDay, real: resimulate.SimulatedDay
) -> None:
    """What the simulator says of the day that was, and if it is far from it, why."""
    off = (ours.rent - real.rent) / max(1, real.rent)
    others = [seen.jobs[job].name for job, way in ours.ways.items() if way != real.ways[job]]
    voice.say(f"Ours: ${ours.rent / 1e6:.3f} simulated, ${real.rent / 1e6:.3f} really charged ({off:+.1%}).")
    if abs(off) > NEAR:
        went = f" {', '.join(others)} went another way there." if others else ""
        voice.say(
            "There giving a node back takes no time, the control plane is never gone, and the machine is never busy."
            f"{went}"
        )


# --- afterwards ------------------------------------------------------------------------------------------------------


def keep_journal(machine: Machine, folder: Path) -> Path:
    """Copies the journal once nobody writes to it any more."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "demo.journal"
    for end in ("", "-wal", "-shm"):
        kept.with_name(kept.name + end).unlink(missing_ok=True)
    shutil.copyfile(machine.journal, kept)
    return kept

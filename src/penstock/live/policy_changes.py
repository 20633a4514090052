"""Applies a policy file to a running plane: all of it or nothing. `penstock policy apply`, SIGHUP and the file's watch
call it.

    changes = PolicyChanges(plane, sites, "policy.yaml")
    done = await changes.apply(raw, "policy.yaml", by=token)      # BadFile: the policy in force stays

The file's text is kept as a blob beside `PolicySet`, by the digest that the event names, so that any revision can be
shown and applied again. A cap that the file raises waits for a person, as at every start (`config_facts`).
"""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.core.decide.rules import Candidate, Rules
from penstock.core.errors import BadInput
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.model.types import Policy, Site
from penstock.core.values import value
from penstock.live import config_facts
from penstock.live.mount_calls import FollowedFile
from penstock.live.plane import NotReady, Plane

if TYPE_CHECKING:
    from penstock.config import SitesFile
    from penstock.policy.file import PolicyFile

LOOK_SECONDS: Final = 2.0  #: how often the file is looked at
MOST_BYTES: Final = 1 << 20  #: of a policy file


@value
class Stranded:
    """A running job that a new policy or sites file would not allow where it is. It is not stopped."""

    job: str
    team: str
    offer: str
    rule: str
    where: str


@value
class PolicyOutcome:
    revision: int  # in force now
    changed: bool  # False: nothing was recorded
    stranded: tuple[Stranded, ...]
    raised: tuple[str, ...]  # sentences: caps that wait for approval
    says: str


@value
class Reloaded:
    """What came of a file that was found, and not given by a person."""

    ok: bool
    says: str
    again: bool = False  # nothing could be recorded now


class PolicyChanges:
    def __init__(self, plane: Plane, sites: "SitesFile", path: str = "", text: bytes = b"") -> None:
        """`sites`: without any policy file. `path`: the file that `up --policy` names, or the ConfigMap; empty: none.
        `text`: its content, as the start read it.
        """
        self.plane, self.sites, self.path = plane, sites, path
        self.file = FollowedFile(path, MOST_BYTES)
        self.doing = asyncio.Lock()  #: a policy file or a sites file is being applied
        #: The policy file in force, and its name; None: there is none.
        self.text: tuple[bytes, str] | None = (text, path) if text else None
        self.seen = hashlib.sha256(text).hexdigest() if text else ""  #: digest of the file as it was last looked at

    async def apply(
        self,
        raw: bytes,
        name: str,
        *,
        file: "PolicyFile | None" = None,
        by: str = "",
        reason: str = "",
        details: str = "",
        blobs: Mapping[str, bytes] | None = None,
        strand: bool = True,
    ) -> PolicyOutcome:
        """Raises `BadInput` for a file that cannot be used, and `NotReady`. Unless `strand`, nothing is done if a
        running job would be stranded. `file`: what it says, if somebody has parsed it for these sites already.
        """
        async with self.doing:
            sites = await asyncio.to_thread(self.read, raw, name, file)
            configured = config_facts.written_by(config_facts.configured(sites), by, self.plane.setup.opening)
            news, stranded = await self.plane.consider(lambda state, rules: _considered(state, rules, configured))
            revision = self.plane.view.revision
            if stranded and not strand:
                return PolicyOutcome(revision, False, stranded, (), asks(stranded))
            facts = [_by(fact, by, reason, details) for fact in news]
            if facts:
                texts = {hashlib.sha256(raw).hexdigest(): raw, **(blobs or {})}
                await self.plane.tell(*facts, blobs=texts)
            self.text = raw, name
            await self.plane.configure(configured, sites.teams)
            raised, revision = await self.plane.consider(lambda state, _: raised_by(state, configured))
            return PolicyOutcome(revision, bool(facts), stranded, raised, _says(revision, bool(facts)))

    def read(self, raw: bytes, name: str, file: "PolicyFile | None" = None) -> "SitesFile":
        """The sites file as this policy file makes it. Its conditions are compiled then, so that no decision waits for
        that.
        """
        from penstock.policy.file import governed, parse_policy
        from penstock.policy.rules import compile_all

        if len(raw) > MOST_BYTES:
            raise BadInput(f"{name} has {len(raw):,} bytes, and a policy file has at most {MOST_BYTES:,}.")
        policy = file or parse_policy(raw, name, self.sites)
        compile_all(policy.governance)
        return governed(self.sites, policy)

    def govern(self, sites: "SitesFile") -> "SitesFile":
        """Another sites file as the policy file in force makes it. Raises `BadInput` if they do not fit."""
        from penstock.policy.file import governed, parse_policy

        return sites if self.text is None else governed(sites, parse_policy(*self.text, sites))

    # --- the file itself -----------------------------------------------------------------------------------------

    async def reload(self) -> str:
        """Apply the file as it is now; what came of it, in a sentence."""
        try:
            raw = await self.file.read()
        except BadInput as error:
            return self.reject(str(error)).says
        return (await self.take(raw, "the file changed")).says

    async def take(self, raw: bytes, reason: str) -> Reloaded:
        """Apply what the file or ConfigMap says now. What cannot be used raises an alarm, and the policy in force
        stays.
        """
        self.seen = hashlib.sha256(raw).hexdigest()
        try:
            done = await self.apply(raw, self.path, reason=reason)
        except (BadInput, NotReady) as error:
            return self.reject(str(error), again=isinstance(error, NotReady))
        self.accept(raw)
        return Reloaded(True, " ".join((done.says, *done.raised)))

    def reject(self, why: str, again: bool = False) -> Reloaded:
        says = f"{self.path} is not in force: {why} The policy before it stays."
        self.plane.alarms.set("policy", "policy file", says)
        return Reloaded(False, says, again)

    def accept(self, raw: bytes) -> None:
        """The file or ConfigMap says what is in force."""
        self.seen = hashlib.sha256(raw).hexdigest()
        self.plane.alarms.set("policy", "policy file", "")

    def is_in_force(self, raw: bytes) -> bool:
        return self.plane.view.policy.governance.digest == hashlib.sha256(raw).hexdigest()

    async def watch(self) -> None:
        """Reload the file whenever its content changes. What is in force and not in the file is named as drift."""
        while True:
            raw = await self.file.look()
            self.plane.alarms.set("policy", "policy file unread", unread(self.file.trouble))
            if raw is not None and hashlib.sha256(raw).hexdigest() != self.seen:
                await self.take(raw, "the file changed")
            self.note_drift()
            await asyncio.sleep(LOOK_SECONDS)

    def note_drift(self) -> None:
        self.plane.alarms.set("drift", "policy drift", self.drift())

    def drift(self) -> str:
        """A sentence if another policy is in force than the file says; empty if not, or if there is no file."""
        in_force = self.plane.view.policy.governance.digest
        if not self.path or not self.seen or in_force == self.seen:
            return ""
        return (
            f"Another policy is in force than {self.path} says: revision {self.plane.view.revision}. A restart follows "
            "the file. Correct the file; what is in force: penstock policy show"
        )


def _considered(
    state: State, rules: Rules, configured: tuple[e.Fact, ...]
) -> tuple[list[e.CapSet | e.PolicySet], tuple[Stranded, ...]]:
    """What is new, without what only a start tells; and whom it would strand."""
    news = [
        fact for fact in config_facts.news(state, configured, state.sites) if isinstance(fact, (e.CapSet, e.PolicySet))
    ]
    policy = next((fact.policy for fact in news if isinstance(fact, e.PolicySet)), None)
    return news, () if policy is None else stranded_by(state, rules, policy)


def stranded_by(
    state: State, rules: Rules, policy: Policy, sites: Mapping[str, Site] | None = None
) -> tuple[Stranded, ...]:
    """Running jobs that may be where they are now, and might not be under this policy, and with `sites` as they will
    be.
    """
    later = sites or {}
    offers = {offer.id: offer for site in later.values() for offer in site.offers}
    stranded = []
    for attempt in state.attempts.values():
        spec, offer = attempt.job.spec, state.offers.get(attempt.offer.id)
        if offer is None:
            continue
        data = tuple(state.data[name] for name in spec.data if name in state.data)
        now = Candidate(spec, state.sites[offer.site], offer, data, state.policy)
        then = Candidate(spec, later.get(offer.site, now.site), offers.get(offer.id, offer), data, policy)
        verdict = rules.verdict(then)
        if not verdict.allowed and rules.verdict(now).allowed:
            stranded.append(Stranded(attempt.job.id, spec.team, offer.id, verdict.rule, verdict.where))
    return tuple(stranded)


def _by(fact: e.CapSet | e.PolicySet, by: str, reason: str, details: str) -> e.CapSet | e.PolicySet:
    """A lowered cap is the person's, too."""
    if isinstance(fact, e.PolicySet):
        return replace(fact, by=by, reason=reason, details=details)
    return replace(fact, by=by, details=details)


def raised_by(state: State, configured: tuple[e.Fact, ...]) -> tuple[tuple[str, ...], int]:
    """Caps that wait for a person, a sentence each, and the revision in force."""
    return tuple(cap.says for cap in config_facts.raised_caps(state, configured).values()), state.revision


def unread(trouble: str) -> str:
    """What to say of a file that is followed and cannot be read; empty if it can."""
    return f"{trouble} What it said before stays in force, and a restart needs the file." if trouble else ""


def asks(stranded: tuple[Stranded, ...]) -> str:
    if len(stranded) == 1:
        return "1 running job would not be allowed where it is; it would not be stopped."
    return f"{len(stranded)} running jobs would not be allowed where they are; they would not be stopped."


def _says(revision: int, changed: bool) -> str:
    return f"Revision {revision} is in force." if changed else f"Nothing changes: revision {revision} says the same."

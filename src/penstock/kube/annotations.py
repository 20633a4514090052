"""Our words on Kubernetes objects: labels, annotations, finalizers, and the names of what we make.

Whatever begins with `penstock.dev/` is ours and is never copied from one object to another.
"""

import re
from hashlib import sha256
from typing import Final

DOMAIN: Final = "penstock.dev/"
MANAGER: Final = "penstock.dev/dispatcher"  #: `managedBy` of a home Job: the cluster's own controller leaves it alone

# --- labels: what we ask for by --------------------------------------------------------------------------------------

QUEUE: Final = "penstock.dev/queue"  #: on home Jobs: the team. Nothing without it is ever touched
INSTALLATION: Final = "penstock.dev/installation"  #: whose execution this is
EXECUTION: Final = "penstock.dev/execution"  #: on an execution Job and its pods: the Job's name

# --- annotations of an execution Job ---------------------------------------------------------------------------------

ATTEMPT: Final = "penstock.dev/attempt"  #: the id as the journal has it; a label cannot hold every one
JOB: Final = "penstock.dev/job"
ORIGIN: Final = "penstock.dev/origin"  #: the home Job's uid, or the job's id where there is no home Job
OFFER: Final = "penstock.dev/offer"
RESUME: Final = "penstock.dev/resume-ms"  #: work that it began with
SPEED: Final = "penstock.dev/speed-permille"
EXECUTION_DEADLINE: Final = "penstock.dev/execution-deadline"  #: it ends then: an instant of the control plane's clock
#: The same on Jobs that an older version made, some of which run for weeks. People's own word for home Jobs today.
OLD_EXECUTION_DEADLINE: Final = "penstock.dev/deadline"
ENDING: Final = "penstock.dev/ending"  #: why we end it: stopped, lost, refused or failed
WORDS: Final = "penstock.dev/words"  #: why, for people
FORGOTTEN: Final = "penstock.dev/forgotten"  #: its end is on record; kept so that it never starts again

# --- annotations of a home Job ---------------------------------------------------------------------------------------

BINDING: Final = "penstock.dev/binding"
USER: Final = "penstock.dev/user"  #: who created it, as the cluster's admission recorded; no one else may write it
FAILED_BEFORE: Final = (
    "penstock.dev/failed-before"  #: failures of earlier attempts, against the user's own backoffLimit
)

# --- what people write on a home Job: annotations, all of which may be left out
# ------------------------------------------------------------------------------------------------

DEADLINE: Final = "penstock.dev/deadline"  #: when it should be done: `2026-11-20T18:00:00Z`, or `8h` from its creation
RUN_TIME: Final = "penstock.dev/run-time"
CHECKPOINT_EVERY: Final = "penstock.dev/checkpoint-every"
DATA: Final = "penstock.dev/data"  #: names of data sets, with commas
DATA_CLASS: Final = "penstock.dev/data-class"
CLASS: Final = "penstock.dev/class"
PRIORITY: Final = "penstock.dev/priority"
PROJECT: Final = "penstock.dev/project"
GPU: Final = "penstock.dev/gpu"  #: GPU models it can use, with commas
CAP: Final = "penstock.dev/cap"  #: the most that renting for it may cost
INTERRUPTIBLE: Final = "penstock.dev/interruptible"
LEASE_MAX: Final = "penstock.dev/lease-max"  #: the longest that money is held ahead for it

# --- on what travels --------------------------------------------------------------------------------------------------

HOME: Final = "penstock.dev/home"  #: the site that a Job comes from
COPY: Final = "penstock.dev/copy"  #: label of whatever we copied, so that it is found when we leave
COPY_OF: Final = "penstock.dev/copy-of"  #: its namespace and name at home

# --- finalizers ------------------------------------------------------------------------------------------------------

RESULT: Final = "penstock.dev/result"  #: on execution Jobs: until the result is in the journal
CANCEL: Final = "penstock.dev/cancel"  #: on home Jobs: until what runs elsewhere is cancelled

LEASE: Final = "penstock-installation"  #: says whose cluster this is

MOST_LETTERS: Final = 40  #: a Job's pods add their index to its name and 63 are all there are


def execution_name(installation: str, attempt: str) -> str:
    """The name of an attempt's Job: the same whoever makes it and however often, and never two attempts' own."""
    digest = sha256(f"{installation}\0{attempt}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"ps-{slug(attempt, MOST_LETTERS - 16)}-{digest}"


def slug(text: str, most: int) -> str:
    """As much of it as a name may have: small letters, digits and dashes."""
    return re.sub("[^a-z0-9]+", "-", text.lower())[:most].strip("-") or "x"


def label_value(text: str) -> str:
    """The text itself if it can be a label, otherwise a digest of it."""
    good = re.fullmatch("[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", text)
    return text if good else sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def without_ours(words: dict[str, str] | None) -> dict[str, str]:
    """Labels or annotations of somebody's object, fit to be copied."""
    return {key: text for key, text in (words or {}).items() if not key.startswith(DOMAIN)}

"""Labels, annotations, finalizers and object names that Penstock writes. Drivers and the front door use them.

Every key that begins with `penstock.dev/` is ours and is never copied from one object to another.
"""

import re
from hashlib import sha256
from typing import Final

LONGEST_MS: Final = 30 * 24 * 3_600_000  #: a rented object always has an end, whatever it was asked for
DOMAIN: Final = "penstock.dev/"
MANAGER: Final = "penstock.dev/dispatcher"  #: `managedBy` of a home Job: the cluster's own controller leaves it alone

# --- labels: what we ask for by --------------------------------------------------------------------------------------

QUEUE: Final = "penstock.dev/queue"  #: on home Jobs: the team. We never touch a Job without it
INSTALLATION: Final = "penstock.dev/installation"  #: which installation made this object
EXECUTION: Final = "penstock.dev/execution"  #: on an execution Job and its pods: the Job's name

# --- annotations of an execution Job ---------------------------------------------------------------------------------

ATTEMPT: Final = "penstock.dev/attempt"  #: the attempt's id in the journal; some ids are no valid label value
JOB: Final = "penstock.dev/job"
ORIGIN: Final = "penstock.dev/origin"  #: the home Job's uid, or the job's id where there is no home Job
OFFER: Final = "penstock.dev/offer"
RESUME: Final = "penstock.dev/resume-ms"  #: work that the attempt resumed with
SPEED: Final = "penstock.dev/speed-permille"
EXECUTION_DEADLINE: Final = (
    "penstock.dev/execution-deadline"  #: when the attempt must end, by the control plane's clock
)
#: Seconds that were left of the user's own `activeDeadlineSeconds` when the attempt was created; it ends the job.
OWN_DEADLINE: Final = "penstock.dev/own-deadline-seconds"
#: `EXECUTION_DEADLINE` of an older version, some of whose Jobs run for weeks. On home Jobs it is the user's deadline.
OLD_EXECUTION_DEADLINE: Final = "penstock.dev/deadline"
#: The cluster replaces a lost pod: a batch of pods that do not know each other, and no gang.
REPLACES_PODS: Final = "penstock.dev/replaces-pods"
COMPLETED: Final = "penstock.dev/completed-indexes"  #: by earlier attempts, until they are in the Job's status
FAILED: Final = "penstock.dev/failed-indexes"  #: the same for those that failed for good
ENDING: Final = "penstock.dev/ending"  #: why we end it: stopped, lost, refused or failed
WORDS: Final = "penstock.dev/words"  #: the reason as a sentence
STARTED: Final = "penstock.dev/started"  #: on a Workload of Kueue: the attempt that began
#: `JOB.SERVICE`: its pods are called JOB-0.SERVICE and so on, by a headless Service and an EndpointSlice of ours.
HOST_NAMES: Final = "penstock.dev/host-names"
TRIED: Final = "penstock.dev/tried-nodes"  #: those with free GPUs that could not take this attempt
PLACES: Final = "penstock.dev/places"  #: where its GPUs were promised: NODE=GPUS, separated by commas
OBSTACLE: Final = "penstock.dev/obstacle"  #: what kept this attempt, and not others, from starting here
SHORTAGE: Final = "penstock.dev/shortage"  #: why no node came for it: stock_out, quota or settings
PROVISIONING: Final = "penstock.dev/provisioning-class"  #: its nodes are asked for by a ProvisioningRequest
AWAITS_NODES: Final = "penstock.dev/awaits-nodes"  #: until they are there; the Job is suspended so long
FORGOTTEN: Final = (
    "penstock.dev/forgotten"  #: a tombstone: its end is in the journal; kept so that a late start cannot run
)

# --- on a rented node and on the object that it is rented by ----------------------------------------------------------

NODE: Final = "penstock.dev/node"  #: label: the name of that object, which Jobs ask for
NODE_ID: Final = "penstock.dev/node-id"  #: the node's id in the journal; some ids are no valid label value
#: When that object was asked for, by the control plane's clock: it tells it, its Machine and its Node from those of an
#: earlier object of the same name.
ASKED_AT: Final = "penstock.dev/asked-at"
NODE_DEADLINE: Final = "penstock.dev/node-deadline"  #: when it ends by itself, by the control plane's clock
ENDS_AT: Final = "penstock.dev/ends-at"  #: the same as RFC 3339, by the cluster's clock: the watchman goes by it
CLUSTER_SITE: Final = "penstock.dev/site"  #: label of a transient cluster's object: whose cluster it is
RENTED: Final = "penstock.dev/rented"  #: taint: nobody but its installation's Jobs may use it

# --- annotations of a home Job ---------------------------------------------------------------------------------------

BINDING: Final = "penstock.dev/binding"
#: The attempt for which Penstock unsuspended it. From then on a `suspend: true` is its user's; before, the queue's.
UNSUSPENDED: Final = "penstock.dev/unsuspended"
LOGS: Final = "penstock.dev/logs"  #: the command that shows its log, wherever it runs
USER: Final = "penstock.dev/user"  #: who created it, as admission recorded it; nobody else may write it
#: On the manifest that a driver gets: what earlier attempts did, as `drivers.earlier` writes it.
EARLIER: Final = "penstock.dev/earlier-attempts"

# --- what people write on a home Job: annotations, all of which may be left out
# ------------------------------------------------------------------------------------------------

DEADLINE: Final = "penstock.dev/deadline"  #: when it should be done: `2026-11-20T18:00:00Z`, or `8h` from its creation
RUN_TIME: Final = "penstock.dev/run-time"
CHECKPOINT_EVERY: Final = "penstock.dev/checkpoint-every"
DATA: Final = "penstock.dev/data"  #: names of data sets, separated by commas
DATA_CLASS: Final = "penstock.dev/data-class"
CLASS: Final = "penstock.dev/class"
PRIORITY: Final = "penstock.dev/priority"
PROJECT: Final = "penstock.dev/project"
GPU: Final = "penstock.dev/gpu"  #: GPU models it can use, separated by commas
CAP: Final = "penstock.dev/cap"  #: the most that rented capacity for it may cost
INTERRUPTIBLE: Final = "penstock.dev/interruptible"
#: "true": its user has suspended it, where Kueue keeps `spec.suspend` true whatever anybody wants.
SUSPEND: Final = "penstock.dev/suspend"
#: "true": Jobs beside it run in its own cluster only, so it does, too; written on the templates of a JobSet.
BESIDE: Final = "penstock.dev/beside-others"
LEASE_MAX: Final = "penstock.dev/lease-max"  #: the longest lease: how far ahead money is held

# --- on what travels --------------------------------------------------------------------------------------------------

HOME: Final = "penstock.dev/home"  #: the home Job's site
COPY: Final = "penstock.dev/copy"  #: label of our copies, so that `penstock leave` finds them
COPY_OF: Final = "penstock.dev/copy-of"  #: namespace and name of the original

# --- finalizers ------------------------------------------------------------------------------------------------------

RESULT: Final = "penstock.dev/result"  #: finalizer of execution Jobs, until the result is in the journal
CANCEL: Final = "penstock.dev/cancel"  #: finalizer of home Jobs, until the job is cancelled

WATCHMAN: Final = "penstock-watchman"  #: the Lease that proves that a watchman lives, and its account and Deployment
WATCHES: Final = "penstock.dev/watches"  #: on that Lease: resources that it may list and delete
STUCK: Final = "penstock.dev/stuck"  #: on that Lease: what was deleted long ago and is still there

LEASE: Final = "penstock-installation"  #: the Lease that says which installation owns this cluster
CLAIM: Final = "penstock.dev/claim"  #: on that Lease: which control plane of the installation
FRONT_DOOR: Final = "penstock-front-door"  #: the Lease that says which installation accepts a namespace's home Jobs
HOLDER: Final = "penstock.dev/holder"  #: on that Lease: machine and home folder, for people

EXECUTIONS: Final = "ps-"  #: how the names of execution Jobs begin, and so those of their pods
MOST_LETTERS: Final = 40  #: a pod's name adds its index to the Job's, and a name has 63 characters


def execution_name(installation: str, attempt: str) -> str:
    """The name of an attempt's execution Job: deterministic, and unique for the attempt."""
    digest = sha256(f"{installation}\0{attempt}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{EXECUTIONS}{slug(attempt, MOST_LETTERS - 16)}-{digest}"


def node_name(name: str) -> str:
    """The name of the object that a node is rented by, of what `capacity.contract.object_name` says."""
    return f"penstock-{name}"


def rented_taint(installation: str) -> dict[str, str]:
    return {"key": RENTED, "value": label_value(installation), "effect": "NoSchedule"}


def slug(text: str, most: int) -> str:
    """The text as part of an object's name: small letters, digits and dashes, at most `most`."""
    return re.sub("[^a-z0-9]+", "-", text.lower())[:most].strip("-") or "x"


def label_value(text: str) -> str:
    """The text if it is a valid label value, otherwise a digest of it."""
    good = re.fullmatch("[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", text)
    return text if good else sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def without_ours(words: dict[str, str] | None) -> dict[str, str]:
    """Labels or annotations without ours, fit to copy to another object."""
    return {key: text for key, text in (words or {}).items() if not key.startswith(DOMAIN)}

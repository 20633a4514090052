"""What people write on a home Job, and the marks of what travels. `names` has the words that we write ourselves.

A home Job is ours by its label `penstock.dev/queue` alone. Everything else here is an annotation and may be left out.
"""

from typing import Final

# --- what people write ------------------------------------------------------------------------------------------------

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

"""Which jobs every rule and offer treats alike: those with equal keys have one `Shape`."""

from typing import TypeAlias

from penstock.core.model.governance import ShapedBy
from penstock.core.model.types import JobSpec

ShapeKey: TypeAlias = tuple[object, ...]


def shape_key(spec: JobSpec, shaped_by: tuple[ShapedBy, ...] = ()) -> ShapeKey:
    """Everything a rule, an offer or a quote may look at; not run times. Deadlines, caps and who exactly asked count
    only while a rule of the policy reads them.
    """
    key = (
        spec.gpus, spec.team, spec.project, spec.job_class, spec.priority, spec.gpu_models, spec.models_ordered,
        spec.mig_profile, spec.scaling, spec.interruptible, spec.data, spec.data_class, spec.checkpoint_every_ms,
        spec.restart_ms, spec.output_bytes, spec.grace_ms, spec.lease_max_ms, spec.home, spec.needs,
    )  # fmt: skip
    return (*key, tuple([_read_of(spec, name) for name in shaped_by])) if shaped_by else key


def _read_of(spec: JobSpec, name: ShapedBy) -> object:
    match name:
        case "cap":
            return spec.cap
        case "deadline":
            return spec.deadline_at is not None
        case "user":
            return spec.user

"""How an offer is spelt in a cluster. The sites file says it, the driver writes it on pods and reads nodes by it."""

from penstock.core.values import value
from penstock.kube.access import Access


@value
class Toleration:
    key: str = ""  # empty: any
    operator: str = "Exists"
    text: str = ""
    effect: str = ""

    def as_dict(self) -> dict[str, str]:
        said = {"key": self.key, "operator": self.operator, "value": self.text, "effect": self.effect}
        return {key: text for key, text in said.items() if text}


@value
class NodeSelection:
    """Which nodes it means, and what a pod says to get there."""

    resource: str = "nvidia.com/gpu"
    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    queue: str = ""  # a LocalQueue, where Kueue keeps quota
    headroom: tuple[int, ...] = ()  # GPUs kept free for others: one number, or one for each hour of the day


@value
class ClusterSite:
    """A site that is a cluster: how it is reached and where in it we work."""

    access: Access = Access()
    namespace: str = "penstock"
    namespaces: tuple[str, ...] = ()  # further ones: home Jobs come from there, or are mapped to there
    shared: bool = False  # other installations work in this cluster too, in namespaces of their own
    secret: str = ""  # a Secret there whose keys become variables of every job
    grace_ms: int = 30_000
    room_ms: int = 60_000
    scale_ms: int = 900_000
    places: tuple[tuple[str, NodeSelection], ...] = ()  # by the offer's id

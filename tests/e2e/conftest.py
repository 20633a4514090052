from tests.clusters import real_bed

__all__ = ["real_bed"]

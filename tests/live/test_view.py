"""The published view: what it says of money that is held."""

from penstock.core.units import money
from penstock.live.view import picture
from tests.stories.kit import Penstock, cancelled, given, nothing, ready, started, stopped, submitted
from tests.stories.test_transient import asked, burst
from tests.stories.test_warm import opened, pool


def exposed(penstock: Penstock) -> dict[tuple[str, str], int]:
    view = picture(penstock.engine.state, ())
    rows = {(row.team, row.offer): row.most for row in view.exposed}
    assert sum(rows.values()) == view.exposure
    assert max((row.until_at for row in view.exposed), default=0) == view.exposure_until_at
    return rows


def test_exposure_counts_nodes_that_are_on_their_way_back() -> None:
    """A team's exposure was summed over its placed attempts: a node whose job was cancelled is paid for until the
    provider says that it is gone, and so its team saw less than could still be spent.
    """
    penstock = given(pool(price="1"))
    penstock.hears(submitted("a", team="red"), at="09:00")
    penstock.hears(ready("a.1/n0"), at="09:05")
    penstock.hears(started("a.1"), at="09:05")
    held = exposed(penstock)
    penstock.hears(cancelled("a"), at="09:10")
    penstock.hears(stopped("a.1"), at="09:10")
    assert penstock.phase("a") == "ended"
    assert exposed(penstock) == held == {("red", "cloud"): penstock.held()}


def test_exposure_counts_warm_pools_and_clusters_for_the_teams_that_pay() -> None:
    """Both were in the total, and in nobody's row."""
    penstock = given(pool(), opened(), burst(guarantee="none"))
    penstock.hears(nothing, at="08:00")
    penstock.hears(ready("cloud/w1"), asked("20:00"), at="08:05")
    rows = exposed(penstock)
    assert list(rows) == [("platform", "burst/cluster"), ("platform", "cloud")]
    assert rows["platform", "cloud"] == money("8") + 1
    view = picture(penstock.engine.state, ())
    assert [row.soft for row in view.exposed] == [True, False]

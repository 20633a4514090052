"""What a re-apply changes, and what of that people read."""

from typing import Any

from penstock.front.three_way import LAST, difference, last_applied, merge_patch, noted

Json = dict[str, Any]


def test_what_others_wrote_stays_and_what_the_author_took_out_goes() -> None:
    last = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"ttl": 5, "parallelism": 1}}
    new = {"metadata": {"labels": {"a": "1", "c": "3"}}, "spec": {"parallelism": 2, "nothing": None}}
    live = {
        "metadata": {"labels": {"a": "1", "b": "2", "ours": "x"}},
        "spec": {"ttl": 5, "parallelism": 1, "suspend": False},
    }
    assert merge_patch(last, new, live) == {
        "metadata": {"labels": {"b": None, "c": "3"}},
        "spec": {"ttl": None, "parallelism": 2},
    }
    assert merge_patch(new, new, {**live, "spec": {"parallelism": 2}, "metadata": new["metadata"]}) == {}


def test_a_list_is_sent_if_its_author_changed_it_and_not_because_the_server_filled_it_in() -> None:
    last = {"containers": [{"name": "a"}]}
    live = {"containers": [{"name": "a", "imagePullPolicy": "Always"}]}
    assert merge_patch(last, last, live) == {}
    assert merge_patch(last, {"containers": [{"name": "b"}]}, live) == {"containers": [{"name": "b"}]}
    assert merge_patch({}, last, live) == last  # nobody knows what was applied: the server compares


def test_the_manifest_is_kept_as_it_was_written() -> None:
    written = {"metadata": {"name": "a"}, "spec": {"x": 1}}
    kept = noted({**written, "spec": {"x": 1, "suspend": True}}, written)
    assert last_applied(kept) == written
    assert last_applied(noted(kept, kept)) == {**kept, "metadata": {"name": "a", "annotations": {}}}
    assert last_applied({"metadata": {"annotations": {LAST: "["}}}) == {}


def test_the_difference_has_nothing_that_only_the_server_writes() -> None:
    live = {"kind": "X", "metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"n": 1}, "status": {"a": 1}}
    assert difference(live, {**live, "metadata": {"name": "a", "resourceVersion": "2"}, "status": {}}, "x/a") == ""
    assert difference(live, {**live, "spec": {"n": 2}}, "x/a").splitlines() == [
        "--- live/x/a",
        "+++ applied/x/a",
        "@@ -2,4 +2,4 @@",
        " metadata:",
        "   name: a",
        " spec:",
        "-  n: 1",
        "+  n: 2",
    ]


def test_the_values_of_secrets_are_not_shown() -> None:
    secret = {"kind": "Secret", "metadata": {}, "data": {"same": "c2FtZQ==", "token": "b2xk"}}
    shown = difference(secret, {**secret, "data": {"same": "c2FtZQ==", "token": "bmV3"}}, "secret/s")
    assert "-  token: '*** (before)'" in shown
    assert "+  token: '*** (after)'" in shown
    assert not any(word in shown for word in ("c2FtZQ==", "b2xk", "bmV3"))

"""What a person has paused, and for whom that still holds."""

from __future__ import annotations

from consumer_sdk.records import Partition
from consumer_sdk.runtime.partitions.partition_state import Pauses

ONE, OTHER = Partition("s", "1"), Partition("s", "2")


def reasons(pauses: Pauses) -> tuple[str | None, str | None]:
    """Of the one and of the other."""
    return pauses.reason(ONE), pauses.reason(OTHER)


def test_one_is_paused_and_resumed() -> None:
    """The other does not notice; a resume of what runs changes nothing."""
    pauses = Pauses()
    assert reasons(pauses) == (None, None)
    pauses.resume(ONE)
    pauses.pause(ONE, "why")
    assert reasons(pauses) == ("why", None)
    pauses.resume(OTHER)
    assert reasons(pauses) == ("why", None)
    pauses.resume(ONE)
    assert reasons(pauses) == (None, None)


def test_all_but_one_are_paused() -> None:
    """Who is resumed while all are paused is spared, until all are paused again."""
    pauses = Pauses()
    pauses.pause(None, "all")
    pauses.resume(ONE)
    assert reasons(pauses) == (None, "all")
    pauses.pause(None, "again")
    assert reasons(pauses) == ("again", "again")


def test_spared_one_is_paused_by_itself() -> None:
    """Its own reason comes first; without it, that of all holds again."""
    pauses = Pauses()
    pauses.pause(None, "all")
    pauses.resume(ONE)
    pauses.pause(ONE, "own")
    assert reasons(pauses) == ("own", "all")
    pauses.pause(OTHER, "its own")
    assert reasons(pauses) == ("own", "its own")


def test_resume_of_all_forgets_everything() -> None:
    """Single pauses, the pause of all, and who was spared."""
    pauses = Pauses()
    pauses.pause(None, "all")
    pauses.resume(ONE)
    pauses.pause(OTHER, "own")
    pauses.resume(None)
    assert reasons(pauses) == (None, None)
    pauses.pause(None, "later")
    assert reasons(pauses) == ("later", "later")


def test_one_that_was_resumed_before_is_paused_with_all() -> None:
    """Only a resume while all are paused spares."""
    pauses = Pauses()
    pauses.resume(ONE)
    pauses.pause(None, "all")
    assert reasons(pauses) == ("all", "all")


def test_own_pause_ends_the_sparing() -> None:
    """Paused by itself, then all resumed and paused: nothing is left of it."""
    pauses = Pauses()
    pauses.pause(None, "all")
    pauses.resume(ONE)
    pauses.pause(ONE, "own")
    pauses.resume(ONE)
    assert reasons(pauses) == (None, "all")


def test_own_reason_is_not_that_of_all() -> None:
    """It is kept below a pause of all."""
    pauses = Pauses()
    pauses.pause(ONE, "own")
    pauses.pause(None, "all")
    assert (pauses.own_reason(ONE), pauses.own_reason(OTHER)) == ("own", None)
    pauses.resume(None)
    assert pauses.own_reason(ONE) is None

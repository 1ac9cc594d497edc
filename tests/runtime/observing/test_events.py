"""The ring of events: what joins what, what is kept, what is counted."""

from __future__ import annotations

from consumer_sdk.records import Partition
from consumer_sdk.runtime.observing.events import Event, Events

PARTITIONS = [Partition("s", str(n)) for n in range(25)]


class Clock:
    """A wall clock that stands still."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_event_names_its_partitions_and_counts_them() -> None:
    """Ten are named, all are counted; one without any counts once; a count that is given wins."""
    events = Events(Clock())
    events.add("assigned", "a", PARTITIONS)
    events.add("reset", "r")
    events.add("dead-lettered", "d", PARTITIONS[:1], 7)
    assert events.all() == (
        Event(1, 100.0, "assigned", tuple(PARTITIONS[:10]), 25, "a"),
        Event(2, 100.0, "reset", (), 1, "r"),
        Event(3, 100.0, "dead-lettered", tuple(PARTITIONS[:1]), 7, "d"),
    )
    assert events.counts == {"assigned": 25, "reset": 1, "dead-lettered": 7}


def test_events_of_one_kind_within_a_second_are_one() -> None:
    """The last one's time and text, all partitions once, ten at most; others in between stay."""
    clock = Clock()
    events = Events(clock)
    events.add("lost", "first", PARTITIONS[:2])
    events.add("revoked", "between")
    clock.now = 100.9
    events.add("lost", "second", PARTITIONS[1:12])
    assert events.all() == (
        Event(1, 100.9, "lost", tuple(PARTITIONS[:10]), 13, "second"),
        Event(2, 100.0, "revoked", (), 1, "between"),
    )
    clock.now = 101.0
    events.add("lost", "third", PARTITIONS[20:])
    assert events.all()[0] == Event(1, 101.0, "lost", tuple(PARTITIONS[:10]), 18, "third")
    assert events.counts == {"lost": 18, "revoked": 1}


def test_event_a_second_later_is_another() -> None:
    """From a second on they are apart."""
    clock = Clock()
    events = Events(clock)
    events.add("lost", "first")
    clock.now = 101.0
    events.add("lost", "second")
    assert [(event.number, event.text) for event in events.all()] == [(1, "first"), (2, "second")]


def test_ring_keeps_the_last_two_hundred() -> None:
    """One that has left the ring is not joined; one at its very start is."""
    clock = Clock()
    events = Events(clock)
    events.add("lost", "gone")
    events.add("fenced", "oldest")
    for _ in range(199):
        events.add("paused", "p")
        clock.now += 1
    assert [event.number for event in events.all()] == list(range(2, 202))
    clock.now = 100.5
    events.add("fenced", "joined")
    assert (events.all()[0].text, events.all()[0].number) == ("joined", 2)
    events.add("lost", "new")
    assert (events.all()[-1].text, events.all()[-1].number, len(events.all())) == ("new", 202, 200)

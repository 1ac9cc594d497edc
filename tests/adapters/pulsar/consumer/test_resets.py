"""A cursor that was set back, and what only looks like one: with a clock of the tests' own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.consumer.resets import CursorResets

PERSIST = 80.0
STEP = 10.0
LOOK = 1.0


def place(entry: int, index: int = 0) -> Place:
    """In the one ledger that there is."""
    return 1, entry, index


class Life:
    """A consumer that is watched: what comes is settled at once, unless it is told otherwise."""

    def __init__(self, settled: Place | None = None, written: Place | None = None) -> None:
        self.now = 0.0
        self.resets = CursorResets(PERSIST, settled=settled, written=written)
        self.passes(2 * LOOK)

    def passes(self, seconds: float, *, is_connected: bool = True, is_hungry: bool = False) -> None:
        """Time, with looks in it."""
        for _ in range(round(seconds / LOOK)):
            self.now += LOOK
            self.resets.look(self.now, is_connected=is_connected, is_hungry=is_hungry)

    def comes(
        self, first: int, last: int | None = None, *, is_acked: bool = True, is_taken: bool = True
    ) -> bool:
        """Records of these entries; whether that shows a reset."""
        last = first if last is None else last
        is_reset = self.resets.arrived(place(first), place(last))
        if is_taken and not is_reset:
            self.resets.taken(place(last))
        if is_taken and is_acked and not is_reset:
            self.resets.acked(place(last))
        return is_reset

    def awaits(self) -> bool:
        """Acks wait."""
        return self.resets.is_awaited

    def is_behind(self) -> bool:
        """What comes is settled."""
        return self.resets.is_behind

    def reconnects(self, seconds: float = 5.0) -> None:
        """The connection is away for a while."""
        self.passes(seconds, is_connected=False)
        self.passes(2 * LOOK)


def aged(entries: int = 100) -> Life:
    """So many were settled, one each second, and one more after all of them are old."""
    life = Life()
    life.passes(2)
    for entry in range(entries):
        assert not life.comes(entry)
        life.passes(1)
    life.passes(PERSIST + STEP)
    assert not life.comes(entries)
    return life


def test_what_was_settled_long_ago_comes_again_after_a_reset_alone() -> None:
    """It was written down, and a crash does not undo that."""
    life = aged()
    life.reconnects()
    assert life.comes(50)


def test_reset_shows_also_where_no_lost_connection_was_seen() -> None:
    """Two looks are as far apart as a reconnect takes."""
    assert aged().comes(98)


def test_what_was_settled_just_before_a_crash_is_none() -> None:
    """Its acks were in the broker's memory alone."""
    life = aged()
    for entry in range(101, 120):
        life.comes(entry)
        life.passes(1)
    life.reconnects()
    assert not life.comes(101)


def test_what_comes_again_is_as_old_as_its_second_ack() -> None:
    """The broker dies twice, each time with what was acked lately."""
    life = aged()
    for entry in range(101, 120):
        life.comes(entry)
        life.passes(1)
    life.passes(PERSIST - STEP)
    life.reconnects()
    assert not life.comes(101, 119)
    life.comes(120)
    life.passes(2 * STEP)
    life.reconnects()
    assert not life.comes(101, 120)
    life.reconnects()
    assert life.comes(50)


def test_broker_that_is_away_for_long_makes_nothing_old() -> None:
    """It could write nothing down meanwhile."""
    life = Life()
    life.passes(2)
    life.comes(0, 9)
    life.passes(5)
    life.reconnects(10 * PERSIST)
    assert not life.comes(3)


def test_process_that_is_frozen_makes_nothing_old() -> None:
    """Nobody knows when the broker died."""
    life = Life()
    life.passes(2)
    life.comes(0, 9)
    life.passes(5)
    life.now += 10 * PERSIST
    life.passes(10 * PERSIST)  # nothing is taken
    assert not life.comes(3)


def test_redelivery_that_waits_behind_slow_handlers_does_not_become_a_reset() -> None:
    """(1) The broker dies with the last acks; (2) it sends them again; (3) they wait in the client."""
    life = Life()
    life.passes(2)
    life.comes(0, 9)
    life.passes(5)
    life.reconnects()
    life.passes(10 * PERSIST)  # nothing is taken
    assert not life.comes(3, 4)
    life.passes(10 * PERSIST)  # again, and the rest of it is still to come
    assert not life.comes(5, 9)
    life.comes(10)
    life.passes(PERSIST + STEP)
    assert life.comes(8)


def test_redelivery_that_comes_slowly_does_not_become_a_reset() -> None:
    """Each of its records is taken at once; the broker is slow."""
    life = Life()
    life.passes(2)
    life.comes(0, 999)
    life.passes(5)
    life.reconnects()
    for entry in range(200, 800):
        assert not life.comes(entry)
        life.passes(1, is_hungry=True)
    life.reconnects()
    assert not life.comes(300)


def test_records_that_the_client_still_had_do_not_end_the_wait_for_what_comes_again() -> None:
    """They are newer than all before, and of before the crash."""
    life = Life()
    life.passes(2)
    life.comes(0, 9)
    life.passes(5, is_connected=False)
    life.comes(10, is_acked=False)
    life.passes(LOOK)
    life.comes(11, is_acked=False)
    life.passes(10 * PERSIST)
    assert not life.comes(3)


def test_quiet_topic_after_a_reconnect_is_watched_again() -> None:
    """Nothing comes although all would be taken: so nothing is on its way."""
    life = Life()
    life.passes(2)
    life.comes(0, 9)
    life.reconnects()
    life.passes(PERSIST + 2 * STEP, is_hungry=True)
    assert life.comes(3)


def test_entry_that_is_settled_in_part_comes_again_without_a_reset() -> None:
    """The broker forgets which of its records were."""
    life = Life()
    life.passes(2)
    life.comes(7, is_acked=False)
    life.resets.acked(place(7, 3))
    life.passes(10 * PERSIST, is_hungry=True)
    life.reconnects()
    assert not life.comes(7)
    assert not life.is_behind()
    assert life.comes(6)


def test_hole_holds_back_what_is_settled_above_it() -> None:
    """The broker keeps so many ranges, and forgets the others with its life."""
    life = Life()
    life.passes(2)
    life.comes(0, 999, is_acked=False)
    life.resets.acked(place(9))
    life.passes(10 * PERSIST, is_hungry=True)
    life.reconnects()
    assert not life.comes(10)
    assert not life.comes(500)


def test_checkpoint_that_a_store_had_counts_once_nothing_of_it_comes_again() -> None:
    """What a process before this one settled; this one was handed nothing yet."""
    life = Life(settled=place(100))
    life.passes(5)
    assert not life.comes(90, 99)  # those acks were lost together with that process
    life.passes(10 * PERSIST)
    assert not life.comes(95)
    assert not life.comes(101)
    life.passes(PERSIST + 2 * STEP, is_hungry=True)
    assert life.comes(90)


def test_checkpoint_ages_not_while_its_records_may_still_come_again() -> None:
    """A broker may take minutes before it sends the first one."""
    life = Life(settled=place(100))
    life.passes(2 * PERSIST, is_hungry=True)
    assert not life.comes(90, 100)


def test_redelivery_that_waits_for_the_consumer_does_not_become_a_reset() -> None:
    """(1) What was settled comes again, and newer records; (2) all wait; (3) it comes once more."""
    life = aged()
    life.comes(101, 120)
    life.comes(121, 200, is_acked=False)
    life.reconnects()
    assert not life.comes(101, 200, is_taken=False)
    assert not life.comes(201, 210, is_taken=False)
    life.resets.acked(place(120))  # of a flush that knows no better
    life.passes(2 * PERSIST)
    life.reconnects()
    assert not life.comes(101, 210)
    assert life.comes(50)


def test_redelivery_that_stalls_in_the_middle_does_not_become_a_reset() -> None:
    """The rest of it is still to come, although everything would be taken."""
    life = aged()
    life.comes(101, 120)
    life.reconnects()
    assert not life.comes(101, 110)
    life.passes(2 * PERSIST, is_hungry=True)
    assert not life.comes(111, 120)


def test_what_came_again_ages_once_a_newer_one_was_taken_and_acks_were_confirmed() -> None:
    """Neither alone will do."""
    life = aged()
    life.comes(101, 120)
    life.reconnects()
    assert not life.comes(101, 120)
    assert not life.comes(121, is_acked=False)
    life.passes(2 * PERSIST)
    life.reconnects()
    assert not life.comes(110, 121)
    assert not life.comes(122)
    life.passes(PERSIST + 2 * STEP)
    life.comes(123)
    life.reconnects()
    assert life.comes(110)


def test_place_of_a_reset_is_written_down() -> None:
    """An operator who goes farther back a moment later is followed at once."""
    life = Life(written=place(50))
    assert not life.comes(50, 60)
    life.passes(5)
    assert not life.comes(50)
    assert life.comes(49)


def test_place_of_a_reset_stays_written_down_while_nothing_is_settled() -> None:
    """However long that takes."""
    life = Life(written=place(50))
    life.passes(10 * PERSIST, is_hungry=True)
    assert life.comes(49)


def test_watermark_never_goes_back() -> None:
    """A flush may have none, or an older one."""
    life = aged()
    life.resets.acked(None)
    life.resets.acked(place(3))
    life.passes(2 * PERSIST)
    assert life.comes(60)


def test_settled_records_that_come_again_are_told_from_open_ones() -> None:
    """An operator may wonder why a reset is not followed."""
    life = aged()
    life.comes(101, 110)
    life.comes(111, 120, is_acked=False)
    life.reconnects()
    assert not life.comes(111, 115, is_acked=False)
    assert not life.is_behind()
    life.reconnects()
    assert not life.comes(105, 109)
    assert life.is_behind()
    life.comes(111, 120, is_acked=False)
    assert life.is_behind()
    life.comes(121)
    assert not life.is_behind()
    life.reconnects()
    life.comes(105, 122)
    assert life.is_behind()


def test_acks_wait_for_the_first_record_after_a_reconnect() -> None:
    """It may show that the cursor was set back, and what is acked then does not come again."""
    life = Life()
    for _ in range(3):
        assert not life.awaits()
        life.passes(1)
    for entry in (100, 101):
        life = aged()
        assert not life.awaits()
        life.passes(1, is_connected=False)
        assert life.awaits()
        life.passes(2 * LOOK)
        assert life.awaits()
        life.comes(entry)
        assert not life.awaits()


def test_acks_wait_on_after_a_new_record_that_the_client_may_have_had() -> None:
    """For a second after a reconnect it hands out what it got before: that says nothing of the broker's cursor."""
    life = aged()
    life.passes(1, is_connected=False)
    life.passes(LOOK)
    life.comes(101)
    assert life.awaits()
    life.passes(LOOK)
    life.comes(102)
    assert not life.awaits()


def test_acks_do_not_wait_for_ever() -> None:
    """Nothing has to come again."""
    life = aged()
    life.reconnects()
    assert life.awaits()
    life.passes(1)
    assert not life.awaits()


def test_acks_wait_on_where_nobody_looked_for_a_while_after_a_reconnect() -> None:
    """The process was frozen: what comes again, if anything, has not begun to."""
    life = aged()
    life.passes(1, is_connected=False)
    life.now += 10
    life.passes(1)
    assert life.awaits()


def test_first_look_may_find_a_consumer_that_would_take_all() -> None:
    """Before anything has come."""
    resets = CursorResets(PERSIST)
    resets.look(0.0, is_connected=True, is_hungry=True)
    assert (resets.written, resets.is_awaited, resets.is_behind) == (None, False, False)


def test_last_record_that_comes_again_is_one_that_comes_again() -> None:
    """Alone, too: those before it may follow after the next crash."""
    life = Life()
    life.passes(2)
    life.comes(0, 9)
    life.passes(5)
    life.reconnects()
    assert not life.comes(9)
    life.passes(2 * PERSIST, is_hungry=True)
    life.reconnects()
    assert not life.comes(3)


def test_checkpoint_does_not_age_by_acks_of_what_was_not_taken() -> None:
    """A flush of before may end late."""
    life = Life(settled=place(100))
    life.resets.acked(place(100))
    life.passes(2 * PERSIST, is_hungry=True)
    assert life.resets.written is None


def test_record_that_comes_again_before_the_connection_was_seen_ends_the_wait() -> None:
    """One that is new may be of before."""
    life = aged()
    life.passes(1, is_connected=False)
    life.comes(101)
    assert life.awaits()
    life.comes(100)
    assert not life.awaits()


def test_record_that_was_never_handed_out_is_late_and_no_other() -> None:
    """Between those that were; of the lowest gap nobody knows where it begins."""
    resets = Life().resets
    assert not resets.is_late(place(5))
    unseen = [(None, place(2)), (place(3), place(6)), (place(8), place(10))]
    resets.acked(place(20), unseen)
    assert [at for at in range(12) if resets.is_late(place(at))] == [4, 5, 9]
    resets.acked(place(20))
    assert not resets.is_late(place(5))


@pytest.mark.parametrize("apart, is_watched", [(3.0, True), (3.5, False)])
def test_time_between_looks_counts_unless_a_reconnect_fits_in_between(
    apart: float,
    is_watched: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """It would not have been seen."""
    life = Life()
    life.comes(0, 9)
    for _ in range(round(2 * PERSIST / apart)):
        life.now += apart
        life.resets.look(life.now, is_connected=True, is_hungry=True)
    assert (life.resets.written is not None) is is_watched


def test_records_age_no_earlier_than_the_broker_has_written_them() -> None:
    """And one step later at most."""
    life = Life()
    life.comes(0, 9)
    life.passes(PERSIST - LOOK, is_hungry=True)
    assert life.resets.written is None
    life.passes(2 * STEP, is_hungry=True)
    assert life.resets.written == place(9)


class Broker:
    """Writes acks down as late as it may; what it has not written is lost with its life."""

    def __init__(self) -> None:
        self.written = self.acked = self.end = 0
        self.unwritten: list[tuple[float, int]] = []

    def ack(self, now: float, upto: int) -> None:
        """All below."""
        self.acked = max(self.acked, upto)
        self.unwritten.append((now, upto))

    def live(self, now: float) -> None:
        """Up to now."""
        due = [upto for at, upto in self.unwritten if now - at >= PERSIST * 0.9]
        self.written = max([self.written, *due])
        self.unwritten = [(at, upto) for at, upto in self.unwritten if upto > self.written]

    def die(self) -> None:
        """And lives again."""
        self.acked, self.unwritten = self.written, []


STORY = st.lists(
    st.tuples(st.sampled_from(["work", "slow", "quiet", "blip", "crash"]), st.integers(1, 60)),
    max_size=25,
)


@given(STORY, st.integers(0, 30))
def test_no_crash_is_taken_for_a_reset_and_each_old_reset_is_one(
    story: list[tuple[str, int]], back: int
) -> None:
    """Whatever a broker does that writes acks down in time."""
    life, broker = Life(), Broker()
    sent = 0  # how far the broker has sent, in this connection

    def take(upto: int) -> bool:
        nonlocal sent
        first, sent = sent, upto
        is_reset = first < upto and life.comes(first, upto - 1)
        broker.ack(life.now, upto)
        return is_reset

    for kind, seconds in story:
        if kind in {"blip", "crash"}:
            life.passes(seconds, is_connected=False)
            if kind == "crash":
                broker.die()
            sent = broker.acked
            life.passes(2 * LOOK)
            continue
        for _ in range(seconds):
            if kind == "work":
                broker.end += 1
                assert not take(broker.end)
            elif kind == "quiet":
                assert not take(broker.end)
            life.passes(1, is_hungry=kind == "quiet")
            broker.live(life.now)
    written = life.resets.written
    assert written is None or written[1] <= broker.written
    sent = min(back, broker.acked)
    assert take(broker.end) == (written is not None and back < written[1])

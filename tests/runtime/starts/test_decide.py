"""The table that decides where an assignment starts, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk import (
    AtPosition,
    AtTime,
    ConfigurationError,
    Consumer,
    PositionOutOfRangeError,
)
from consumer_sdk.records import Assignment, Checkpoint, Committed, Partition, Start, StartPoint
from consumer_sdk.runtime.options import OutOfRange
from consumer_sdk.runtime.starts.decide import decide
from consumer_sdk.runtime.starts.inputs import Decision, StartInputs
from consumer_sdk.stores import MemoryStore
from consumer_sdk.testing.memory import MemoryAdapter, MemoryBroker
from tests.runtime.consumer_options import options_of

HELD = Assignment(Partition("s", "0"), 1)
NEW = Assignment(Partition("s", "0"), 1, discovered=True)
LATEST = StartPoint.LATEST
WHOLE = Checkpoint(29, 31, ((33, 35),), {31: (1, 5.0)}, identity="i", application="a")
OURS = Committed(Checkpoint(resume=50))
THEIRS = Committed(Checkpoint(resume=50), is_foreign=True)
A: dict[str, Any] = {"application_id": "a", "restart": "from_start"}
B: dict[str, Any] = {"application_id": "b", "restart": "from_start"}


def given(assignment: Assignment = HELD, **inputs: Any) -> StartInputs:
    """The log holds 10 to 99."""
    log: dict[str, Any] = {"earliest": 10, "latest": 100}
    return StartInputs(assignment=assignment, **(log | inputs))


def start_of(inputs: StartInputs, **options: Any) -> tuple[Start, bool]:
    """Where it starts, and whether that is a pin; nothing is lost and nothing is said."""
    decision = decide(inputs, options_of(**options))
    assert (decision.lost, decision.reasons) == (0, ())
    return decision.start, decision.is_pin


# -- 1: another program -----------------------------------------------------------------------


def test_foreign_position_elsewhere_replaces_the_stored_checkpoint_aloud() -> None:
    """From nothing: what was settled above the old place has no meaning at the new one."""
    decision = decide(given(stored=WHOLE, committed=THEIRS), options_of())

    assert (decision.start, decision.is_pin, decision.is_reset) == (AtPosition(50), True, True)
    assert decision.checkpoint == Checkpoint(resume=50, application="a")
    (reason,) = decision.reasons
    assert "s/0: another program has set the group's position to 50" in reason
    assert "(31, with 1 settled ranges above it)" in reason


def test_foreign_position_where_the_store_is_keeps_the_stored_checkpoint() -> None:
    """It was honoured just before a crash."""
    there = Committed(Checkpoint(watermark=30, resume=31), is_foreign=True)
    stored = Checkpoint(resume=31, identity="i", application="a")
    decision = decide(given(stored=stored, committed=there), options_of())

    assert decision == Decision(AtPosition(31), stored)


def test_foreign_position_at_the_stored_hole_reads_what_was_settled_above_it_again() -> None:
    """Whoever sets a position wants all from there on."""
    there = Committed(Checkpoint(resume=31), is_foreign=True)
    decision = decide(given(stored=WHOLE, committed=there), options_of())

    assert (decision.is_reset, decision.checkpoint.ranges) == (True, ())


def test_foreign_position_below_the_stored_watermark_reads_what_is_settled_there_again() -> None:
    """A consumer reads on from below its watermark where all above was settled out of order."""
    there = Committed(Checkpoint(resume=31), is_foreign=True)
    stored = Checkpoint(watermark=35, resume=31)
    decision = decide(given(stored=stored, committed=there), options_of())

    assert (decision.is_reset, decision.checkpoint.watermark) == (True, None)


@pytest.mark.parametrize("at", [11, 50, None], ids=["behind", "ahead", "expired"])
def test_own_position_of_the_broker_never_beats_the_store(at: int | None) -> None:
    """A crash between save and commit leaves it behind; only the store is fenced."""
    committed = None if at is None else Committed(Checkpoint(resume=at))

    assert start_of(given(stored=WHOLE, committed=committed)) == (AtPosition(31), False)


def test_commit_of_a_consumer_without_the_store_replaces_the_stored_checkpoint_aloud() -> None:
    """With the ranges that it carries: both are of this SDK, and it was the last to settle."""
    committed = Committed(Checkpoint(49, 50, ((60, 61),)), is_copy=False)
    decision = decide(given(stored=WHOLE, committed=committed), options_of())

    assert (decision.start, decision.is_pin, decision.is_reset) == (AtPosition(50), True, True)
    assert decision.checkpoint == Checkpoint(49, 50, ((60, 61),), application="a")
    assert "s/0: a consumer without this store has set" in decision.reasons[0]


def test_broker_that_redelivers_is_never_held_against_the_store() -> None:
    """Its cursor and the store's checkpoint are flushed one after the other."""
    committed = Committed(Checkpoint(resume=50), is_copy=False)
    inputs = given(stored=WHOLE, committed=committed, redelivers=True)

    assert start_of(inputs) == (AtPosition(31), False)


def test_cursor_that_another_program_has_set_comes_before_the_store() -> None:
    """Where the adapter can tell that from a cursor which is behind."""
    decision = decide(given(stored=WHOLE, committed=THEIRS, redelivers=True), options_of())

    assert (decision.start, decision.is_pin, decision.is_reset) == (AtPosition(50), True, True)


def test_foreign_position_without_a_store_is_where_it_starts() -> None:
    """Nothing is dropped, so nothing is said; so for a group that moves here with a store."""
    assert start_of(given(committed=THEIRS)) == (AtPosition(50), False)


def test_foreign_position_comes_before_from_start() -> None:
    """Where it has erased the record, a reset would otherwise be ignored for ever."""
    assert start_of(given(committed=THEIRS), **B) == (AtPosition(50), False)
    decision = decide(given(stored=WHOLE, committed=THEIRS), options_of(**B))
    assert (decision.start, decision.checkpoint.application) == (AtPosition(50), "b")


def test_foreign_position_that_ended_a_checkpoint_reads_again() -> None:
    """Whoever sets a position wants it read."""
    ended = Checkpoint(99, 100, ended=True)

    assert decide(given(stored=ended, committed=THEIRS), options_of()).start == AtPosition(50)


# -- 2: a new application ---------------------------------------------------------------------


def test_commit_whose_application_cannot_be_read_is_resumed() -> None:
    """It may be this one's, of a newer version."""
    partial = Committed(Checkpoint(resume=50), is_partial=True)

    assert start_of(given(committed=partial), **A) == (AtPosition(50), False)


@pytest.mark.parametrize(
    "start, at",
    [
        (StartPoint.EARLIEST, 10),
        (LATEST, 100),
        (AtTime(5.0), 77),
        (AtPosition(42), 42),
    ],
)
def test_new_application_begins_at_start_and_pins_its_id(start: Start, at: int) -> None:
    """Whatever start is: what was known is gone, so that a crash must not bring it back."""
    inputs = given(stored=WHOLE, committed=OURS, resolved=77 if start == AtTime(5.0) else None)
    decision = decide(inputs, options_of(start=start, **B))

    assert (decision.start, decision.is_pin) == (AtPosition(at), True)
    assert decision.checkpoint == Checkpoint(resume=at, application="b")
    (reason,) = decision.reasons
    assert "application 'b' starts anew" in reason
    assert "the checkpoint at 31 was written by 'a'" in reason


def test_same_application_resumes() -> None:
    """Once: the record says that it has begun."""
    assert start_of(given(stored=WHOLE), **A) == (AtPosition(31), False)


def test_new_application_on_a_commit_that_carries_no_id_begins_at_start() -> None:
    """A checkpoint of before there were ids."""
    assert decide(given(committed=OURS), options_of(**A)).start == AtPosition(10)


def test_new_application_reads_again_what_had_ended() -> None:
    """From the start means from the start."""
    ended = Checkpoint(99, 100, ended=True, application="a")

    assert decide(given(stored=ended), options_of(**B)).start == AtPosition(10)


def test_new_application_without_any_checkpoint_just_starts() -> None:
    """There is nothing to start anew from; the id is in the first flush."""
    decision = decide(given(), options_of(**B))

    assert decision == Decision(AtPosition(10), Checkpoint(application="b"))


def test_resuming_under_an_id_renames_the_checkpoint() -> None:
    """It is that application's from here on; without an id it stays whose it was."""
    resumed = decide(given(stored=WHOLE), options_of(application_id="b"))

    assert (resumed.start, resumed.checkpoint.application) == (AtPosition(31), "b")
    assert decide(given(stored=WHOLE), options_of()).checkpoint.application == "a"


# -- 3 to 5: a checkpoint ---------------------------------------------------------------------


def test_checkpoint_that_ended_has_nothing_to_read() -> None:
    """The broker's log is not looked at."""
    ended = Checkpoint(5, 6, ended=True)

    assert decide(given(stored=ended), options_of()) == Decision(StartPoint.ENDED, ended)


def test_cursor_of_a_broker_that_redelivers_is_left_alone() -> None:
    """A seek would make it forget what was settled above a hole; a store knows that itself."""
    inputs = given(committed=OURS, redelivers=True)
    assert decide(inputs, options_of()) == Decision(StartPoint.BROKER, OURS.checkpoint)

    inputs = given(stored=WHOLE, committed=OURS, redelivers=True)
    assert decide(inputs, options_of()).start == AtPosition(31)


def test_cursor_without_a_position_is_left_alone_too() -> None:
    """The broker has one, whatever it says of it."""
    inputs = given(committed=Committed(Checkpoint()), redelivers=True)

    assert decide(inputs, options_of(start=LATEST)).start is StartPoint.BROKER


def test_store_comes_before_the_broker_and_that_before_start() -> None:
    """Each is asked where the one before has nothing."""
    assert start_of(given(stored=WHOLE, committed=OURS)) == (AtPosition(31), False)
    assert start_of(given(committed=OURS), start=LATEST) == (AtPosition(50), False)
    assert start_of(given(), start=LATEST) == (AtPosition(100), True)


def test_checkpoint_without_a_position_leaves_it_to_start() -> None:
    """It may carry attempts, or an id, alone."""
    assert start_of(given(stored=Checkpoint()), start=LATEST) == (AtPosition(100), True)


# -- 6 and 7: none ----------------------------------------------------------------------------


@pytest.mark.parametrize("start", [StartPoint.EARLIEST, LATEST, AtTime(5.0), AtPosition(42)])
def test_partition_newer_than_the_group_starts_at_its_earliest(start: Start) -> None:
    """Whether the adapter saw it appear, or the group's pin does not name it."""
    assert start_of(given(NEW), start=start) == (AtPosition(10), False)
    assert start_of(given(is_later=True), start=start) == (AtPosition(10), False)


@pytest.mark.parametrize(
    "start, resolved, at, is_pin",
    [
        (StartPoint.EARLIEST, None, 10, False),
        (LATEST, None, 100, True),
        (LATEST, 80, 80, True),
        (AtTime(5.0), 77, 77, True),
        (AtTime(5.0), None, 100, True),
        (AtPosition(42), None, 42, False),
    ],
)
def test_start_means_what_it_says_and_what_moves_is_pinned(
    start: Start, resolved: int | None, at: int, *, is_pin: bool
) -> None:
    """A restart before the first ack finds the same place."""
    decision = decide(given(resolved=resolved), options_of(start=start))

    assert (decision.start, decision.is_pin) == (AtPosition(at), is_pin)
    assert decision.checkpoint == Checkpoint(resume=at if is_pin else None)


@pytest.mark.parametrize("start", [StartPoint.EARLIEST, LATEST])
def test_broker_that_cannot_say_is_left_to_find_the_start(start: StartPoint) -> None:
    """Nothing is pinned then, since nothing is known."""
    assert start_of(StartInputs(assignment=HELD), start=start) == (start, False)


# -- 8: out of range --------------------------------------------------------------------------

OLD = Checkpoint(
    3, 4, ((6, 6), (11, 12)), {4: (1, 5.0), 13: (2, 5.0)}, identity="i", application="a"
)
AHEAD = Checkpoint(199, 200, identity="i", application="a")


@pytest.mark.parametrize("stored, at", [(OLD, 4), (AHEAD, 200)])
def test_start_that_is_not_stored_fails_by_default(stored: Checkpoint, at: int) -> None:
    """The error says where both are, and what to do."""
    with pytest.raises(PositionOutOfRangeError, match=f"s/0: .* at {at}, .*'earliest' or 'latest'"):
        decide(given(stored=stored), options_of())


@pytest.mark.parametrize(
    "stored, policy, at, lost, checkpoint",
    [
        (OLD, "earliest", 10, 5, Checkpoint(3, 10, ((11, 12),), {13: (2, 5.0)}, False, "i", "a")),
        (OLD, "latest", 100, 93, Checkpoint(resume=100, identity="i", application="a")),
        (AHEAD, "earliest", 10, 0, Checkpoint(resume=10, identity="i", application="a")),
        (AHEAD, "latest", 100, 0, Checkpoint(resume=100, identity="i", application="a")),
    ],
)
def test_start_that_is_not_stored_follows_the_policy_aloud(
    stored: Checkpoint, policy: OutOfRange, at: int, lost: int, checkpoint: Checkpoint
) -> None:
    """What is lost is counted; ranges that are still stored stay settled; it is a pin."""
    decision = decide(given(stored=stored), options_of(out_of_range=policy))

    assert (decision.start, decision.is_pin, decision.lost) == (AtPosition(at), True, lost)
    assert decision.checkpoint == checkpoint
    (reason,) = decision.reasons
    assert f"going on at {at} (out_of_range='{policy}'), {lost} positions skipped" in reason


@pytest.mark.parametrize(
    "stored, replacement, start, lost, checkpoint",
    [
        (
            OLD,
            12,
            AtPosition(12),
            6,
            Checkpoint(3, 12, ((11, 12),), {13: (2, 5.0)}, False, "i", "a"),
        ),
        (
            OLD,
            None,
            AtTime(5.0),
            5,
            Checkpoint(3, 10, ((11, 12),), {13: (2, 5.0)}, False, "i", "a"),
        ),
        (AHEAD, 12, AtPosition(12), 0, Checkpoint(resume=12, identity="i", application="a")),
    ],
)
def test_start_that_is_not_stored_goes_on_at_a_time(
    stored: Checkpoint, replacement: int | None, start: Start, lost: int, checkpoint: Checkpoint
) -> None:
    """At its position; a broker that cannot tell it is given the time itself."""
    inputs = given(stored=stored, replacement=replacement)
    decision = decide(inputs, options_of(out_of_range=AtTime(5.0)))

    assert (decision.start, decision.is_pin, decision.lost) == (start, True, lost)
    assert decision.checkpoint == checkpoint


BEYOND = Checkpoint(
    29, 31, ((33, 35), (40, 120), (130, 2**62)), {31: (1, 5.0), 100: (2, 5.0)}, identity="i"
)


@pytest.mark.parametrize("source", ["stored", "committed"])
def test_what_is_known_beyond_the_end_is_forgotten_aloud(source: str) -> None:
    """T9: the log was cut, or the checkpoint is hostile; records to come would be skipped."""
    known = BEYOND if source == "stored" else Committed(BEYOND)
    inputs: dict[str, Any] = {source: known}
    decision = decide(given(**inputs), options_of())

    assert (decision.start, decision.is_pin, decision.lost) == (AtPosition(31), True, 0)
    assert decision.checkpoint == Checkpoint(29, 31, ((33, 35),), {31: (1, 5.0)}, identity="i")
    (reason,) = decision.reasons
    assert f"s/0: the checkpoint knows of {2**62}, but the broker's log ends at 100" in reason


@pytest.mark.parametrize(
    "inputs, options",
    [
        (given(), {"start": AtPosition(4)}),
        (given(resolved=4), {"start": LATEST}),
        (given(resolved=4), {"start": AtTime(1.0)}),
        (given(stored=WHOLE), {"start": AtPosition(4)} | B),
        (
            given(stored=WHOLE, committed=Committed(Checkpoint(resume=4), is_foreign=True)),
            {},
        ),
        (given(committed=Committed(Checkpoint(resume=4)), redelivers=True), {}),
    ],
    ids=["position", "latest", "time", "from_start", "reset", "cursor"],
)
def test_any_start_is_checked_against_the_log(inputs: StartInputs, options: dict[str, Any]) -> None:
    """Not checkpoints alone: a pin that retention has passed, a position of the configuration."""
    with pytest.raises(PositionOutOfRangeError):
        decide(inputs, options_of(**options))
    decision = decide(inputs, options_of(out_of_range="earliest", **options))
    assert (decision.start, decision.lost) == (AtPosition(10), 6)


# -- 9: lag -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inputs, options",
    [
        (given(stored=WHOLE), {}),
        (given(committed=Committed(Checkpoint(resume=31))), {}),
        (given(), {"start": AtPosition(31)}),
        (given(earliest=31), {}),
        (given(NEW, earliest=31), {}),
    ],
    ids=["stored", "committed", "position", "earliest", "discovered"],
)
def test_any_start_too_far_behind_the_end_is_treated_by_the_policy(
    inputs: StartInputs, options: dict[str, Any]
) -> None:
    """At 31 of 100; exactly at the limit nothing is said."""
    plain = decide(inputs, options_of(**options))
    assert decide(inputs, options_of(max_lag=69, **options)) == plain

    warned = decide(inputs, options_of(max_lag=68, **options))
    assert (warned.start, warned.is_pin, warned.is_behind) == (plain.start, plain.is_pin, True)
    (reason,) = warned.reasons
    assert "s/0: it starts at 31, 69 positions behind the end (max_lag=68)" in reason

    paused = decide(inputs, options_of(max_lag=68, lag_policy="pause", **options))
    assert (paused.start, paused.is_behind) == (plain.start, True)
    assert "until consumer.resume(partition) is called" in paused.reasons[0]

    skipped = decide(inputs, options_of(max_lag=68, lag_policy="skip", **options))
    settled = 3 if inputs.stored else 0
    assert (skipped.start, skipped.is_pin, skipped.is_behind) == (AtPosition(100), True, False)
    assert skipped.lost == 69 - settled
    assert f"{69 - settled} unsettled positions are lost" in skipped.reasons[0]
    assert (skipped.checkpoint.watermark, skipped.checkpoint.start) == (None, 100)
    assert skipped.checkpoint.application == plain.checkpoint.application


def test_lag_counts_from_where_the_range_policy_went() -> None:
    """Both are said, and both losses are counted."""
    options = options_of(out_of_range="earliest", max_lag=5, lag_policy="skip")
    decision = decide(given(stored=OLD), options)

    assert (decision.start, decision.lost) == (AtPosition(100), 5 + 90 - 2)
    assert len(decision.reasons) == 2


def test_ended_partition_has_no_lag() -> None:
    """There is nothing to read."""
    ended = Checkpoint(5, 6, ended=True)

    assert decide(given(stored=ended), options_of(max_lag=1)).reasons == ()


def test_lag_of_positions_that_are_no_numbers_is_refused() -> None:
    """It cannot be counted; a limit that is never applied would be a promise not kept."""
    inputs = StartInputs(assignment=HELD, stored=Checkpoint(resume=(5, 0)), latest=(9, 0))

    with pytest.raises(ConfigurationError, match=r"not \(5, 0\): leave max_lag= out"):
        decide(inputs, options_of(max_lag=1))


# -- what cannot work -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "group, metadata_size, has_store, works",
    [
        ("g", 1000, False, True),
        ("g", 999, False, False),
        (None, 4096, False, False),
        ("g", 0, True, True),
    ],
)
def test_new_application_needs_a_place_for_its_id(
    group: str | None, metadata_size: int, *, has_store: bool, works: bool
) -> None:
    """Where no checkpoint outlives the process, every restart would start anew."""
    broker = MemoryBroker()
    broker.create_stream("s")
    adapter = MemoryAdapter(broker, "s", group=group, metadata_size=metadata_size)
    store = MemoryStore() if has_store else None
    if works:
        Consumer(adapter, store=store, **A)
        return
    with pytest.raises(ConfigurationError, match="keeps the application_id in the checkpoint"):
        Consumer(adapter, store=store, **A)


@pytest.mark.parametrize(
    "known, is_settled",
    [
        (Checkpoint(watermark=18, resume=19), False),
        (Checkpoint(watermark=18, resume=15), True),
        (Checkpoint(watermark=18), True),
        (Checkpoint(watermark=18, resume=15, ranges=((20, 22),)), False),
    ],
)
def test_start_says_whether_the_record_there_may_be_gone(
    known: Checkpoint, *, is_settled: bool
) -> None:
    """A settled one may, unless something is known to be open behind it."""
    start = decide(given(stored=known), options_of()).start
    assert isinstance(start, AtPosition)
    assert start.is_settled is is_settled


def test_start_is_a_time_where_the_broker_knows_no_ends() -> None:
    """It finds the place itself, and nothing can be pinned."""
    since = AtTime(1_700_000_000.0)
    inputs = StartInputs(assignment=HELD, since=since)
    assert decide(inputs, options_of(start="latest")) == Decision(since)


@pytest.mark.parametrize("at, said", [(5, "log starts at 10"), (105, "log ends at 100")])
def test_error_names_the_end_of_the_log_that_was_passed(at: int, said: str) -> None:
    """Records that have been deleted, or a log that has been cut."""
    with pytest.raises(PositionOutOfRangeError, match=said):
        decide(given(stored=Checkpoint(resume=at)), options_of())


@pytest.mark.parametrize(
    "inputs, policy, start",
    [
        (given(stored=Checkpoint(resume=5), latest=None), "latest", LATEST),
        (given(stored=Checkpoint(resume=105), earliest=None), "earliest", StartPoint.EARLIEST),
    ],
)
def test_end_that_the_broker_does_not_tell_is_left_to_it(
    inputs: StartInputs, policy: OutOfRange, start: StartPoint
) -> None:
    """Which one of the two the policy says."""
    assert decide(inputs, options_of(out_of_range=policy)).start == start


def test_loss_that_cannot_be_counted_is_said_and_counts_as_one() -> None:
    """Positions of Pulsar and Kinesis are no numbers."""
    log: dict[str, Any] = {"earliest": (7, 0), "latest": (9, 0)}
    inputs = StartInputs(assignment=HELD, stored=Checkpoint(resume=(3, 0)), **log)
    decision = decide(inputs, options_of(out_of_range="earliest"))
    assert decision.lost == 1
    assert "an unknown number of records is lost" in decision.reasons[0]


@pytest.mark.parametrize(
    "policy, is_resumed, waits",
    [("pause", False, True), ("pause", True, False), ("warn", False, False)],
)
def test_partition_that_waits_for_a_person_says_so(
    *, policy: Any, is_resumed: bool, waits: bool
) -> None:
    """One that was resumed, or that is only warned of, is fetched."""
    inputs = given(stored=Checkpoint(resume=20), is_resumed=is_resumed)
    (reason,) = decide(inputs, options_of(max_lag=10, lag_policy=policy)).reasons
    assert ("consumer.resume(partition)" in reason) is waits

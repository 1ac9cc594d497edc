"""What is read of a held shard and not fetched yet."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from consumer_sdk.adapters.assignment_book import GrantState
from consumer_sdk.adapters.kinesis.consumer.grants import RECORDS_AHEAD, Grant
from consumer_sdk.adapters.kinesis.service.service import Page
from consumer_sdk.adapters.kinesis.starts import NOTHING_LEFT, after
from consumer_sdk.errors import AdapterError, PositionOutOfRangeError
from consumer_sdk.records import AtPosition, AtTime, Start, StartPoint
from tests.adapters.kinesis.stage import SHARD, aggregated, begin, page, values_of

ALL = (1000, 1 << 20)


def grant(start: Start | None = StartPoint.EARLIEST) -> Grant:
    """One that the owner has answered, if a start is given; its news are counted in ``news``."""
    made = Grant("s", SHARD, 3)
    if start is not None:
        begin(made, start)
    return made


def test_grant_is_read_from_its_start_on() -> None:
    """Not before the owner has said where that is."""
    made = grant(None)
    assert (made.state, made.wants_more, made.has_run) == (GrantState.OFFERED, False, False)
    begin(made, AtTime(5))
    assert (made.cursor, made.wants_more) == (AtTime(5), True)
    assert (made.fence, made.assignment.fence) == (3, 3)


def test_page_moves_the_cursor_behind_its_last_record() -> None:
    """Kinesis trap 27: AFTER what was read whole, not AT it."""
    made = grant()
    made.take_in(page((1, b"a"), (2, b"b")))
    assert made.cursor == AtPosition(after(2))
    run = made.take(*ALL)
    assert (values_of([run]), run.next_position, run.ended) == (["a", "b"], after(2), False)


def test_page_without_records_keeps_the_cursor() -> None:
    """Kinesis trap 23: so that an iterator which expires then leads to the same place."""
    made = grant(AtTime(5))
    made.take_in(page())
    assert (made.cursor, made.has_run, made.wants_more) == (AtTime(5), False, True)


def test_end_with_the_last_records_is_told_with_them_once() -> None:
    """Kinesis trap 20: a null iterator in an answer that has records."""
    made = grant()
    made.take_in(page((1, b"a"), (2, b"b"), after=None))
    assert not made.wants_more
    first, second = made.take(1, 1 << 20), made.take(1, 1 << 20)
    assert (values_of([first]), first.ended) == (["a"], False)
    assert (values_of([second]), second.ended) == (["b"], True)
    assert not made.has_run


def test_end_without_records_is_told_alone() -> None:
    """Kinesis trap 20: a closed shard that is empty, or whose end comes one answer later."""
    made = grant()
    made.take_in(page(after=None))
    assert made.has_run
    run = made.take(*ALL)
    assert (run.messages, run.ended, run.fault) == ([], True, None)
    assert not made.has_run


def test_end_that_is_forgotten_is_told_when_it_was_read_again() -> None:
    """Back-pressure takes the memory of a shard that had been read to its end."""
    made = grant()
    made.take_in(page((1, b"a"), after=None))
    made.pause()
    made.forget_unread()
    made.resume()
    assert (made.size, made.wants_more, made.has_run) == (0, True, False)
    assert made.cursor == AtPosition((1, 0))
    made.take_in(page((1, b"a"), after=None))
    run = made.take(*ALL)
    assert (values_of([run]), run.ended) == (["a"], True)


def test_fault_comes_after_what_was_read_before_it() -> None:
    """And in a run of its own, once."""
    made, fault = grant(), AdapterError("broken")
    made.take_in(page((1, b"a")))
    made.fail(fault)
    assert not made.wants_more
    runs = [made.take(*ALL), made.take(*ALL)]
    assert [(values_of([run]), run.fault) for run in runs] == [(["a"], None), ([], fault)]
    assert not made.has_run


def test_shard_with_a_fault_is_read_again_once_it_is_resumed() -> None:
    """The owner decides on a fault."""
    made = grant()
    made.fail(AdapterError("broken"))
    made.take(*ALL)
    assert not made.wants_more
    made.resume()
    assert made.wants_more


def test_paused_shard_is_neither_read_nor_fetched() -> None:
    """And loses nothing by it."""
    made = grant()
    made.take_in(page((1, b"a")))
    made.pause()
    assert (made.wants_more, made.has_run) == (False, False)
    made.resume()
    assert values_of([made.take(*ALL)]) == ["a"]


def test_shard_paused_while_its_start_is_decided_stays_paused() -> None:
    """The runtime does that where the lag is too large."""
    made = grant(None)
    made.pause()
    begin(made, StartPoint.EARLIEST)
    assert not made.wants_more
    made.resume()
    assert made.wants_more


def test_forgotten_records_are_read_again_exactly() -> None:
    """Kinesis trap 29: from inside an aggregate on, without what was fetched of it before."""
    whole = page((5, aggregated(*[(b"k", bytes([each])) for each in b"abc"])), (6, b"d"))
    made = grant()
    made.take_in(whole)
    assert values_of([made.take(2, 1 << 20)]) == ["a", "b"]
    made.forget_unread()
    assert (made.cursor, made.size) == (AtPosition((5, 2)), 0)
    for _ in range(2):  # and once more, before anything of it was fetched
        made.take_in(whole)
        made.forget_unread()
        assert made.cursor == AtPosition((5, 2))
    made.take_in(whole)
    assert values_of([made.take(*ALL)]) == ["c", "d"]


def test_forgetting_nothing_keeps_the_cursor() -> None:
    """It is the same object: what is being read now is not thrown away for it."""
    made = grant(AtTime(5))
    cursor = made.cursor
    made.forget_unread()
    assert made.cursor is cursor


def test_shard_is_read_ahead_by_one_answer() -> None:
    """Kinesis trap 12: what is not fetched does not pile up."""
    made = grant()
    most = page(*[(each, b"") for each in range(1, RECORDS_AHEAD + 1)])
    made.take_in(most)
    made.changed.clear()
    before = made.wants_more
    made.take(1, 1 << 20)
    assert (before, made.wants_more, made.changed.is_set()) == (False, True, True)


@pytest.mark.parametrize("size", [0, 1, 5])
def test_size_is_that_of_what_was_not_fetched(size: int) -> None:
    """Of whole pages: they are freed as a whole."""
    made = grant()
    pages = [page((10 * each, b"x" * size)) for each in range(1, 4)]
    for found in pages:
        made.take_in(found)
    assert made.size == sum(found.size for found in pages)
    made.take(*ALL)
    assert made.size == sum(found.size for found in pages[1:])
    made.close()
    assert made.size == 0


# -- trimmed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sub", [0, 3])
def test_unsettled_record_that_was_trimmed_is_out_of_range(sub: int) -> None:
    """Kinesis trap 20: the service gives what is left in silence; nothing of it is delivered."""
    made = grant(AtPosition((5, sub)))
    with pytest.raises(PositionOutOfRangeError, match=r"record 5 is not settled.*begins at 9"):
        made.take_in(page((9, b"later")))
    assert (made.horizon, made.has_run, made.cursor) == ((9, 0), False, AtPosition((5, sub)))


def test_shard_whose_records_all_expired_is_out_of_range_not_ended() -> None:
    """Kinesis trap 20: its end alone would be a loss that nobody hears of."""
    made = grant(AtPosition((5, 0)))
    with pytest.raises(PositionOutOfRangeError, match="begins at its end"):
        made.take_in(page(after=None))
    assert (made.horizon, made.is_ended) == (after(5), False)


@pytest.mark.parametrize("start", [StartPoint.EARLIEST, AtTime(1), AtPosition(after(5))])
def test_start_that_names_no_unsettled_record_is_never_out_of_range(start: Start) -> None:
    """What comes next may be any record, or the end."""
    for found in (page((9, b"later")), page(after=None)):
        made = grant(start)
        made.take_in(found)
        assert made.has_run


def test_empty_page_of_an_open_shard_says_nothing_of_what_was_trimmed() -> None:
    """Kinesis trap 24: the service gives empty pages before the record as well."""
    made = grant(AtPosition((5, 0)))
    made.take_in(page(behind=1000))
    made.take_in(page((5, b"a")))
    assert values_of([made.take(*ALL)]) == ["a"]


@pytest.mark.parametrize(
    "cursor, is_settled",
    [
        (AtPosition((5, 0)), False),
        (AtPosition((5, 5)), False),
        (AtPosition((5, 0), is_settled=True), True),
        (AtPosition(after(5)), True),
        (StartPoint.EARLIEST, False),
        (AtTime(5), False),
    ],
)
def test_record_at_the_cursor_is_settled_or_was_read_whole(
    cursor: Start,
    is_settled: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """Of a start without a record none is."""
    assert grant(cursor).is_at_settled is is_settled


def test_record_that_was_read_before_is_left_out() -> None:
    """It is asked for to see whether it is still there."""
    made = grant(AtPosition(after(5)))
    made.take_in(page((5, b"old"), (6, b"a"), (7, b"b")))
    assert made.cursor == AtPosition(after(7))
    assert values_of([made.take(*ALL)]) == ["a", "b"]
    made.take_in(page((7, b"b")))
    assert (made.has_run, made.cursor) == (False, AtPosition(after(7)))
    made.take_in(page((7, b"b"), after=None))
    assert made.take(*ALL).ended


def first(found: Page) -> Page:
    """The answer to an iterator of a position."""
    return replace(found, is_first=True)


@pytest.mark.parametrize(
    "found, begin",
    [
        (first(page((9, b"a"), (10, b"b"))), "9"),
        (first(page(after=None)), "its end"),
        (first(page()), None),
        (first(page((5, b"a"))), None),
        (page((9, b"a")), None),
    ],
)
@pytest.mark.parametrize("cursor", [AtPosition((5, 0), is_settled=True), AtPosition(after(5))])
def test_gap_behind_a_settled_record_is_logged(
    found: Page, begin: str | None, cursor: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows whether there were others; of what was read on there is no gap."""
    made = grant(cursor)
    assert made.has_gap(found) is (begin is not None)
    made.take_in(found)
    said = f"the record 5 is settled, and has expired.*It goes on at {begin};"
    assert bool(caplog.records) is (begin is not None)
    assert begin is None or re.search(said, caplog.text)


def test_start_without_a_record_has_no_gap() -> None:
    """What comes first there is no later than what was asked for."""
    assert not grant(AtTime(5)).has_gap(first(page((9, b"a"))))


@pytest.mark.parametrize("start", [StartPoint.EARLIEST, AtPosition((5, 3))])
def test_shard_that_is_gone_is_a_loss_of_what_was_not_read(start: Start) -> None:
    """It expired as a whole: nothing is left."""
    made = grant(start)
    error = str(made.lost())
    assert "the shard now begins at its end" in error
    if start is StartPoint.EARLIEST:
        assert "nothing of this shard was read" in error
        assert made.horizon == NOTHING_LEFT
    else:
        assert "the record 5 is not settled" in error
        assert made.horizon == after(5)


# -- refused ------------------------------------------------------------------------------------


def refused(cursor: Start) -> Grant:
    """A grant whose cursor Kinesis has refused."""
    made = grant(cursor)
    assert made.place == cursor
    made.is_refused = True
    return made


def test_position_that_was_refused_is_looked_for_from_the_beginning() -> None:
    """It has expired, if it ever was one of this shard; an empty page tells nothing."""
    made = refused(AtPosition((5, 0), is_settled=True))
    places, found = [made.place], [page(), page((9, b"a"))]
    for each in found:
        made.take_in(each)
        places.append(made.place)
    made.is_refused = True
    made.forget_unread()
    places.append(made.place)
    begin = StartPoint.EARLIEST
    assert places == [begin, begin, AtPosition(after(9)), AtPosition((9, 0))]
    assert not made.is_refused


def test_position_that_was_refused_and_not_settled_is_lost() -> None:
    """The records between it and what is left have expired."""
    with pytest.raises(PositionOutOfRangeError, match=r"record 5 is not settled.*begins at 9"):
        refused(AtPosition((5, 0))).take_in(page((9, b"a")))


@pytest.mark.parametrize("begin", [3, 5])
@pytest.mark.parametrize("is_settled", [False, True])
def test_position_that_was_refused_is_of_no_shard_that_begins_before_it(
    begin: int,
    is_settled: bool,  # noqa: FBT001 - it is a row of two
) -> None:
    """Another stream's checkpoint, perhaps: going on would pass over records."""
    made = refused(AtPosition((5, 0), is_settled=is_settled))
    said = rf"there is no position \(5, 0\): the shard begins at {begin}"
    with pytest.raises(PositionOutOfRangeError, match=said):
        made.take_in(page((begin, b"a"), (10, b"b")))
    assert not made.has_run


def test_time_that_is_refused_is_named() -> None:
    """With the reason that Kinesis gave."""
    assert f"there is no position {AtTime(5)}: why" in str(grant(AtTime(5)).refused("why"))


# -- news and lag -------------------------------------------------------------------------------


def test_news_are_told_where_there_is_something_to_fetch() -> None:
    """An empty page wakes nobody."""
    news: list[None] = []
    made = Grant("s", SHARD, 1, lambda: news.append(None))
    begin(made, StartPoint.EARLIEST)
    made.take_in(page())
    assert not news
    made.take_in(page((1, b"a")))
    made.fail(AdapterError("broken"))
    made.take_in(page(after=None))
    assert len(news) == 3


def test_lag_is_that_of_the_next_unread_record_else_what_the_service_says() -> None:
    """In milliseconds; never below zero, whatever the clocks say."""
    made = grant()
    assert made.lag(10.0) is None
    made.take_in(page((4_000, b"a"), behind=7))
    assert (made.lag(10.0), made.lag(3.0)) == (6_000, 0)
    made.take(*ALL)
    assert made.lag(10.0) == 7


def test_lag_since_an_answer_that_is_overdue_may_be_all_that_time() -> None:
    """Of a shard that has ended it is what it was."""
    made = grant()
    made.take_in(page(behind=7))
    made.heard(100.0, until=103.0)
    assert [made.lag(0.0, at) for at in (100.0, 103.0, 104.0)] == [7, 7, 4_007]
    made.heard(100.0, until=100.0)
    made.take_in(page(behind=7, after=None))
    assert made.lag(0.0, 200.0) == 7


def test_lag_is_out_of_date_from_the_last_answer_on_once_a_read_has_failed() -> None:
    """However soon the next page was due."""
    made = grant()
    made.take_in(page(behind=7))
    made.heard(100.0, until=103.0)
    made.doubt()
    assert [made.lag(0.0, at) for at in (100.0, 101.0)] == [7, 1_007]


def test_lag_of_what_was_forgotten_is_that_of_its_first_record() -> None:
    """Until the next page tells."""
    made = grant()
    made.take_in(page((4_000, b"a"), behind=7))
    made.take_in(page((5_000, b"b"), behind=8))
    made.forget_unread()
    assert (made.cursor, made.lag(10.0)) == (AtPosition((4_000, 0)), 6_000)
    made.take_in(page(behind=9))
    assert made.lag(10.0) == 9


def test_whoever_reads_a_shard_is_told_of_each_change() -> None:
    """It waits for one; and whoever fetches hears that there may be something again."""
    news: list[None] = []
    made = Grant("s", SHARD, 1, lambda: news.append(None))
    changes: list[Callable[[], None]] = [lambda: begin(made, AtTime(5)), made.resume, made.close]
    for change in changes:
        made.changed.clear()
        change()
        assert made.changed.is_set()
    assert len(news) == 1
    assert made.key == made.shard == SHARD


def test_each_change_of_the_size_is_told() -> None:
    """The sum of all shards is kept by what they tell."""
    told: list[int] = []
    made = grant()
    made.on_size = told.append
    made.take_in(page((1, b"abc"), (2, b"d")))
    made.take_in(page((3, b"ef")))
    assert (sum(told), made.size) == (9, 9)
    assert made.take(*ALL).ascends
    assert (sum(told), made.size) == (3, 3)
    made.forget_unread()
    assert (sum(told), made.size) == (0, 0)


def test_closed_grant_has_nothing_and_wants_nothing() -> None:
    """Kinesis trap 5: whatever is called after its end."""
    made = grant()
    made.take_in(page((1, b"a")))
    made.fail(AdapterError("broken"))
    made.close()
    made.resume()
    assert (made.state, made.has_run, made.wants_more) == (GrantState.CLOSED, False, False)
    assert not made.is_held
    run = made.take(*ALL)
    assert (run.messages, run.fault, run.ended) == ([], None, False)
    assert repr(made) == f"<Grant {SHARD} closed epoch={made.assignment.epoch}>"


def test_each_grant_has_an_epoch_of_its_own() -> None:
    """Kinesis trap 5: also under the same fence, as after a crash of the store."""
    assert grant().assignment.epoch < grant().assignment.epoch


def test_settled_record_that_is_trimmed_is_no_loss() -> None:
    """A start that is known to be settled is not looked for."""
    made = grant(AtPosition((5, 0), is_settled=True))
    made.take_in(page((9, b"a")))
    assert [message.position for message in made.take(*ALL).messages] == [(9, 0)]

"""Pages cut into runs: nothing is lost, doubled or out of order, wherever they are cut."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.kinesis.consumer.grants import PageBuffer
from consumer_sdk.adapters.kinesis.service.aggregation import user_records
from consumer_sdk.adapters.kinesis.starts import after
from consumer_sdk.records import Message
from tests.adapters.kinesis.consumer.test_grants import grant
from tests.adapters.kinesis.stage import aggregated, assignment, page

HELD = assignment()
ALL: dict[str, int] = {"max_records": 1000, "max_bytes": 1 << 30}

Row = tuple[tuple[int, int], bytes]

records = st.one_of(
    st.binary(max_size=20),
    st.lists(st.binary(max_size=8), max_size=5).map(
        lambda users: aggregated(*[(b"k", data) for data in users])
    ),
)
pages = st.lists(records, min_size=1, max_size=8).map(
    lambda data: page(*[(10 * number, each) for number, each in enumerate(data, 1)])
)
cuts = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 40)), min_size=1, max_size=8)


def rows(messages: list[Message]) -> list[Row]:
    """Position and value of each."""
    return [(message.position, message.value or b"") for message in messages]


def model(found: Any) -> list[Row]:
    """All user records of a page, without any cut."""
    whole: list[Row] = []
    for sequence, data in zip(found.sequences, found.data, strict=True):
        users = user_records(data)
        values = [data] if users is None else [value for _, value in users]
        whole += [((sequence, sub), value) for sub, value in enumerate(values)]
    return whole


def drain(
    unread: PageBuffer, cuts: list[tuple[int, int]]
) -> list[tuple[list[Row], tuple[int, int]]]:
    """Takes all, cut as it says, again and again; each run with where the next one begins."""
    runs: list[tuple[list[Row], tuple[int, int]]] = []
    while not unread.is_empty:
        max_records, max_bytes = cuts[len(runs) % len(cuts)]
        messages, _ = unread.take(HELD, max_records, max_bytes)
        assert len(messages) <= max_records
        runs.append((rows(messages), unread.position))
        assert len(runs) < 1000
    return runs


@given(pages, cuts)
def test_cuts_anywhere_give_the_whole_in_order(found: Any, cuts: list[tuple[int, int]]) -> None:
    """Kinesis trap 6: user records of one sequence number are told apart, and ascend."""
    runs = drain(PageBuffer(found), cuts)
    together = [row for run, _ in runs for row in run]
    assert together == model(found)
    positions = [position for position, _ in together]
    assert all(one < two for one, two in pairwise(positions))


@given(pages, cuts)
def test_restart_at_any_cut_gives_exactly_the_rest(found: Any, cuts: list[tuple[int, int]]) -> None:
    """Kinesis trap 29: resumed AT the record, with the user records before that filtered out."""
    seen = 0
    for run, position in drain(PageBuffer(found), cuts):
        seen += len(run)
        again = [row for rest, _ in drain(PageBuffer(found, position), cuts) for row in rest]
        assert again == model(found)[seen:]


@given(pages, st.integers(0, 90), st.integers(0, 6))
def test_start_anywhere_leaves_out_what_lies_before_it(found: Any, sequence: int, sub: int) -> None:
    """Kinesis trap 29: also where no record has that position."""
    since = sequence, sub
    together = [row for run, _ in drain(PageBuffer(found, since), [(3, 1000)]) for row in run]
    assert together == [row for row in model(found) if row[0] >= since]


def test_start_in_the_middle_of_a_page_holds_for_each_cut_before_it() -> None:
    """A run may have nothing but records that lie before it."""
    unread = PageBuffer(page(*((number, b"x") for number in range(1, 7))), (4, 0))
    runs = [[position for position, _ in run] for run, _ in drain(unread, [(2, 100)])]
    assert runs == [[], [(4, 0)], [(5, 0), (6, 0)]]


def test_run_is_cut_inside_an_aggregate_and_goes_on_there() -> None:
    """Kinesis trap 29: the position between two user records is that of the second."""
    unread = PageBuffer(page((7, aggregated((b"a", b"1"), (b"b", b"2"), (b"c", b"3")))))
    messages, size = unread.take(HELD, 2, 1 << 20)
    assert rows(messages) == [((7, 0), b"1"), ((7, 1), b"2")]
    assert (size, unread.position, unread.is_empty) == (4, (7, 2), False)
    assert rows(unread.take(HELD, 2, 1 << 20)[0]) == [((7, 2), b"3")]
    assert (unread.position, unread.is_empty) == (after(7), True)


def test_aggregate_without_records_moves_the_position() -> None:
    """Kinesis trap 29: or a shard that ends with one would never be settled."""
    unread = PageBuffer(page((7, aggregated())))
    assert unread.position == (7, 0)
    assert unread.take(HELD, 5, 100) == ([], 0)
    assert (unread.position, unread.is_empty) == (after(7), True)


def test_position_before_anything_was_taken_is_the_start() -> None:
    """Forgotten before it was fetched, it is not begun at the record's beginning."""
    assert PageBuffer(page((5, aggregated((b"a", b"1"), (b"b", b"2")))), (5, 1)).position == (5, 1)
    assert PageBuffer(page((5, b"1"), (6, b"2")), after(4)).position == (5, 0)


def test_record_larger_than_the_limit_comes_alone() -> None:
    """The limit of bytes is soft: one record at least."""
    unread = PageBuffer(page((1, b"x" * 100), (2, b"y" * 100)))
    assert [each.position for each in unread.take(HELD, 10, 1)[0]] == [(1, 0)]


def test_as_many_records_come_as_have_the_bytes_that_were_asked_for() -> None:
    """By their mean, rounded up: a run is a little smaller rather than larger."""
    unread = PageBuffer(page(*((number, b"x" * 99) for number in range(1, 11))))
    assert unread.size == 1000  # with their keys
    for max_bytes, count in ((505, 5), (504, 4), (101, 1)):
        messages, size = unread.take(HELD, 10, max_bytes)
        assert (len(messages), size) == (count, 100 * count)


def test_user_records_of_several_aggregates_have_the_bytes_that_were_asked_for() -> None:
    """No more are taken once there are as many."""
    users = [(b"k", b"1234")] * 3
    unread = PageBuffer(page((1, aggregated(users[0])), (2, aggregated(*users)), (3, b"x" * 4)))
    for max_bytes, positions in ((5, [(1, 0)]), (10, [(2, 0), (2, 1)]), (10, [(2, 2), (3, 0)])):
        messages, size = unread.take(HELD, 10, max_bytes)
        assert [message.position for message in messages] == positions
        assert size == 5 * len(positions)
    unread = PageBuffer(page((1, aggregated(users[0])), (2, aggregated(*users))))
    messages, _ = unread.take(HELD, 10, 10)
    assert [message.position for message in messages] == [(1, 0), (2, 0)]


def test_time_is_that_of_the_next_message() -> None:
    """The lag is that of what was not fetched, also inside an aggregate."""
    unread = PageBuffer(page((5, aggregated((b"a", b"1"), (b"b", b"2"))), (6, b"plain")))
    times = []
    while not unread.is_empty:
        times.append(unread.time)
        unread.take(HELD, 1, 100)
    assert times == [5, 5, 6]


def test_messages_have_key_value_time_and_assignment() -> None:
    """Kinesis has no headers."""
    plain, expanded = (
        PageBuffer(page((5, b"v"))),
        PageBuffer(page((5, aggregated((b"user", b"v"))))),
    )
    for unread, key in ((plain, b"k"), (expanded, b"user")):
        (message,) = unread.take(HELD, 1, 100)[0]
        assert (message.key, message.value, message.headers) == (key, b"v", ())
        assert (message.timestamp, message.assignment, message.position) == (5, HELD, (5, 0))


def test_aggregate_of_many_small_records_counts_what_it_takes() -> None:
    """A hundred times its bytes, while it is open; nothing when it is used up."""
    held = grant()
    held.take_in(page((10, aggregated(*[(b"k", b"")] * 50_000)), after=None))
    before = held.size
    tracemalloc.start()
    held.take(10, 1 << 30)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= held.size - before <= 3 * taken
    while not held.take(10_000, 1 << 30).ended:
        pass
    assert held.size == 0

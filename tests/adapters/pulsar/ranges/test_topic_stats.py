"""Counts, cuts and losses, from lists of ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.pulsar.client.admin import Admin, Chunk, Entry
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.ranges.topic_stats import (
    Entries,
    Ledger,
    Ledgers,
    is_doubtful,
    is_lost,
)
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX

LEDGERS = Ledgers([Ledger(3, 5, 50), Ledger(4, 0, 0), Ledger(8, 2, 20)])


@pytest.mark.parametrize(
    "entries, size, found, last",
    [(2, 20, (9, 90), (8, 1, 0)), (1, 1, (8, 71), (8, 0, 0)), (-1, -1, (7, 70), (5, 1, 0))],
)
def test_the_open_ledgers_entries_come_from_the_topic(
    entries: int, size: int, found: tuple[int, int], last: Place
) -> None:
    """``internalStats`` lists it as empty; of a topic that is not loaded it says nothing."""
    ledgers = Ledgers.of(
        {
            "ledgers": [
                {"ledgerId": 3, "entries": 5, "size": 50},
                {"ledgerId": 5, "entries": 2, "size": 20},
                {"ledgerId": 8, "entries": 0, "size": 0},
            ],
            "currentLedgerEntries": entries,
            "currentLedgerSize": size,
        }
    )
    assert (ledgers.entries, ledgers.size) == found
    assert (ledgers.first, ledgers.last) == ((3, 0, 0), last)
    assert ledgers.reaches((last[0], last[1] + 1, 0))
    assert not ledgers.reaches((last[0], last[1] + 2, 0))


def test_nothing_has_neither_begin_nor_end() -> None:
    """As of a topic that is gone."""
    ledgers = Ledgers.of({})
    assert (ledgers.first, ledgers.last, ledgers.entries) == (None, None, 0)
    assert not ledgers.reaches((1, 0, 0))


@pytest.mark.parametrize(
    "start,stop,entries",
    [
        ((0, 0, 0), (99, 0, 0), 7),
        ((3, 0, 0), (3, 5, 0), 5),
        ((3, 1, 0), (3, 3, 0), 2),
        ((3, 1, 4), (3, 3, 1), 3),  # the entries of both ends are read
        ((3, 5, 0), (8, 0, 0), 0),
        ((3, 5, 0), (8, 1, 0), 1),
        ((4, 0, 0), (8, 99, 0), 2),
        ((8, 2, 0), (9, 0, 0), 0),
    ],
)
def test_entries_are_counted_half_open(start: Place, stop: Place, entries: int) -> None:
    """Ledgers have no entries beyond their end."""
    assert LEDGERS.count(start, stop) == entries
    assert len(list(LEDGERS.each(start, stop))) == entries


@pytest.mark.parametrize(
    "place,count,begin",
    [
        ((3, 4, 0), 2, (3, 2, 0)),
        ((3, 1, 0), 2, (3, 0, 0)),
        ((8, 1, 0), 1, (8, 0, 0)),
        ((8, 1, 0), 3, (3, 3, 0)),
        ((8, 1, 0), 99, (3, 0, 0)),
    ],
)
def test_going_back_leads_over_ledgers(place: Place, count: int, begin: Place) -> None:
    """At most to the first entry that is kept."""
    assert LEDGERS.back(place, count) == begin


@pytest.mark.parametrize(
    "place,count,begin",
    [((8, 1, 0), 6, (3, 0, 0)), ((8, 1, 0), 7, (1, 1, 0)), ((8, 1, 0), 9, (1, 0, 0))],
)
def test_going_back_counts_the_entries_of_each_ledger(
    place: Place, count: int, begin: Place
) -> None:
    """Over several of them."""
    ledgers = Ledgers([Ledger(1, 2, 20), Ledger(3, 5, 50), Ledger(8, 2, 20)])
    assert ledgers.back(place, count) == begin


@pytest.mark.parametrize(
    "start,count,cut",
    [
        ((3, 2, 0), 2, (3, 4, 0)),
        ((3, 2, 0), 3, (8, 0, 0)),
        ((3, 2, 0), 4, (8, 1, 0)),
        ((3, 2, 0), 5, (8, 2, 0)),
        ((3, 2, 9), 1, (3, 3, 0)),
        ((8, 1, 0), 1, (8, 2, 0)),
    ],
)
def test_a_cut_in_the_middle_of_a_ledger_counts_from_there(
    start: Place, count: int, cut: Place
) -> None:
    """And goes on in the next one."""
    assert LEDGERS.advance(start, (8, 2, 0), count) == cut


@pytest.mark.parametrize(
    "start,entry",
    [
        ((3, 2, 7), (3, 2, 0)),
        ((3, 5, 0), (8, 0, 0)),
        ((0, 0, 0), (3, 0, 0)),
        ((8, 2, 0), None),
    ],
)
def test_first_entry_of_a_range_is_the_first_that_counts(start: Place, entry: Place | None) -> None:
    """From its begin on."""
    assert LEDGERS.first_entry(start, (9, 0, 0)) == entry


places = st.tuples(st.integers(0, 9), st.integers(0, 7), st.integers(0, 2))


@given(places, places, st.integers(1, 9))
def test_a_cut_is_above_its_start_and_counts_right(start: Place, stop: Place, count: int) -> None:
    """What lies before the cut is at most what was wanted, and cutting on reaches the stop."""
    if start >= stop:
        return
    cut = LEDGERS.advance(start, stop, count)
    assert start < cut <= stop
    assert LEDGERS.count(start, cut) == min(count, LEDGERS.count(start, stop))


@pytest.mark.parametrize(
    "start,stop,lost",
    [
        ((5, 0, 0), (5, 3, 0), True),
        ((5, 3, 0), (8, 2, 0), False),  # may have been the ledger's end
        ((3, 0, 0), (5, 3, 0), True),
        ((3, 0, 0), (5, 1, 0), True),
        ((3, 0, 0), (5, 0, 1), True),
        ((3, 0, 0), (5, 0, 0), False),
        ((3, 9, 0), (5, 0, 0), False),
        ((8, 0, 0), (8, 2, 0), False),
        ((0, 0, 0), (9, 2, 0), False),
        ((5, 3, 0), (5, 3, 0), False),
        ((5, 3, 0), (8, 5, 0), False),
        ((5, 8, 0), (8, 2, 0), False),
        ((5, 3, 1), (8, 2, 0), True),
        ((5, 3, 2), (8, 2, 0), True),  # a record of a batch, which was there
        ((5, 3, LAST_BATCH_INDEX), (8, 2, 0), True),  # the position of a record
    ],
)
def test_a_loss_is_told_where_it_is_known(start: Place, stop: Place, lost: bool) -> None:  # noqa: FBT001 - a column of the table
    """The log begins at ledger 8 now."""
    assert is_lost(start, stop, (8, 0, 0)) is lost


@pytest.mark.parametrize(
    "start,doubtful",
    [
        ((5, 3, 0), True),
        ((5, 0, 0), True),
        ((1, 0, 0), True),
        ((0, 1, 0), True),
        ((0, 0, 1), True),
        ((0, 0, 0), False),
        ((8, 0, 0), False),
    ],
)
def test_a_start_in_a_deleted_ledger_is_a_doubt(start: Place, doubtful: bool) -> None:  # noqa: FBT001 - a column of the table
    """The log begins at ledger 8 now; the begin of nothing is in no ledger."""
    assert is_doubtful(start, (8, 0, 0)) is doubtful


# -- what a range's entries end ----------------------------------------------------------------


class Topic(Admin):
    """A topic of one ledger, whose entries are these."""

    def __init__(self, entries: Sequence[Entry | None]) -> None:
        super().__init__("http://nowhere:1")
        self._entries = entries

    async def internals(self, topic: str) -> Mapping[str, Any]:  # type: ignore[override]
        ledger = {"ledgerId": 7, "entries": len(self._entries), "size": 1}
        return {"ledgers": [ledger]}

    async def entry(self, topic: str, ledger: int, number: int) -> Entry | None:
        return self._entries[number]


def chunk(index: int, *, uuid: str = "u", is_seen: bool = True) -> Entry:
    """One of the two chunks of a message."""
    return Entry(Chunk(uuid, index, 2), is_seen)


WHOLE = Entry(None, is_seen=True)
MARKER = Entry(None, is_seen=False)


@pytest.mark.parametrize(
    "entries,begin,start,ending",
    [
        ([MARKER, WHOLE], 0, 0, 1),
        ([chunk(0), chunk(1)], 0, 0, 1),
        ([chunk(0), chunk(1)], 0, 1, 1),
        ([chunk(0), chunk(1)], 1, 1, None),
        ([chunk(0), MARKER], 0, 0, None),
        ([chunk(0, is_seen=False), chunk(1, is_seen=False)], 0, 0, None),
        ([chunk(0, is_seen=False), chunk(1, is_seen=False), WHOLE], 0, 0, 2),
        ([chunk(0), chunk(0, uuid="v"), None, chunk(1, uuid="v")], 0, 0, 3),
    ],
    ids=[
        "behind a marker",
        "both chunks",
        "the first chunk lies before the range",
        "the first chunk lies before the reader",
        "the last chunk is behind the range",
        "of a transaction",
        "behind a transaction",
        "interleaved",
    ],
)
async def test_first_ending_is_of_a_message_that_every_reader_gets(
    entries: Sequence[Entry | None], begin: int, start: int, ending: int | None
) -> None:
    """Chunks of a transaction may be aborted, and end no message."""
    topic = Topic(entries)
    found = Entries("persistent://public/default/t", topic)
    at = await found.first_ending((7, begin, 0), (7, start, 0), (7, len(entries), 0))
    assert at == (None if ending is None else (7, ending))
    topic.close()

"""How many records ranges have, and what single entries are, by what the REST API tells of a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from consumer_sdk.adapters.pulsar.client.admin import Admin, Chunk, Entry
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.ranges import topic_stats
from consumer_sdk.adapters.pulsar.ranges.topic_stats import Entries, Ledger, Sizes
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.range_reads import PartitionRange
from consumer_sdk.records import Partition
from consumer_sdk.testing.simulation import simulate

NAME = "persistent://public/default/t"
TOPIC = f"{NAME}-partition-2"
PARTITION = Partition(NAME, "2")
WHOLE = Entry(None, is_seen=True)


def chunk(index: int, count: int = 2, uuid: str = "u") -> Entry:
    """A part of a message."""
    return Entry(Chunk(uuid, index, count), is_seen=True)


class Log(Admin):
    """A topic of these ledgers, and what was asked of it.

    Attributes:
        added: entries since the broker has loaded it.
        messages: the same in messages.
        batches: messages of single entries.
        entries: what single entries are.
    """

    def __init__(self, *ledgers: Ledger) -> None:
        super().__init__("http://nowhere:1")
        self.ledgers: Sequence[Ledger] | None = ledgers
        self.added: int | None = 0
        self.messages = 0
        self.batches: dict[tuple[int, int], int | None] = {}
        self.entries: dict[tuple[int, int], Entry] = {}
        self.asked: list[Any] = []

    async def internals(self, topic: str) -> dict[str, Any] | None:
        """None: there is no such topic."""
        assert topic == TOPIC
        self.asked.append("internals")
        if self.ledgers is None:
            return None
        found = [{"ledgerId": i, "entries": n, "size": size} for i, n, size in self.ledgers]
        counts = {} if self.added is None else {"entriesAddedCounter": self.added}
        current = {"currentLedgerEntries": -1, "currentLedgerSize": -1}
        return {"ledgers": found, **current, **counts}

    async def messages_in(self, topic: str) -> int:
        """Since the broker has loaded it."""
        assert topic == TOPIC
        self.asked.append("messages")
        return self.messages

    async def batch_size(self, topic: str, ledger: int, entry: int) -> int | None:
        """None: there is no such entry."""
        assert topic == TOPIC
        self.asked.append((ledger, entry))
        return self.batches.get((ledger, entry))

    async def entry(self, topic: str, ledger: int, number: int) -> Entry | None:
        """None: there is no such entry."""
        assert topic == TOPIC
        self.asked.append((ledger, number))
        return self.entries.get((ledger, number))


def log() -> Log:
    """Seven entries of 70 bytes in two ledgers, and one between them that is empty."""
    return Log(Ledger(3, 5, 50), Ledger(4, 0, 0), Ledger(8, 2, 20))


def span(start: Place, stop: Place) -> PartitionRange:
    """A range of the partition."""
    return PartitionRange(PARTITION, start, stop)


ALL = span((3, 0, 0), (8, 2, 0))


# -- records and bytes ----------------------------------------------------------------------------


async def test_entries_have_as_many_records_as_on_average_since_the_topic_was_loaded() -> None:
    """A range without entries has none."""
    topic = log()
    topic.added, topic.messages = 4, 50
    sizes = Sizes(topic)
    assert await sizes.records(ALL) == 88  # 87.5
    assert await sizes.records(span((3, 1, 0), (3, 3, 0))) == 25
    assert await sizes.records(span((3, 5, 0), (8, 0, 0))) == 0
    assert await sizes.record_size(PARTITION) == 70 / (7 * 12.5)
    assert not any(isinstance(each, tuple) for each in topic.asked)
    topic.close()


async def test_entry_has_one_record_at_least() -> None:
    """Counters of a broker may be of different moments."""
    topic = log()
    topic.added, topic.messages = 4, 1
    assert await Sizes(topic).records(ALL) == 7
    topic.close()


@pytest.mark.parametrize("added", [0, None])
@pytest.mark.parametrize("count, records", [(10, 20), (1, 2), (0, 2), (None, 2)])
async def test_first_entry_of_a_range_stands_for_all_where_nothing_was_written_since(
    count: int | None, records: int, added: int | None
) -> None:
    """The broker has loaded the topic, and counts from there; an older one does not count."""
    topic = log()
    topic.added = added
    topic.batches[3, 1] = count
    assert await Sizes(topic).records(span((3, 1, 0), (3, 3, 0))) == records
    assert topic.asked == ["internals", (3, 1)]
    topic.close()


async def test_size_of_a_record_is_that_of_the_topic() -> None:
    """The last entry stands for all, where nothing was written since; none where there is no entry."""
    topic = log()
    topic.batches[8, 1] = 10
    sizes = Sizes(topic)
    assert await sizes.record_size(PARTITION) == 1.0
    topic.ledgers = ()
    assert await sizes.record_size(PARTITION) is None
    topic.ledgers = None
    assert await sizes.record_size(PARTITION) is None
    assert await sizes.records(ALL) == 0
    topic.close()


@pytest.mark.parametrize(
    "records, cut",
    [(1, (3, 1, 0)), (14, (3, 1, 0)), (25, (3, 2, 0)), (60, (8, 0, 0)), (900, (8, 2, 0))],
)
async def test_range_is_cut_at_an_entry_about_so_many_records_after_its_start(
    records: int, cut: Place
) -> None:
    """One entry at least, and the whole range at most."""
    topic = log()
    topic.added, topic.messages = 4, 50
    assert await Sizes(topic).cut(ALL, records) == cut
    topic.close()


async def test_empty_range_is_cut_at_its_stop() -> None:
    """No entry tells how many records one has."""
    topic = log()
    assert await Sizes(topic).cut(span((3, 5, 0), (8, 0, 0)), 1) == (8, 0, 0)
    assert topic.asked == ["internals"]
    topic.close()


def test_answer_is_used_again_for_a_second_where_it_reaches_so_far() -> None:
    """One plan asks for many parts of a range; what was added since needs a new look."""

    async def main(_simulation: object) -> None:
        topic = log()
        topic.added, topic.messages = 4, 40
        sizes = Sizes(topic)
        assert await sizes.records(ALL) == 70
        await asyncio.sleep(0.875)
        assert await sizes.records(span((3, 0, 0), (3, 2, 0))) == 20
        assert await sizes.cut(ALL, 10) == (3, 1, 0)
        assert topic.asked == ["internals", "messages"]
        topic.messages = 80
        topic.ledgers = (Ledger(3, 5, 50), Ledger(8, 3, 30))
        assert await sizes.records(span((3, 0, 0), (8, 3, 0))) == 160
        assert await sizes.records(ALL) == 140
        assert topic.asked == ["internals", "messages"] * 2
        await asyncio.sleep(1.0)
        assert await sizes.records(span((3, 0, 0), (8, 3, 0))) == 160
        assert topic.asked == ["internals", "messages"] * 3
        await sizes.record_size(PARTITION)
        assert topic.asked == ["internals", "messages"] * 4
        topic.close()

    simulate(main)


async def test_without_the_rest_api_nobody_tells() -> None:
    """It says what to give."""
    sizes = Sizes(None)
    for asking in (sizes.records(ALL), sizes.cut(ALL, 1), sizes.record_size(PARTITION)):
        with pytest.raises(ConfigurationError, match="give admin_url=…"):
            await asking


# -- single entries -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place, count, here, everywhere",
    [
        ((8, 1, 0), 1, (8, 0, 0), (8, 0, 0)),
        ((8, 1, 0), 3, (8, 0, 0), (3, 3, 0)),
        ((8, 1, 5), 0, (8, 1, 0), (8, 1, 0)),
        ((3, 2, 0), 9, (3, 0, 0), (3, 0, 0)),
    ],
)
async def test_place_some_entries_before_is_in_an_earlier_ledger_if_the_rest_api_tells(
    place: Place, count: int, here: Place, everywhere: Place
) -> None:
    """Otherwise it is the ledger's first entry."""
    topic = log()
    alone, known = Entries(TOPIC, None), Entries(TOPIC, topic)
    assert [alone.are_known, known.are_known] == [False, True]
    assert await alone.before(place, count) == here
    assert await known.before(place, count) == everywhere
    assert topic.asked == (["internals"] if place[1] < count else [])
    topic.close()


@pytest.mark.parametrize(
    "first, second, ends_none",
    [
        (chunk(0, 3), chunk(1, 3), True),
        (chunk(0), chunk(1), False),
        (chunk(1), chunk(1, uuid="v"), True),
        (chunk(0), chunk(1, uuid="v"), True),
        (chunk(0), WHOLE, False),
        (chunk(0), None, False),
    ],
)
async def test_entries_that_are_all_chunks_and_end_nothing_are_known(
    first: Entry, second: Entry | None, *, ends_none: bool
) -> None:
    """One that is not there may have been anything."""
    topic = log()
    topic.entries = {(3, 4): first} if second is None else {(3, 4): first, (8, 0): second}
    bounds = (3, 4, 0), (3, 4, 0), (8, 1, 0)
    assert await Entries(TOPIC, topic).end_no_message(*bounds) is ends_none
    assert await Entries(TOPIC, None).end_no_message(*bounds) is False
    topic.close()


async def test_bounded_number_of_entries_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more of them nobody says that they end no message; the first ones are looked at for one that does."""
    monkeypatch.setattr(topic_stats, "MOST", 3)
    topic = log()
    topic.entries = {(3, number): chunk(0, 9) for number in range(4)} | {(8, 1): WHOLE}
    entries = Entries(TOPIC, topic)
    begin = 3, 0, 0
    assert await entries.end_no_message(begin, begin, (3, 3, 0)) is True
    topic.asked.clear()
    assert await entries.end_no_message(begin, begin, (3, 4, 0)) is False
    assert topic.asked == ["internals"]
    assert await entries.first_ending(begin, begin, (8, 2, 0)) is None
    assert await entries.first_ending(begin, (3, 4, 0), (8, 2, 0)) == (8, 1)
    topic.close()


async def test_chunks_before_a_range_are_looked_for_backwards_to_where_the_reader_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And through so many entries at most, whatever they are; no further than the first that is missing."""
    topic = log()
    topic.entries = {(3, 2): chunk(0), (3, 3): WHOLE, (8, 0): chunk(1)}
    entries = Entries(TOPIC, topic)
    bounds = (8, 0, 0), (8, 1, 0)
    assert await entries.first_ending((3, 0, 0), *bounds) == (8, 0)
    assert topic.asked == [(8, 0), "internals", (3, 4), (3, 3), (3, 2)]
    assert await entries.first_ending((3, 2, 0), *bounds) == (8, 0)
    assert await entries.first_ending((3, 3, 0), *bounds) is None
    monkeypatch.setattr(topic_stats, "MOST", 2)
    assert await entries.first_ending((3, 0, 0), *bounds) is None
    topic.close()


async def test_entries_of_one_ledger_are_known_without_a_look() -> None:
    """What is no chunk and is seen ends a message; the stop's entry belongs to it if it is cut."""
    topic = log()
    topic.entries[3, 2] = WHOLE
    entries = Entries(TOPIC, topic)
    begin = 3, 0, 0
    assert await entries.first_ending(begin, begin, (3, 2, 1)) == (3, 2)
    assert await entries.first_ending(begin, begin, (3, 2, 0)) is None
    assert topic.asked == [(3, 0), (3, 1), (3, 2), (3, 0), (3, 1)]
    assert await Entries(TOPIC, None).first_ending(begin, begin, (3, 2, 1)) is None
    topic.close()


@pytest.mark.parametrize(
    "place, entry, splits",
    [
        ((3, 1, 0), chunk(1), True),
        ((3, 1, 0), chunk(0), False),
        ((3, 1, 0), WHOLE, False),
        ((3, 1, 0), None, False),
        ((3, 5, 0), chunk(1), True),
        ((8, 1, 0), chunk(1), True),
        ((8, 2, 0), chunk(1), False),
    ],
)
async def test_reader_that_begins_at_a_later_chunk_splits_its_message(
    place: Place, entry: Entry | None, *, splits: bool
) -> None:
    """The first entry at or behind the place counts; behind the last one there is none."""
    topic = log()
    if entry is not None:
        topic.entries = {(3, 1): entry, (8, 0): entry, (8, 1): entry}
    assert await Entries(TOPIC, topic).splits_message(place) is splits
    assert await Entries(TOPIC, None).splits_message(place) is False
    topic.ledgers = ()
    assert await Entries(TOPIC, topic).splits_message(place) is False
    topic.close()


async def test_topic_that_is_gone_has_no_entries() -> None:
    """Nothing splits a message, and nothing ends one."""
    topic = log()
    topic.ledgers = None
    entries = Entries(TOPIC, topic)
    assert await entries.splits_message((3, 0, 0)) is False
    assert await entries.end_no_message((3, 0, 0), (3, 0, 0), (8, 1, 0)) is True
    assert await entries.first_ending((3, 0, 0), (3, 0, 0), (8, 1, 0)) is None
    topic.close()

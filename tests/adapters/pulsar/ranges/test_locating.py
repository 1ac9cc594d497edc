"""Where a start is, by a REST API and by readers that say what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import _pulsar
import pytest

from consumer_sdk.adapters.pulsar.client.admin import Admin
from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.client.topics import topic_of
from consumer_sdk.adapters.pulsar.ranges.locating import ATTEMPTS, BEGIN, READ, Locator, Survey
from consumer_sdk.adapters.pulsar.ranges.native_readers import NativeReader
from consumer_sdk.adapters.pulsar.ranges.options import NOBODY, RangeOptions
from consumer_sdk.errors import ConfigurationError, TransientAdapterError
from consumer_sdk.records import AtPosition, AtTime, Partition, Start, StartPoint

NAME = "persistent://public/default/orders"
TOPIC = Partition(NAME, "-1")
PARTS = [Partition("persistent://public/default/clicks", str(number)) for number in range(3)]
EARLIEST, LATEST = _pulsar.MessageId.earliest, _pulsar.MessageId.latest


class Native:
    """Hands out messages, each after a look in vain.

    Args:
        messages: place and time of publication, in milliseconds.
    """

    def __init__(self, messages: list[tuple[Place, int]]) -> None:
        self._messages = [None, *messages]

    def read_next(self, milliseconds: int) -> Any:
        """The next one."""
        assert milliseconds == 100
        found = self._messages.pop(0) if self._messages else None
        if found is None:
            raise _pulsar.Timeout
        (ledger, entry, index), time = found
        made = _pulsar.MessageId(-1, ledger, entry, index)
        return SimpleNamespace(message_id=lambda: made, publish_timestamp=lambda: time)


class Reader:
    """Says whether there is a message, which may be wrong after a seek.

    Attributes:
        asked: where it was opened, with how long a queue, and the times to which it was sent.
    """

    def __init__(self, *messages: tuple[Place, int], has_more: bool | None = None) -> None:
        self._native = Native(list(messages))
        self._has_more = bool(messages) if has_more is None else has_more
        self.asked: list[Any] = []
        self.reads = 0
        self.is_closed = False

    async def open(self, start: Any, configuration: Any) -> None:
        """It is there."""
        self.asked += [start, configuration]

    async def seek(self, time: float) -> None:
        """It is answered."""
        self.asked.append(time)

    async def has_more(self) -> bool:
        """As was said."""
        return self._has_more

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """In this thread."""
        self.reads += 1
        return work(self._native, *arguments)

    async def aclose(self) -> None:
        """It is gone."""
        self.is_closed = True


class Rest(Admin):
    """A REST API that says what a test wants.

    Args:
        topics: by name, what is told of each partition.
        whole: names of topics that are partitioned.
    """

    def __init__(self, topics: Mapping[str, Any], *whole: str) -> None:
        self._topics = topics
        self._whole = whole
        self.asked: list[tuple[str, str]] = []

    async def of_all(self, topic: str) -> dict[str, dict[str, Any]]:
        self.asked.append(("of_all", topic))
        assert topic in self._whole
        return {name: found for name, found in self._topics.items() if name.startswith(topic)}

    async def internals(self, topic: str) -> dict[str, Any] | None:
        self.asked.append(("internals", topic))
        return self._topics.get(topic)

    async def after_last(self, topic: str) -> Place | None:
        self.asked.append(("after_last", topic))
        found = self._topics.get(topic)
        return None if found is None else found["end"]


def told(ledger: int, *, read: int = 2, written: int = 4, end: int | None = None) -> dict[str, Any]:
    """What the REST API tells of a log that begins with a ledger."""
    return {
        "ledgers": [{"ledgerId": ledger, "entries": 5, "size": 50}],
        "cursors": {"g": {"markDeletePosition": f"{ledger}:{read}"}},
        "lastConfirmedEntry": f"{ledger}:{written}",
        "end": (ledger, written + 1 if end is None else end, 0),
    }


def locator(readers: list[Reader], admin: Admin | None = None, name: str = NOBODY) -> Locator:
    """Takes the readers in turn."""
    left = iter(readers)

    def reader_of(topic: str) -> NativeReader:
        assert topic == NAME
        return cast("NativeReader", next(left))

    pulsar = SimpleNamespace(subscription=name)
    options = SimpleNamespace(pulsar=pulsar, for_reader=lambda queue: queue)
    return Locator(cast("RangeOptions", options), admin, reader_of)


# -- with readers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at, found", [(AtPosition((3, 4, 5)), (3, 4, 5)), (StartPoint.ENDED, None)]
)
async def test_a_position_stands_for_itself_and_an_end_for_nothing(
    at: Start, found: Place | None
) -> None:
    """Nobody is asked."""
    assert await locator([]).find_all([TOPIC], at) == {TOPIC: found}


@pytest.mark.parametrize("time", [1_000, 1_001])
async def test_a_time_is_the_first_message_published_at_or_after_it(time: int) -> None:
    """One that is older was sent before the seek."""
    reader = Reader(((7, 1, 4), 999), ((7, 9, 2), time), ((7, 9, 3), 2_000))
    assert await locator([reader]).find(TOPIC, AtTime(1.0)) == (7, 9, 2)
    assert reader.asked == [EARLIEST, 1, 1.0]
    assert reader.is_closed


async def test_the_first_time_of_all_is_a_time() -> None:
    """All that was ever published is as new."""
    reader = Reader(((7, 1, 4), 0))
    assert await locator([reader]).find(TOPIC, AtTime(0.0)) == (7, 1, 4)
    assert reader.asked == [EARLIEST, 1, 0.0]


async def test_the_earliest_is_the_begin_of_the_first_entry() -> None:
    """However old it is; of a topic without a message it is below all that may come."""
    reader = Reader(((7, 1, 4), 0))
    assert await locator([reader]).find(TOPIC, StartPoint.EARLIEST) == (7, 1, 0)
    assert (reader.asked, reader.is_closed) == ([EARLIEST, 1], True)
    assert await locator([Reader()]).find(TOPIC, StartPoint.EARLIEST) == BEGIN == (0, 0, 0)


async def test_the_latest_is_behind_the_last_entry_and_never_goes_back() -> None:
    """Nobody tells where a topic ends that was emptied."""
    readers = [Reader(), Reader(((7, 1, 4), 0)), Reader(), Reader(((8, 0, 0), 0))]
    made = locator(readers)
    found = [await made.find(TOPIC, StartPoint.LATEST) for _ in readers]
    assert found == [BEGIN, (7, 2, 0), (7, 2, 0), (8, 1, 0)]
    assert readers[1].asked == [LATEST, 1]


async def test_a_message_that_does_not_come_is_asked_for_again() -> None:
    """The client forgot the seek of the first reader, and remembers that of the second."""
    readers = [Reader(has_more=True), Reader(has_more=False)]
    assert await locator(readers).find(TOPIC, AtTime(1.0)) is None
    assert [each.reads for each in readers] == [READ, 0]
    assert all(each.is_closed for each in readers)


async def test_a_message_that_never_comes_is_an_error() -> None:
    """It is not taken for none: behind it a start would lose records."""
    readers = [Reader(has_more=True) for _ in range(ATTEMPTS)]
    with pytest.raises(TransientAdapterError, match="its last message does not come"):
        await locator(readers).find(TOPIC, AtTime(1.0))
    assert all(each.is_closed for each in readers)


@pytest.mark.parametrize(
    "name, has_admin, text",
    [(NOBODY, True, "subscription="), (NOBODY, False, "subscription="), ("g", False, "admin_url=")],
)
def test_where_a_subscription_stands_needs_its_name_and_the_rest_api(
    name: str,
    has_admin: bool,  # noqa: FBT001 - a column of the table
    text: str,
) -> None:
    """Other starts need neither."""
    made = locator([], Rest({}) if has_admin else None, name)
    with pytest.raises(ConfigurationError, match=f"give {text}"):
        made.check(StartPoint.BROKER)
    for at in (StartPoint.EARLIEST, StartPoint.LATEST, AtTime(1.0), AtPosition((1, 2, 3))):
        made.check(at)
    locator([], Rest({}), "g").check(StartPoint.BROKER)


# -- with the REST API ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at, place, asked",
    [
        (StartPoint.EARLIEST, (9, 0, 0), "internals"),
        (StartPoint.LATEST, (9, 5, 0), "after_last"),
        (StartPoint.BROKER, (9, 3, 0), "internals"),
    ],
)
async def test_a_topic_alone_is_asked_for_by_itself(at: Start, place: Place, asked: str) -> None:
    """None where it was deleted."""
    rest = Rest({NAME: told(9)})
    assert await locator([], rest, "g").find_all([TOPIC], at) == {TOPIC: place}
    assert rest.asked == [(asked, NAME)]
    assert await locator([], Rest({}), "g").find_all([TOPIC], at) == {TOPIC: None}


@pytest.mark.parametrize(
    "at, entries",
    [(StartPoint.EARLIEST, 0), (StartPoint.LATEST, 5), (StartPoint.BROKER, 3)],
)
async def test_partitions_of_a_topic_are_asked_for_together(at: Start, entries: int) -> None:
    """And each other topic by itself, also a partition that the answer leaves out."""
    topics = {topic_of(each): told(10 + int(each.id)) for each in PARTS[:2]}
    rest = Rest({NAME: told(9)} | topics, PARTS[0].stream)
    found = await locator([], rest, "g").find_all([PARTS[0], TOPIC, *PARTS[1:]], at)
    assert found == {
        PARTS[0]: (10, entries, 0),
        PARTS[1]: (11, entries, 0),
        PARTS[2]: None,
        TOPIC: (9, entries, 0),
    }
    assert [topic for kind, topic in rest.asked if kind == "of_all"] == [PARTS[0].stream]
    alone = [topic for kind, topic in rest.asked if kind == "internals"]
    assert set(alone) <= {NAME, topic_of(PARTS[2])}
    assert len(set(rest.asked)) == len(rest.asked)


async def test_two_partitions_of_a_topic_are_several() -> None:
    """One request for both."""
    topics = {topic_of(each): told(7) for each in PARTS[:2]}
    rest = Rest(topics, PARTS[0].stream)
    found = await Survey(rest, "g").find(PARTS[:2], StartPoint.EARLIEST)
    assert found == dict.fromkeys(PARTS[:2], (7, 0, 0))
    assert len(rest.asked) == 1
    assert await Survey(rest, "g").find(PARTS[:1], StartPoint.EARLIEST) == {}


async def test_a_time_is_no_place_that_the_rest_api_tells() -> None:
    """Nobody is asked for it there."""
    rest = Rest({}, PARTS[0].stream)
    assert await Survey(rest, "g").find(PARTS, AtTime(1.0)) == {}
    assert rest.asked == []


async def test_a_topic_without_a_ledger_begins_below_all_that_may_come() -> None:
    """And nobody's subscription stands anywhere."""
    empty = told(9) | {"ledgers": [], "cursors": {}}
    topics = {NAME: empty, **{topic_of(each): empty for each in PARTS}}
    made = locator([], Rest(topics, PARTS[0].stream), "g")
    assert await made.find_all([TOPIC], StartPoint.EARLIEST) == {TOPIC: BEGIN}
    assert await made.find_all(PARTS, StartPoint.EARLIEST) == dict.fromkeys(PARTS, BEGIN)
    assert await made.find_all(PARTS, StartPoint.BROKER) == dict.fromkeys(PARTS)


async def test_end_of_a_partition_that_was_deleted_meanwhile_is_none() -> None:
    """(1) All are asked for together; (2) one is deleted; (3) it is asked for its readable end."""
    topics = {topic_of(each): told(7) for each in PARTS}
    topics[topic_of(PARTS[1])]["end"] = None
    found = await Survey(Rest(topics, PARTS[0].stream), "g").find(PARTS, StartPoint.LATEST)
    assert found == {PARTS[0]: (7, 5, 0), PARTS[1]: None, PARTS[2]: (7, 5, 0)}

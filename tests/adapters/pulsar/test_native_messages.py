"""What a message asks the client's for, and when it lets that go; places by a look at few ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any

import _pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.pulsar.client.ids import Place
from consumer_sdk.adapters.pulsar.consumer import messages as contents
from consumer_sdk.adapters.pulsar.consumer.messages import (
    LARGE,
    STRIDE,
    Delivery,
    NativeMessage,
    Unpacker,
    ascending,
    cuts_of,
    id_of,
)
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.records import Message, Redelivery
from consumer_sdk.trackers import QueueTracker
from tests.trackers.building import ASSIGNMENT, NOW, WALL, make_run


def raw(value: bytes = b"v") -> Any:
    """A message of the client's."""
    builder = _pulsar.MessageBuilder()
    builder.content(value)
    builder.partition_key("k")
    builder.property("n", "1")
    builder.event_timestamp(7)
    return builder.build()


def native(value: bytes = b"v") -> NativeMessage:
    """A message of ours."""
    message = Unpacker().messages_of(raw(value), [])[0].messages[0]
    assert isinstance(message, NativeMessage)
    return message


def test_message_has_what_the_client_has_whether_it_was_let_go_or_not() -> None:
    """Each attribute is read when it is wanted, or when the client's message is let go."""
    for message in (native(), native()):
        assert (message.key, message.headers, message.timestamp) == (b"k", (("n", b"1"),), 7)
        message.keep()
    kept = native()
    kept.keep()
    assert kept.raw is None
    assert (kept.key, kept.headers, kept.timestamp) == (b"k", (("n", b"1"),), 7)


def test_native_is_the_message_until_that_lets_go_of_the_clients() -> None:
    """Then it is the client's id, which is small."""
    message = native()
    assert message.native is message
    assert isinstance(id_of(message), _pulsar.MessageId)
    assert message.keep() is message.native is id_of(message) is message.keep()
    assert isinstance(message.native, _pulsar.MessageId)


@pytest.mark.parametrize("value", [None, b"", b"v"])
def test_value_is_what_was_sent(value: bytes | None) -> None:
    """A null is told from no bytes."""
    builder = _pulsar.MessageBuilder()
    if value is None:
        builder.set_null_value()
    else:
        builder.content(value)
    (message,) = Unpacker().messages_of(builder.build(), [])[0].messages
    assert message.value == value


def test_details_are_read_before_the_clients_message_is_let_go() -> None:
    """Or when they are wanted."""
    kept, read = native(), native()
    kept.keep()
    assert kept.details == read.details
    assert kept.details.event_time == 7


def test_redelivery_is_a_whole_copy() -> None:
    """Of a message whose attributes nobody had looked at."""
    copy = Redelivery.of(native(), 2)
    assert (copy.key, copy.headers, copy.timestamp) == (b"k", (("n", b"1"),), 7)
    assert isinstance(id_of(copy.native), _pulsar.MessageId)


def test_attribute_that_no_message_has_is_an_error() -> None:
    """Also one that is not set yet."""
    for name in ("nothing", "assignment"):
        with pytest.raises(AttributeError, match=name):
            getattr(native(), name)


def test_message_that_another_thread_lets_go_is_read_all_the_same() -> None:
    """An attribute was not set when it was looked up, and the client's message was gone then."""
    message = native()
    message.keep()
    assert NativeMessage.__getattr__(message, "key") == b"k"
    assert NativeMessage.__getattr__(message, "details") == message.details


@pytest.mark.parametrize("name", ["raw", "position", "nothing"])
def test_message_of_nothing_has_nothing_and_says_what(name: str) -> None:
    """Nobody looks for the client's message in it."""
    with pytest.raises(AttributeError, match=f"NativeMessage has no '{name}' yet"):
        getattr(NativeMessage(), name)


def test_texts_that_are_none_are_bytes() -> None:
    """A key or a property may be any bytes; the client reads them as UTF-8 alone."""
    builder = _pulsar.MessageBuilder()
    builder.content(b"v").partition_key(b"\xff").property("n", "1")
    (message,) = Unpacker().messages_of(builder.build(), [])[0].messages
    assert (message.key, message.headers) == (b"\xff", (("n", b"1"),))


def test_record_without_an_event_time_has_that_of_its_publishing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker keeps no other one."""
    monkeypatch.setattr(contents, "_publish_time_of", lambda _raw: 9)
    (without,) = (
        Unpacker().messages_of(_pulsar.MessageBuilder().content(b"v").build(), [])[0].messages
    )
    assert (without.timestamp, native().timestamp) == (9, 7)


def test_parts_of_a_delivery_have_all_of_its_bytes() -> None:
    """In shares, as nobody counts them anew."""
    messages = [native() for _ in range(3)]
    places = [(1, number, 0) for number in range(3)]
    parts = ascending(Delivery(messages, 10, places, messages), [1, 2])
    assert [part.size for part in parts] == [3, 3, 4]
    assert [part.positions for part in parts] == [[place] for place in places]
    assert [part.messages for part in parts] == [[message] for message in messages]
    assert [part.natives for part in parts] == [[message] for message in messages]


def test_what_somebody_has_set_is_not_read_over() -> None:
    """By a look at another attribute, or by letting go."""
    message = native()
    message.headers = (("mine", b"1"),)
    assert (message.timestamp, message.headers) == (7, (("mine", b"1"),))
    message = native()
    message.key = b"mine"
    message.keep()
    assert (message.key, message.timestamp) == (b"mine", 7)


def test_large_messages_hold_nothing_of_the_clients() -> None:
    """Its payloads would be in memory twice."""
    small, large = native(bytes(LARGE)), native(bytes(LARGE + 1))
    assert small.raw is not None
    assert large.raw is None


@pytest.mark.parametrize("size, kept", [(0, 0), (5, 0), (8, 0), (9, 1), (1000, 1)])
def test_one_record_of_a_large_batch_holds_nothing_of_the_clients(size: int, kept: int) -> None:
    """What is left of an entry comes alone: its batch's payload would be in memory for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "place_of", lambda _: (1, 2, 3))
        patch.setattr(contents, "batch_size", lambda _: size)
        assert (native().raw is None) == kept


def test_part_of_an_entry_holds_the_clients_messages_if_it_is_large_enough() -> None:
    """Each entry by itself: here 200 of one, ten of another, and 40 of a third."""
    places = [(1, entry, at) for entry, many in ((1, 200), (2, 10), (3, 40)) for at in range(many)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "_places_of", lambda _: (places, []))
        patch.setattr(contents, "batch_size", lambda _: 300)
        [delivery] = Unpacker().messages_of(raw(), [raw() for _ in places[1:]])
    held = {m.position[1] for m in delivery.messages if m.native is m}
    assert held == {1, 3}


@pytest.mark.parametrize("many, is_held", [(127, False), (128, True), (130, True)])
def test_many_messages_of_an_entry_are_enough_of_it(many: int, *, is_held: bool) -> None:
    """However long it is; what the client has is acked with its message, else with the entry."""
    places = [(1, 2, at) for at in range(many)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "_places_of", lambda _: (places, []))
        patch.setattr(contents, "batch_size", lambda _: 2000)
        [delivery] = Unpacker().messages_of(raw(), [raw() for _ in places[1:]])
    assert {message.native is message for message in delivery.messages} == {is_held}
    natives = zip(delivery.natives, delivery.messages, strict=True)
    assert all(each is message.native for each, message in natives)


@pytest.mark.parametrize("after, is_same", [(2, True), (5, True), (1, False), (0, False)])
def test_entry_that_begins_again_is_another_one(after: int, *, is_same: bool) -> None:
    """It came anew, over another connection; one that goes on is the one that was begun."""
    unpacker = Unpacker()
    handles = []
    for places in ([(1, 2, 0), (1, 2, 1)], [(1, 2, after)]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(contents, "_places_of", lambda _, found=tuple(places): (list(found), []))
            patch.setattr(contents, "batch_size", lambda _: 6)
            [delivery] = unpacker.messages_of(raw(), [raw() for _ in places[1:]])
        handles.append(delivery.messages[0].handle)  # type: ignore[attr-defined] # of ours
    assert (handles[0] is handles[1]) is is_same


def test_place_that_comes_twice_is_cut() -> None:
    """The second one is of another delivery."""
    assert cuts_of([(1, 2, 0), (1, 2, 0), (1, 2, 1)], [1, 2]) == [1]


def test_message_that_stays_unsettled_holds_the_payload_of_its_batch_no_longer() -> None:
    """One record of each batch that nobody settles would keep all of them in memory."""
    tracker = QueueTracker(make_run([]).assignment, chunk_bits=2)
    messages: list[Message] = [native() for _ in range(12)]
    for at, message in enumerate(messages):
        message.position = (1, at, 0)
        run = make_run([])
        run.messages.append(message)
        tracker.track(run, NOW)
    held = [message.native is message for message in messages]
    assert held == [False] * 4 + [True] * 8


def test_record_that_comes_again_while_it_is_in_flight_holds_no_payload() -> None:
    """Neither of its deliveries: the first one may be in a handler for hours."""
    tracker = QueueTracker(make_run([]).assignment)
    deliveries = [native(), native()]
    for message in deliveries:
        message.position = (1, 1, 0)
        run = make_run([])
        run.messages.append(message)
        tracker.track(run, NOW)
    assert [message.raw for message in deliveries] == [None, None]


def test_flush_that_failed_holds_no_payloads() -> None:
    """What is settled waits for as long as the broker is away."""
    tracker = QueueTracker(make_run([]).assignment)
    run, message = make_run([]), native()
    message.position = (1, 1, 0)
    run.messages.append(message)
    tracker.ack(tracker.track(run, NOW).first)
    flush = tracker.flush(NOW, WALL, force=True)
    assert flush is not None
    assert flush.settled[0][1] is message
    tracker.flush_failed(flush)
    assert message.raw is None
    again = tracker.flush(NOW, WALL, force=True)
    assert again is not None
    assert list(again.settled) == [((1, 1, 0), message.handle)]


ENTRIES = st.lists(
    st.one_of(
        st.just([LAST_BATCH_INDEX]),
        st.integers(1, 3 * STRIDE).map(lambda size: list(range(size))),
        st.sets(st.integers(0, 2 * STRIDE), min_size=1).map(sorted),  # some were acked before
    ),
    min_size=1,
    max_size=8,
)


@given(ENTRIES)
def test_places_are_those_of_the_ids_whatever_is_missing(entries: list[list[int]]) -> None:
    """Of whole entries, of entries with gaps, and of records that were sent by themselves."""
    places = [(1, entry, index) for entry, found in enumerate(entries) for index in found]
    found, _ = _places_of(places)
    assert found == places


@given(st.integers(0, 8), st.integers(0, 2 * STRIDE), ENTRIES)
def test_what_comes_again_after_the_first_begins_a_delivery_of_its_own(
    entry: int, index: int, entries: list[list[int]]
) -> None:
    """The connection was lost between the message that was waited for and the others."""
    first = (1, entry, index)
    others = [(1, at, index) for at, found in enumerate(entries) for index in found]
    with _looks():
        found, starts = contents._places_of([first, *others])
    parts = ascending(_delivery(found), cuts_of(found, starts))
    assert [part.positions for part in parts] == (
        [[first], others] if others[0] <= first else [[first, *others]]
    )


@given(st.data(), ENTRIES)
def test_entries_in_any_order_are_cut_where_they_descend(
    data: st.DataObject, entries: list[list[int]]
) -> None:
    """A shared subscription gets them as they are free: some of before among newer ones."""
    order = data.draw(st.permutations(list(enumerate(entries))))
    places = [(1, entry, index) for entry, found in order for index in found]
    with _looks():
        found, starts = contents._places_of(places)
    parts = [part.positions for part in ascending(_delivery(found), cuts_of(found, starts))]
    assert list(chain(*parts)) == places
    assert all(one < other for part in parts for one, other in pairwise(part))
    assert all(one[-1] >= other[0] for one, other in pairwise(parts))


def test_places_of_whole_entries_take_a_look_at_few_ids() -> None:
    """An id costs as much as all else of a record."""
    places = [(1, entry, index) for entry in range(2) for index in range(1000)]
    found, looks = _places_of(places)
    assert found == places
    assert looks < len(places) / 8


def _places_of(places: list[Place]) -> tuple[list[Place], int]:
    """Where the messages of these places are found to be, and after how many looks."""
    with _looks() as looks:
        return contents._places_of(places)[0], len(looks)


@contextmanager
def _looks() -> Iterator[list[Place]]:
    """Places stand for messages; lists those that are looked at."""
    looks: list[Place] = []

    def look(place: Place) -> Place:
        looks.append(place)
        return place

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "_id_of", look)
        patch.setattr(contents, "place_of", lambda place: place)
        yield looks


def _delivery(places: list[Place]) -> Delivery:
    messages = [Message.make(ASSIGNMENT, place, b"") for place in places]
    return Delivery(messages, len(places), places, messages)

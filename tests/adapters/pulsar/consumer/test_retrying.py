"""Records that are consumed later: the copy that is written, where to, and how often."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from consumer_sdk.adapters.pulsar.client.outgoing import OutgoingRecord, SchemaOf
from consumer_sdk.adapters.pulsar.client.producers import Encryption
from consumer_sdk.adapters.pulsar.consumer import retrying
from consumer_sdk.adapters.pulsar.consumer.retrying import RetryTopics
from consumer_sdk.adapters.pulsar.details import PulsarDetails
from consumer_sdk.checkpoints.positions import LAST_BATCH_INDEX
from consumer_sdk.records import Assignment, Headers, Message, Partition
from consumer_sdk.trackers import Reject

ORDERS = "persistent://public/default/orders"
RETRY = f"{ORDERS}-billing-RETRY"
DETAILS = PulsarDetails(
    publish_time=9,
    event_time=None,
    producer_name="p",
    schema_version=3,
    is_encrypted=False,
    redelivery_count=0,
)


class Producers:
    """Keeps what is written."""

    made: ClassVar[list[Producers]] = []

    def __init__(self, connection: object, *, encryption: Any) -> None:
        self.connection, self.encryption = connection, encryption
        self.sent: list[tuple[str, OutgoingRecord]] = []
        self.is_closed = False
        self.made.append(self)

    async def send(self, topic: str, record: OutgoingRecord) -> None:
        """It is stored."""
        self.sent.append((topic, record))

    async def aclose(self) -> None:
        """No more."""
        self.is_closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Producers]:
    """All that were made, in order."""
    monkeypatch.setattr(retrying, "Producers", Producers)
    monkeypatch.setattr(Producers, "made", [])
    return Producers.made


def topics(*keys: str, limit: int = 3) -> RetryTopics:
    """Of the subscription ``billing``."""
    options: Any = SimpleNamespace(
        connection="connection",
        subscription="billing",
        retry_limit=limit,
        crypto_key_reader="reader",
        encryption_keys=keys,
    )
    return RetryTopics(options)


class Read(Message):
    """A record that was read from Pulsar."""

    __slots__ = ("details", "ordering_key")


def message(headers: Headers = (), stream: str = ORDERS) -> Message:
    """A record of the fifth partition, which was a batch of its own."""
    made = Read()
    made.assignment = Assignment(Partition(stream, "4"), 1)
    made.position = 17, 5, LAST_BATCH_INDEX
    made.key, made.value, made.headers, made.timestamp = b"key", b"value", headers, 9
    made.ordering_key, made.details = b"order", DETAILS
    return made


async def test_copy_is_the_record_with_its_count_its_delay_and_its_origin(
    made: list[Producers],
) -> None:
    """The time of publishing is no event time, and the schema is that of the topic it was read from."""
    await topics().send(message((("trace", b"1"),)), 1.2345)
    ((topic, record),) = made[0].sent
    assert topic == RETRY
    assert record == OutgoingRecord(
        key=b"key",
        value=b"value",
        properties={
            "trace": "1",
            "REAL_TOPIC": ORDERS,
            "REAL_SUBSCRIPTION": "billing",
            "ORIGIN_MESSAGE_ID": "17:5:4",
            "RECONSUMETIMES": "1",
            "DELAY_TIME": "1234",
        },
        ordering_key=b"order",
        timestamp=None,
        delay=1.2345,
        schema=SchemaOf(ORDERS, 3),
    )


async def test_copy_of_a_copy_keeps_its_first_origin_and_goes_to_the_same_topic(
    made: list[Producers],
) -> None:
    """Its count goes on, and the new delay stands for the old one."""
    headers = (
        ("RECONSUMETIMES", b"2"),
        ("DELAY_TIME", b"7"),
        ("REAL_TOPIC", b"first"),
        ("ORIGIN_MESSAGE_ID", b"1:2:3"),
    )
    await topics().send(message(headers, RETRY), 2)
    ((topic, record),) = made[0].sent
    assert topic == RETRY
    assert record.properties == {
        "RECONSUMETIMES": "3",
        "DELAY_TIME": "2000",
        "REAL_TOPIC": "first",
        "REAL_SUBSCRIPTION": "billing",
        "ORIGIN_MESSAGE_ID": "1:2:3",
    }


async def test_record_that_was_consumed_later_as_often_as_it_may_is_rejected(
    made: list[Producers],
) -> None:
    """Nothing is written."""
    with pytest.raises(Reject, match="it was to be consumed later 3 times before"):
        await topics().send(message((("RECONSUMETIMES", b"3"),)), 1)
    assert made[0].sent == []


@pytest.mark.parametrize("keys", [(), ("a", "b")])
async def test_copies_are_encrypted_where_there_are_keys(
    made: list[Producers], keys: tuple[str, ...]
) -> None:
    """With the same ones as other records; closing ends the producers."""
    retry = topics(*keys)
    (producers,) = made
    assert producers.connection == "connection"
    assert producers.encryption == (Encryption("reader", keys) if keys else None)
    await retry.aclose()
    assert producers.is_closed

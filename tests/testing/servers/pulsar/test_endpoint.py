"""Claims about what tests ask of a Pulsar, on the real one."""

import uuid

import pytest

from consumer_sdk.testing.servers import ExternalPulsar, PulsarEndpoint, ServerError
from tests.testing.servers.pulsar.reading import values_of

pytestmark = pytest.mark.pulsar


@pytest.fixture
def topic() -> str:
    """Give the name of a topic that nobody else has."""
    return f"topic-{uuid.uuid4()}"


async def test_created_topic_is_listed_until_it_is_deleted(
    pulsar_server: PulsarEndpoint, topic: str
) -> None:
    """A second of the same name is refused with Pulsar's words; one in use is deleted too."""
    await pulsar_server.create_topic(topic)
    await pulsar_server.create_subscription(topic, "readers")
    assert f"persistent://public/default/{topic}" in await pulsar_server.topics()
    assert await pulsar_server.partitions(topic) == 0
    with pytest.raises(ServerError, match="409 This topic already exists"):
        await pulsar_server.create_topic(topic)
    await pulsar_server.delete_topic(topic)
    with pytest.raises(ServerError, match="404"):
        await pulsar_server.partitions(topic)


async def test_partitioned_topic_is_one_to_its_caller(
    pulsar_server: PulsarEndpoint, topic: str
) -> None:
    """Its subscriptions, backlog, unload, reset, end and removal are those of all partitions."""
    name = f"persistent://public/default/{topic}"
    await pulsar_server.create_topic(name, 3)
    parts = [f"{name}-partition-{index}" for index in range(3)]
    assert [each for each in await pulsar_server.topics() if topic in each] == parts
    assert await pulsar_server.partitions(topic) == len(await pulsar_server.stats(topic)) == 3
    await pulsar_server.create_subscription(topic, "readers")
    ids = await pulsar_server.produce(topic, [b"any"] * 30)
    assert {each.partition() for each in ids} == {0, 1, 2}
    assert await pulsar_server.backlog(name, "readers") == 30
    await pulsar_server.unload(topic)
    await pulsar_server.reset_cursor(topic, "readers", "latest")
    assert await pulsar_server.backlog(topic, "readers") == 0
    await pulsar_server.terminate(topic)
    with pytest.raises(ServerError, match="TopicTerminated"):
        await pulsar_server.produce(topic, [b"late"])
    await pulsar_server.delete_topic(topic)
    assert not [each for each in await pulsar_server.topics() if topic in each]


@pytest.mark.parametrize("batch, entries", [(False, 5), (True, 1)])
async def test_produced_messages_are_separate_entries_or_one(
    pulsar_server: PulsarEndpoint, topic: str, *, batch: bool, entries: int
) -> None:
    """Ids and values come in the order of the values; the backlog counts entries."""
    await pulsar_server.create_subscription(topic, "readers")
    values = [b"%d" % index for index in range(5)]
    ids = await pulsar_server.produce(topic, values, batch=batch)
    assert len({each.entry_id() for each in ids}) == entries
    assert sorted(ids) == ids
    assert await pulsar_server.backlog(topic, "readers") == entries
    assert await values_of(pulsar_server, topic) == values


async def test_messages_of_one_key_lie_in_one_partition(
    pulsar_server: PulsarEndpoint, topic: str
) -> None:
    """One key is for all messages; a list has one for each."""
    await pulsar_server.create_topic(topic, 4)
    same = await pulsar_server.produce(topic, [b"any"] * 8, key="same")
    assert len({each.partition() for each in same}) == 1
    keys = [f"key-{index}" for index in range(8)]
    others = await pulsar_server.produce(topic, [b"any"] * 8, key=keys)
    again = await pulsar_server.produce(topic, [b"any"] * 8, key=keys)
    assert len({each.partition() for each in others}) > 1
    assert [each.partition() for each in again] == [each.partition() for each in others]
    with pytest.raises(ValueError, match="shorter"):
        await pulsar_server.produce(topic, [b"any"] * 9, key=keys)


async def test_subscription_begins_and_is_reset_where_asked(
    pulsar_server: PulsarEndpoint, topic: str
) -> None:
    """The begin, the end, and a message in between; names may hold a slash."""
    await pulsar_server.create_topic(topic)
    third = (await pulsar_server.produce(topic, [b"any"] * 5))[2]
    await pulsar_server.create_subscription(topic, "all/of them")
    await pulsar_server.create_subscription(topic, "later", "latest")
    place = (third.ledger_id(), third.entry_id())
    await pulsar_server.create_subscription(topic, "between", place)
    assert await pulsar_server.subscriptions(topic) == ["all/of them", "between", "later"]
    backlogs = [await pulsar_server.backlog(topic, name) for name in ("all/of them", "later")]
    assert backlogs == [5, 0]
    await pulsar_server.reset_cursor(topic, "later", place)
    assert await pulsar_server.backlog(topic, "later") == 3
    assert await pulsar_server.backlog(topic, "between") == 3


async def test_pulsar_out_of_reach_is_told() -> None:
    """Where it was looked for is in the error."""
    nowhere = ExternalPulsar("127.0.0.1:1", "http://127.0.0.1:1")
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:1.*refused"):
        await nowhere.topics()

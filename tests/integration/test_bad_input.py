"""What cannot work is a typed error that says what to do, before any record is fetched."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from consumer_sdk import (
    CheckpointFormatError,
    ConfigurationError,
    Consumer,
    ConsumerSdkError,
    Message,
    MissingExtraError,
    StoreError,
    TransientAdapterError,
)
from consumer_sdk.adapters.kafka.dead_letters import KafkaDeadLetters
from consumer_sdk.stores import LocalStore, MemoryStore
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.integration.field import PATIENCE, Field

WITHOUT_CLIENT = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == 'aiokafka':
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Blocker())
from consumer_sdk import Consumer, MissingExtraError
from consumer_sdk.dead_letters import LocalDeadLetters
from consumer_sdk.stores import LocalStore
try:
    Consumer('kafka://127.0.0.1:9092/orders?group=billing')
except MissingExtraError as error:
    print(error)
"""


async def _run(consumer: Consumer) -> None:
    """Runs until the error; a record that is handed out is one too many."""

    async def handle(message: Message) -> None:
        raise AssertionError(message)

    async with asyncio.timeout(PATIENCE):
        await consumer.run(handle, handle_signals=False)


@pytest.mark.parametrize(
    "url,advice",
    [
        ("kafak://a:1/orders", "no adapter has the scheme"),
        ("kafka://a:1", "write kafka://host:port"),
        ("kafka://a:1/orders?grup=g", "did you mean group="),
        ("kafka://a:1/orders?group=g&session_timeout=soon", "give seconds, above 0"),
        ("kinesis://us-east-1?group=g", "write kinesis://region/stream"),
        ("kinesis://key:secret@us-east-1/orders?group=g", "write kinesis://region/stream"),
        ("kinesis://us-east-1/orders?grup=g", "unknown option grup="),
        ("kinesis://us-east-1/orders?group=", "give a name, or None"),
        ("kinesis://us-east-1/orders?group=g&group=h", "given twice"),
        ("kinesis://us-east-1/orders?group=g&lease_duration=soon", "give seconds, above 0"),
        ("kinesis://us-east-1/orders?group=g&lease_duration=nan", "give seconds, above 0"),
        ("kinesis://us-east-1/orders?group=g&poll_interval=-1", "give seconds, above 0"),
        ("kinesis://us-east-1/orders?group=g&buffer_bytes=0", "give a whole number, 1 or more"),
        ("kinesis://us-east-1/orders?group=g&request_timeout=inf", "give seconds, above 0"),
        ("kinesis://us-east-1/orders?group=g&fast_decode=perhaps", "give True or False"),
    ],
)
def test_wrong_url_or_option_is_refused_when_the_consumer_is_built(url: str, advice: str) -> None:
    """A typing mistake needs no broker to be found."""
    with pytest.raises(ConfigurationError, match=advice):
        Consumer(url)


def test_missing_client_names_its_extra_and_everything_else_works_without_it() -> None:
    """As in an environment where it was never installed."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CLIENT], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(MissingExtraError("aiokafka", "kafka"))


async def test_broker_that_cannot_be_reached_is_named() -> None:
    """Within the connect timeout, with the address."""
    (port,) = free_ports(1)
    url = f"kafka://{HOST}:{port}/orders?group=g&connect_timeout=1"
    with pytest.raises(TransientAdapterError, match=f"{HOST}:{port}"):
        await _run(Consumer(url))


@pytest.mark.kafka
async def test_topic_that_does_not_exist_is_named_and_not_made(field: Field) -> None:
    """Also where the broker would make it, and an empty topic would look like an idle one."""
    name = f"missing-{field.kafka.uid}"
    with pytest.raises(ConfigurationError, match=f"topic '{name}' does not exist"):
        await _run(field.consumer(name))
    assert name not in await field.kafka.admin.list_topics()


@pytest.mark.kafka
async def test_store_that_cannot_be_read_is_named_before_the_group_is_joined(
    field: Field, tmp_path: Path
) -> None:
    """It never means "no checkpoint yet"."""
    await field.create()
    await field.append(1)
    path = tmp_path / "checkpoints.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match=str(path)):
        await _run(field.consumer(store=LocalStore(path)))
    groups = await field.kafka.admin.list_consumer_groups()
    assert field.group not in {name for name, _protocol in groups}


@pytest.mark.kafka
async def test_checkpoint_that_cannot_be_read_is_named_and_left_as_it_is(field: Field) -> None:
    """Starting over would repeat everything, and overwrite what may be repaired."""
    await field.create()
    await field.append(3)
    store = MemoryStore()
    async with asyncio.timeout(PATIENCE), field.consumer(store=store) as consumer:
        (await anext(consumer)).ack()
        await consumer.flush()
    (partition,) = await store.list(field.group)
    text = (await store.peek(field.group, [partition]))[partition]
    assert text
    torn = text.replace('"0"', '"2"')
    assert torn != text
    await _overwrite(store, field, torn)
    with pytest.raises(CheckpointFormatError):
        await _run(field.consumer(store=store))
    assert (await store.peek(field.group, [partition]))[partition] == torn


async def _overwrite(store: MemoryStore, field: Field, text: str) -> None:
    from consumer_sdk.abc import StoreItem
    from consumer_sdk.records import Assignment

    (partition,) = await store.list(field.group)
    assignment = Assignment(partition, epoch=10**9)
    await store.claim(field.group, [assignment])
    await store.save(field.group, [StoreItem(assignment, text)])


@pytest.mark.kafka
async def test_dead_letter_topic_that_has_to_exist_is_looked_for_at_start(field: Field) -> None:
    """Not found out when the first poison record comes."""
    await field.create()
    await field.append(1)
    letters = KafkaDeadLetters(
        f"none-{field.kafka.uid}", bootstrap_servers=field.kafka.servers, creates_topics=False
    )
    with pytest.raises(ConsumerSdkError, match="does not exist"):
        await _run(field.consumer(dead_letters=letters))

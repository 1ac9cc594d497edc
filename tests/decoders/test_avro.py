"""`avro_decoder`: the registry is asked in time, once, and an outage of it rejects nothing."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from typing import Any

import fastavro
import pytest

from consumer_sdk import Message, RetryPolicy
from consumer_sdk.decoders import avro_decoder
from consumer_sdk.decoders.avro import UNKNOWN, AvroDecoder
from consumer_sdk.errors import ConfigurationError, UnknownSchemaError
from consumer_sdk.schema_registry import SchemaRegistry
from consumer_sdk.testing import deliver
from tests.schema_registry.registry_server import RegistryServer, running

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
READER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "amount", "type": "long"},
        {"name": "currency", "type": "string", "default": "EUR"},
    ],
}


@pytest.fixture
def registry() -> Any:
    """One that has the schema 7."""
    with running() as server:
        server.add(7, SCHEMA)
        yield server


def value_of(amount: int, number: int = 7) -> bytes:
    """As a producer writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), {"amount": amount})
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def asked(registry: RegistryServer) -> int:
    """How often, for the schema 7."""
    return registry.asked.count("/schemas/ids/7")


def test_values_are_decoded_and_the_registry_is_asked_once(registry: RegistryServer) -> None:
    """Bad values go to the dead letters, with what is wrong with them."""
    bodies: list[Any] = []

    async def handle(message: Message) -> None:
        bodies.append(message.body)

    bad = [b"", b"{}", value_of(1)[:-1], value_of(1) + b"x", value_of(1, 8)]
    decode = avro_decoder(registry.url)
    delivered = deliver(handle, value_of(1), value_of(2), None, *bad, decode=decode)
    assert bodies == [{"amount": 1}, {"amount": 2}, None]
    errors = {each.value: each.error for each in delivered.dead}
    assert errors.keys() == set(bad)
    assert "1 bytes are left over" in errors[value_of(1) + b"x"]
    assert "8" in errors[value_of(1, 8)]
    assert asked(registry) == 1


def test_readers_schema_is_what_values_become(registry: RegistryServer) -> None:
    """With its defaults; as JSON text or as it is."""
    for schema in (READER, json.dumps(READER)):
        decode = avro_decoder(SchemaRegistry(registry.url), schema)
        assert decode(value_of(3)) == {"amount": 3, "currency": "EUR"}


def test_registry_that_is_away_for_long_fails_nothing(registry: RegistryServer) -> None:
    """The delivery waits for it, longer than the retry policy would, and counts no failure."""
    registry.next.extend([(503, b"", {})] * 12)

    async def handle(message: Message) -> None:
        assert (message.body, message.attempt) == ({"amount": 1}, 1)

    decode = avro_decoder(registry.url)
    delivered = deliver(handle, value_of(1), decode=decode, retry=RetryPolicy(max_attempts=1))
    assert (len(delivered.acked), delivered.retried, delivered.dead) == (1, [], [])


def test_registry_that_refuses_the_credentials_fails_the_delivery(registry: RegistryServer) -> None:
    """Waiting would not fix that."""
    registry.next.append((401, b"", {}))

    async def handle(message: Message) -> None:
        assert message.body == {"amount": 1}

    delivered = deliver(handle, value_of(1), decode=avro_decoder(registry.url))
    assert (len(delivered.acked), len(delivered.retried), delivered.dead) == (1, 1, [])


async def test_last_one_that_is_cancelled_ends_the_question(registry: RegistryServer) -> None:
    """A registry that is away is asked for nobody no more; the next one that waits asks anew."""
    registry.next.extend([(503, b"", {})] * 1000)
    decode = avro_decoder(registry.url)
    waits = [asyncio.ensure_future(_prepared(decode, value_of(at))) for at in range(3)]
    await asyncio.sleep(0)
    for each in waits:
        each.cancel()
    await asyncio.wait(waits)
    assert all(each.cancelled() for each in waits)
    registry.next.clear()
    await _prepared(decode, value_of(1))
    assert decode.prepare(value_of(1)) is None
    assert len(asyncio.all_tasks()) == 1


def test_process_ends_while_a_registry_hangs() -> None:
    """Its question is in a thread for which nobody waits."""
    code = """if True:
        import asyncio, socket
        from consumer_sdk.decoders import avro_decoder

        kept = []

        async def main():
            with socket.create_server(("127.0.0.1", 0)) as server:
                port = server.getsockname()[1]
                decode = avro_decoder(f"http://127.0.0.1:{port}?timeout=600")
                asked = asyncio.ensure_future(decode.prepare(bytes(5)))
                kept.append(await asyncio.to_thread(server.accept))
                asked.cancel()
                await asyncio.wait({asked})

        asyncio.run(main())
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


async def test_many_deliveries_ask_once_and_one_that_is_cancelled_leaves_the_others(
    registry: RegistryServer,
) -> None:
    """The question goes on in its thread."""
    decode = avro_decoder(registry.url)
    first, *others = [asyncio.ensure_future(_prepared(decode, value_of(at))) for at in range(9)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(*others)
    assert first.cancelled()
    assert asked(registry) == 1
    assert decode.prepare(value_of(1)) is None
    assert decode.prepare(b"no head") is None


async def _prepared(decode: AvroDecoder, data: bytes) -> None:
    waiting = decode.prepare(data)
    assert waiting is not None
    await waiting


def test_unknown_schema_is_asked_for_again_after_a_while(registry: RegistryServer) -> None:
    """It may have been registered since."""
    now = 0.0
    decode = AvroDecoder(SchemaRegistry(registry.url), None, lambda: now)
    for _ in range(3):
        with pytest.raises(UnknownSchemaError):
            decode(value_of(1, 9))
    registry.add(9, SCHEMA)
    registry.add(10, "{}", kind="JSON")
    with pytest.raises(UnknownSchemaError):
        decode(value_of(1, 9))
    assert registry.asked.count("/schemas/ids/9") == 1
    now += UNKNOWN
    assert decode(value_of(1, 9)) == {"amount": 1}
    with pytest.raises(UnknownSchemaError, match="10 is JSON and not AVRO"):
        decode(value_of(1, 10))


@pytest.mark.parametrize(
    "registry, schema, words",
    [
        (3, None, "give a SchemaRegistry, or its URL"),
        ("ftp://h", None, "http"),
        ("http://h:1", "{", "this is no Avro schema"),
        ("http://h:1", {"type": "nothing"}, "this is no Avro schema"),
        ("http://h:1", {"type": "array", "items": "null"}, "take no bytes"),
    ],
)
def test_mistakes_are_said_when_the_decoder_is_made(registry: Any, schema: Any, words: str) -> None:
    """And not with the first record."""
    with pytest.raises(ConfigurationError, match=words):
        avro_decoder(registry, schema)

"""`ClientService` on real servers: both ways of decoding, resharding, positions, subscriptions."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from consumer_sdk.adapters.kinesis.service import client
from consumer_sdk.adapters.kinesis.service.client import ClientService, Connection
from consumer_sdk.adapters.kinesis.service.service import (
    IteratorStart,
    Page,
    Shard,
    ShardGoneError,
    SubscriptionBusyError,
)
from consumer_sdk.errors import AdapterError, ConfigurationError, PositionOutOfRangeError

if TYPE_CHECKING:
    from consumer_sdk.testing.servers import KinesaliteServer, KinesisServer

    AnyServer = KinesisServer | KinesaliteServer

pytestmark = pytest.mark.kinesis

HORIZON = IteratorStart("TRIM_HORIZON")


@pytest.fixture(params=["kinesis_server", "kinesalite_server"])
def server(request: pytest.FixtureRequest) -> Any:
    """Each of the servers."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def stream() -> str:
    """The name of a stream of this test's own."""
    return f"orders-{uuid.uuid4().hex[:8]}"


@asynccontextmanager
async def opened(
    server: AnyServer, stream: str, *, fast_decode: bool = True
) -> AsyncIterator[ClientService]:
    """A service that is open on a stream."""
    options: dict[str, Any] = {
        "endpoint_url": server.endpoint_url,
        "region_name": server.region,
        **server.credentials,
    }
    service = ClientService(stream, Connection(**options, fast_decode=fast_decode))
    try:
        await service.open()
        yield service
    finally:
        await service.aclose()


async def first_page(service: ClientService, shard: str, start: IteratorStart = HORIZON) -> Page:
    """What one read gives."""
    return await service.records(await service.iterator(shard, start), 1000)


async def test_records_are_read_alike_in_both_ways(server: AnyServer, stream: str) -> None:
    """Every column; keys and data of any bytes."""
    await server.create_stream(stream)
    sent = [("ü", b""), ("k", b"\x00\xff"), ("k", b"x" * 1000)]
    placed = await server.put(stream, sent)
    async with opened(server, stream) as fast, opened(server, stream, fast_decode=False) as slow:
        (shard,) = await fast.shards()
        page, same = await first_page(fast, shard.id), await first_page(slow, shard.id)
    assert [str(number) for number in page.sequences] == [sequence for _, sequence in placed]
    assert [*zip(page.keys, page.data, strict=True)] == [(k.encode(), d) for k, d in sent]
    assert all(abs(arrived / 1000 - time.time()) < 60 for arrived in page.times)
    assert page.size == 1000 + 2 + 2 + 2
    assert (page.sequences, page.keys, page.data, page.times, page.size) == (
        same.sequences,
        same.keys,
        same.data,
        same.times,
        same.size,
    )


async def test_reading_goes_on_at_a_position_and_at_a_time(server: AnyServer, stream: str) -> None:
    """AFTER leaves the record out, AT has it; the service's clock is a time to start at."""
    await server.create_stream(stream)
    await server.put(stream, [("k", b"0"), ("k", b"1"), ("k", b"2")])
    async with opened(server, stream) as service:
        (shard,) = await service.shards()
        sequence = (await first_page(service, shard.id)).sequences[1]
        after = IteratorStart("AFTER_SEQUENCE_NUMBER", sequence)
        at = IteratorStart("AT_SEQUENCE_NUMBER", sequence)
        assert (await first_page(service, shard.id, after)).data == [b"2"]
        assert (await first_page(service, shard.id, at)).data == [b"1", b"2"]
        early = IteratorStart("AT_TIMESTAMP", time=await service.time() - 3600)
        assert (await first_page(service, shard.id, early)).data == [b"0", b"1", b"2"]
        # The service refuses a time of its future: its own is never one. With a record after it,
        # since kinesalite hangs on a time after the last one.
        now = await service.time()
        await server.put(stream, [("k", b"3")])
        await service.iterator(shard.id, IteratorStart("AT_TIMESTAMP", time=now))


async def test_a_sequence_number_of_no_record_is_out_of_range(
    server: AnyServer, stream: str
) -> None:
    """The two servers say so in different words; a shard that is not there is another thing."""
    await server.create_stream(stream)
    await server.put(stream, [("k", b"0")])
    async with opened(server, stream) as service:
        (shard,) = await service.shards()
        (sequence,) = (await first_page(service, shard.id)).sequences
        wrong = IteratorStart("AFTER_SEQUENCE_NUMBER", sequence + 1)
        with pytest.raises(PositionOutOfRangeError):
            await service.iterator(shard.id, wrong)
        for start in (wrong, HORIZON):
            with pytest.raises(ShardGoneError):
                await service.iterator("shardId-000000000099", start)


async def test_resharding_shows_in_the_shards(server: AnyServer, stream: str) -> None:
    """A split gives each child one parent, a merge gives its child two; all of them are listed."""
    await server.create_stream(stream, 1)
    (first,) = [each["ShardId"] for each in await server.shards(stream)]
    low, high = await server.split(stream, first)
    merged = await server.merge(stream, low, high)
    async with opened(server, stream) as service:
        shards = {shard.id: shard for shard in await service.shards()}
    assert shards[first] == Shard(first, (), is_closed=True)
    assert [shards[each].parents for each in (low, high)] == [(first,)] * 2
    assert set(shards[merged].parents) == {low, high}


async def test_a_closed_shard_ends_with_all_of_its_records(server: AnyServer, stream: str) -> None:
    """Kinesis trap 20: with the last records in one server, one empty page later in the other."""
    await server.create_stream(stream, 1)
    await server.put(stream, [("k", b"0")])
    (first,) = [each["ShardId"] for each in await server.shards(stream)]
    await server.split(stream, first)
    async with opened(server, stream) as service:
        iterator: str | None = await service.iterator(first, HORIZON)
        found: list[bytes] = []
        for _ in range(5):
            if iterator is not None:
                page = await service.records(iterator, 1000)
                found += page.data
                iterator = page.next
    assert (found, iterator) == ([b"0"], None)


async def test_a_missing_stream_is_a_configuration_error(server: AnyServer, stream: str) -> None:
    """Named, with the place where it was looked for."""
    with pytest.raises(ConfigurationError, match=f"no stream '{stream}' at http://127"):
        await opened(server, stream).__aenter__()


async def test_a_bad_iterator_is_an_adapter_error(server: AnyServer, stream: str) -> None:
    """One server refuses it, the other breaks over it."""
    await server.create_stream(stream)
    async with opened(server, stream) as service:
        with pytest.raises(AdapterError):
            await service.records("no iterator", 10)


async def test_shards_of_all_pages_are_listed(
    kinesis_server: KinesisServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinesis trap 20: a page of two, of a stream of five shards."""
    monkeypatch.setattr(client, "SHARDS_PER_PAGE", 2)
    await kinesis_server.create_stream(stream, 5)
    async with opened(kinesis_server, stream) as service:
        shards = await service.shards()
    expected = [each["ShardId"] for each in await kinesis_server.shards(stream)]
    assert [shard.id for shard in shards] == expected
    assert len(expected) == 5


async def test_children_are_named_by_the_last_page(
    kinesis_server: KinesisServer, stream: str
) -> None:
    """By the one server that does so."""
    await kinesis_server.create_stream(stream, 1)
    (first,) = [each["ShardId"] for each in await kinesis_server.shards(stream)]
    await kinesis_server.split(stream, first)
    async with opened(kinesis_server, stream) as service:
        page = await first_page(service, first)
    assert (page.next, page.has_children) == (None, True)


async def test_a_stream_is_found_by_its_arn(kinesis_server: KinesisServer, stream: str) -> None:
    """In every request."""
    await kinesis_server.create_stream(stream)
    await kinesis_server.put(stream, [("k", b"0")])
    async with opened(kinesis_server, stream) as service:
        arn = (await service.describe()).arn
    async with opened(kinesis_server, arn) as service:
        (shard,) = await service.shards()
        assert (await first_page(service, shard.id)).data == [b"0"]


async def test_a_subscription_gives_records(
    kinesis_server: KinesisServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinesis traps 27 and 28: of a server that sends no first frame; a second one is refused."""
    monkeypatch.setattr(client, "READY_POLL", 0.05)
    await kinesis_server.create_stream(stream)
    placed = await kinesis_server.put(stream, [("k", b"0"), ("k", b"1")])
    async with opened(kinesis_server, stream) as service:
        (shard,) = await service.shards()
        consumer = await service.consumer("me")
        assert consumer == await service.consumer("me")
        pages = service.subscribe(consumer, shard.id, HORIZON)
        page = await anext(pages)
        assert (page.data, page.next) == ([b"0", b"1"], placed[-1][1])
        with pytest.raises(SubscriptionBusyError):
            await anext(service.subscribe(consumer, shard.id, HORIZON))
        await pages.aclose()

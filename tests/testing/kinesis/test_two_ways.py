"""The adapter's own service over HTTP, and the one in process, tell the same of one model.

What simulation proves on `FakeService` is so worth something for the service of production.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import pytest

from consumer_sdk.adapters.kinesis.service.client import ClientService
from consumer_sdk.adapters.kinesis.service.connection import Connection
from consumer_sdk.adapters.kinesis.service.service import IteratorStart, Page, Service
from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.testing import Simulation, simulate
from consumer_sdk.testing.kinesis import FakeKinesis, FakeKinesisServer, FakeService, Quirks

T = TypeVar("T")
SHARD = "shardId-000000000000"
HORIZON = IteratorStart("TRIM_HORIZON")


@dataclass(frozen=True)
class Ways:
    """Both ways to one model with the stream `orders`, of one shard."""

    kinesis: FakeKinesis
    services: tuple[Service, Service]

    async def same(self, ask: Callable[[Service], Awaitable[T]]) -> T:
        """What both answer."""
        first, second = [await ask(service) for service in self.services]
        assert first == second
        return first


@asynccontextmanager
async def two_ways(simulation: Simulation) -> AsyncIterator[Ways]:
    """Both services, open."""
    kinesis = FakeKinesis(simulation.clock, quirks=Quirks(creating=0))
    kinesis.create_stream("orders")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(FakeKinesisServer(kinesis))
        connection = Connection(
            endpoint_url=server.endpoint_url,
            region_name=server.region,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106  the fake takes any
        )
        clock = asyncio.get_running_loop().time
        services = ClientService("orders", connection, clock=clock), FakeService(kinesis, "orders")
        for service in services:
            stack.push_async_callback(service.aclose)
            await service.open()
        yield Ways(kinesis, services)


def run(claim: Callable[[Ways], Awaitable[None]]) -> None:
    """Runs a claim about both on virtual time."""

    async def main(simulation: Simulation) -> None:
        async with two_ways(simulation) as ways:
            await claim(ways)

    simulate(main)


async def error_of(request: Awaitable[object]) -> type[BaseException] | None:
    """The type of error that a request ends with."""
    try:
        await request
    except ConsumerSdkError as error:
        return type(error)
    return None


def test_streams_and_shards_are_the_same() -> None:
    """Identity, parents and order; after a split and a merge."""

    async def claim(ways: Ways) -> None:
        await ways.same(lambda service: service.describe())
        low, high = ways.kinesis.split("orders", SHARD)
        ways.kinesis.merge("orders", low.id, high.id)
        shards = await ways.same(lambda service: service.shards())
        assert [len(shard.parents) for shard in shards] == [0, 1, 1, 2]

    run(claim)


def test_pages_are_the_same() -> None:
    """Keys, data, times, sizes and the end, but for the iterator, which has its own age."""

    async def claim(ways: Ways) -> None:
        for number in range(3):
            ways.kinesis.put("orders", bytes(number), f"schlüssel {number}")
            await asyncio.sleep(0.125)

        async def pages(service: Service) -> list[Page]:
            token = await service.iterator(SHARD, HORIZON)
            first = await service.records(token, 2)
            assert first.next is not None
            second = await service.records(first.next, 2)
            has_next = [first.next is not None, second.next is not None]
            first.next = second.next = str(has_next)
            return [first, second]

        first, last = await ways.same(pages)
        assert (len(first.data), len(last.data), last.behind) == (2, 1, 0)
        await asyncio.sleep(1)
        ways.kinesis.split("orders", SHARD)
        _, last = await ways.same(pages)
        assert (last.next, last.has_children) == ("[True, False]", True)

    run(claim)


def test_errors_are_the_same() -> None:
    """Kinesis trap 25: a type for each thing that can be done about it."""

    async def claim(ways: Ways) -> None:
        async def kinds(service: Service) -> list[type[BaseException] | None]:
            unknown = IteratorStart("AT_SEQUENCE_NUMBER", 12)
            future = IteratorStart("AT_TIMESTAMP", time=2e9)
            return [
                await error_of(service.iterator(SHARD, unknown)),
                await error_of(service.iterator(SHARD, future)),
                await error_of(service.iterator("shardId-000000000009", HORIZON)),
                await error_of(service.records("made up", 1)),
            ]

        found = await ways.same(kinds)
        assert None not in found

    run(claim)


def test_throttling_and_expiry_are_the_same() -> None:
    """Kinesis traps 22 and 23: by type, and at the same moment."""

    async def claim(ways: Ways) -> None:
        async def kinds(service: Service) -> list[type[BaseException] | None]:
            await asyncio.sleep(1)
            token = await service.iterator(SHARD, HORIZON)
            found = [await error_of(service.records(token, 1)) for _ in range(6)]
            await asyncio.sleep(299)
            found.append(await error_of(service.records(token, 1)))
            await asyncio.sleep(2)
            return [*found, await error_of(service.records(token, 1))]

        found = await ways.same(kinds)
        assert [kind is None for kind in found] == [True] * 5 + [False, True, False]

    run(claim)


def test_subscriptions_are_the_same() -> None:
    """Kinesis trap 27: records, where to go on, a heartbeat, and the end of the shard."""

    async def claim(ways: Ways) -> None:
        ways.kinesis.put("orders", b"a")

        async def two_pages(service: Service) -> list[Page]:
            await asyncio.sleep(5)
            consumer = await service.consumer("app")
            async with aclosing(service.subscribe(consumer, SHARD, HORIZON)) as pages:
                return [await anext(pages), await anext(pages)]

        first, heartbeat = await ways.same(two_pages)
        assert (first.data, heartbeat.data, first.next) == ([b"a"], [], heartbeat.next)

        async def last_pages(service: Service) -> list[Page]:
            await asyncio.sleep(5)
            consumer = await service.consumer("app")
            return [page async for page in service.subscribe(consumer, SHARD, HORIZON)]

        ways.kinesis.split("orders", SHARD)
        (last,) = await ways.same(last_pages)
        assert (last.data, last.next, last.has_children) == ([b"a"], None, True)

    run(claim)


def test_busy_subscription_is_the_same() -> None:
    """Kinesis trap 27: less than five seconds after another."""

    async def claim(ways: Ways) -> None:
        async def kind(service: Service) -> type[BaseException] | None:
            await asyncio.sleep(5)
            consumer = await service.consumer("app")
            async with aclosing(service.subscribe(consumer, SHARD, HORIZON)) as pages:
                ways.kinesis.put("orders", b"a")
                await anext(pages)
                async with aclosing(service.subscribe(consumer, SHARD, HORIZON)) as again:
                    return await error_of(anext(again))

        assert await ways.same(kind) is not None

    run(claim)


@pytest.mark.parametrize("seconds", [0.0, 0.75, 12.25])
def test_time_is_never_ahead_of_the_fakes(seconds: float) -> None:
    """And less than a second behind, whichever way it is asked."""

    async def claim(ways: Ways) -> None:
        await asyncio.sleep(seconds)
        for service in ways.services:
            late = ways.kinesis.clock.wall() - await service.time()
            assert 0 <= late < 1

    run(claim)

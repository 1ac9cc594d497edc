"""`stop` and signals end a consumer that is still being opened."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from consumer_sdk import Consumer, ConsumerClosedError, Message
from consumer_sdk.abc import Adapter, AssignmentOwner, CheckpointStore, LeaseSource
from consumer_sdk.adapters import KafkaAdapter, KinesisAdapter, PulsarAdapter
from consumer_sdk.stores import MemoryStore, ZooKeeperStore
from consumer_sdk.testing import MemoryAdapter
from tests.runtime.bench import Bench, bench

LONG = 299.0
"""Seconds that the clients would try for; a run that goes on for so long fails."""


class _NeverOpen(MemoryAdapter):
    """Its broker does not answer."""

    is_closed = False

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        del owner, leases
        await asyncio.get_running_loop().create_future()

    async def aclose(self) -> None:
        self.is_closed = True
        await super().aclose()


class _BadlyEnded(_NeverOpen):
    """Its client makes an error of its own out of a cancellation."""

    async def open(self, owner: AssignmentOwner, leases: LeaseSource | None = None) -> None:
        try:
            await super().open(owner, leases)
        except asyncio.CancelledError:
            raise OSError("the client was torn down") from None


async def _handle(_: Message) -> None:
    """Is never called."""


@pytest.mark.parametrize("kind", [_NeverOpen, _BadlyEnded])
def test_stop_while_opening_ends_run_and_closes_what_was_opened(kind: type[_NeverOpen]) -> None:
    """`run` returns, as from any stop."""

    async def test(b: Bench) -> None:
        adapter = kind(b.broker, "s", group="g")
        consumer = Consumer(adapter)
        asyncio.get_running_loop().call_later(5, consumer.stop)
        began = b.simulation.clock.monotonic()
        await consumer.run(_handle)
        assert b.simulation.clock.monotonic() - began == pytest.approx(5)
        assert adapter.is_closed
        await consumer.aclose()

    bench(test)


def test_stop_while_entering_the_context_says_that_it_was_closed() -> None:
    """The body of ``async with`` is not to run with a consumer that is not open."""

    async def test(b: Bench) -> None:
        consumer = Consumer(_NeverOpen(b.broker, "s", group="g"))
        asyncio.get_running_loop().call_later(5, consumer.stop)
        with pytest.raises(ConsumerClosedError, match="while the consumer was opened"):
            async with consumer:
                raise AssertionError
        await consumer.aclose()

    bench(test)


def test_cancellation_while_opening_stays_a_cancellation() -> None:
    """Whoever cancels `run` sees it cancelled, also right after a stop."""

    async def test(b: Bench) -> None:
        for stops in (False, True):
            consumer = Consumer(_NeverOpen(b.broker, "s", group="g"))
            running = asyncio.create_task(consumer.run(_handle))
            await asyncio.sleep(1)
            if stops:
                consumer.stop()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    bench(test)


def _kafka(port: int) -> Adapter:
    servers = f"127.0.0.1:{port}"
    return KafkaAdapter("s", bootstrap_servers=servers, group="g", connect_timeout=LONG)


def _kinesis(port: int) -> Adapter:
    keys: dict[str, Any] = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    url = f"http://127.0.0.1:{port}"
    return KinesisAdapter("s", group="g", region_name="us-east-1", endpoint_url=url, **keys)


def _pulsar(port: int) -> Adapter:
    url = f"pulsar://127.0.0.1:{port}"
    return PulsarAdapter(
        "s", service_url=url, subscription="g", busy_timeout=LONG, operation_timeout=LONG
    )


def _pulsar_admin(port: int) -> Adapter:
    url = f"127.0.0.1:{port}"
    return PulsarAdapter(
        "s", service_url=f"pulsar://{url}", subscription="g", admin_url=f"http://{url}",
        busy_timeout=LONG,
    )  # fmt: skip


def _zookeeper(port: int) -> CheckpointStore:
    return ZooKeeperStore(f"127.0.0.1:{port}")


@pytest.mark.parametrize("by_signal", [False, True], ids=["stop", "SIGTERM"])
@pytest.mark.parametrize(
    "adapter, store",
    [
        (_kafka, None),
        (_kinesis, MemoryStore),
        (_pulsar, None),
        (_pulsar_admin, None),
        (_kafka, _zookeeper),
    ],
    ids=["kafka", "kinesis", "pulsar", "pulsar admin", "zookeeper"],
)
async def test_silent_server_stop_ends_the_run(
    adapter: Callable[[int], Adapter],
    store: Callable[..., CheckpointStore] | None,
    *,
    by_signal: bool,
) -> None:
    """A server that takes the connection and says nothing holds nobody up."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        kept = None if store is None else store() if store is MemoryStore else store(port)
        consumer = Consumer(adapter(port), store=kept)
        async with asyncio.timeout(LONG):
            running = asyncio.create_task(consumer.run(_handle))
            connection, _ = await loop.sock_accept(server)
            with connection:
                if by_signal:
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    consumer.stop()
                await running

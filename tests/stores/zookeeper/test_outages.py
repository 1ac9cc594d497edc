"""ZooKeeper killed, paused, and its sessions expired, under a consumer that goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from consumer_sdk.abc import StoreItem
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.records import Assignment, OutcomeKind, Partition
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.testing.servers import ZooKeeperEndpoint, ZooKeeperServer
from tests.stores.zookeeper_load import SESSION_TIMEOUT, Load, expire, until

pytestmark = pytest.mark.zookeeper

GROUP = "g"
PARTITIONS = Load.partitions


async def killed(server: ZooKeeperServer) -> None:
    """Crashes, is away for a while, and comes back with what it had."""
    await server.kill()
    await asyncio.sleep(1.0)
    await server.start()


async def paused(server: ZooKeeperServer) -> None:
    """Says nothing for longer than a session may be silent."""
    server.pause()
    await asyncio.sleep(SESSION_TIMEOUT * 1.5)
    server.resume()


@pytest.mark.parametrize("trouble", [killed, pytest.param(paused, marks=pytest.mark.campaign)])
async def test_consumer_outlives_a_server_in_trouble(
    own_zookeeper_server: ZooKeeperServer,
    trouble: Callable[[ZooKeeperServer], Awaitable[None]],
) -> None:
    """Twice, under load: nothing is lost, no checkpoint moves back, it resumes by itself."""
    load = Load(own_zookeeper_server.hosts)
    async with load.running():
        for _ in range(2):
            await trouble(own_zookeeper_server)
            await load.advances()
    assert max(load.seen.values()) == 1, "redelivered, although nobody crashed"


async def test_consumer_outlives_expired_sessions(zookeeper_server: ZooKeeperEndpoint) -> None:
    """Three times, under load: a new session, the same claims, nothing lost or redelivered."""
    load = Load(zookeeper_server.hosts)
    store = load.store()
    async with load.running(store):
        for _ in range(3):
            await expire(store)
            await load.advances()
    assert max(load.seen.values()) == 1


@pytest.mark.campaign
async def test_consumer_that_is_stopped_in_an_outage_ends_and_its_successor_goes_on(
    own_zookeeper_server: ZooKeeperServer,
) -> None:
    """The last flush is given up in bounded time; what it had is redelivered, nothing is lost."""
    load = Load(own_zookeeper_server.hosts)
    consumer = load.consumer(load.store())
    run = asyncio.ensure_future(consumer.run(load.see, concurrency=50))
    load.broker.append_all("orders", [b"%d" % n for n in range(400)])
    load.appended = 400
    await until(lambda: len(load.seen) > 100 or run.done())
    await own_zookeeper_server.kill()
    await until(lambda: len(load.seen) == 400 or run.done())
    consumer.stop()
    await asyncio.wait_for(run, timeout=300.0)
    await own_zookeeper_server.start()
    async with load.running():
        pass
    assert max(load.seen.values()) <= 2


async def test_claim_that_was_lost_with_the_session_is_fenced(
    zookeeper_server: ZooKeeperEndpoint,
) -> None:
    """The session expires, another owner claims, and the first comes back: FENCED."""
    mine, theirs = (ZooKeeperStore(zookeeper_server.hosts, root="/expired") for _ in range(2))
    await mine.open()
    await theirs.open()
    old, new = Assignment(PARTITIONS[0], 1), Assignment(PARTITIONS[0], 2)
    await mine.claim(GROUP, [old])
    await expire(mine)
    await theirs.claim(GROUP, [new])
    outcomes = await mine.save(GROUP, [StoreItem(old, "stale")])
    outcomes += await theirs.save(GROUP, [StoreItem(new, "fresh")])
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.FENCED, OutcomeKind.DURABLE]
    await mine.aclose()
    await theirs.aclose()


async def longest_gap() -> float:
    """Until it is cancelled: the longest time that the event loop did nothing for us."""
    longest, last = 0.0, time.monotonic()
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
    return longest


@pytest.mark.campaign
async def test_silent_server_does_not_block_the_event_loop(
    own_zookeeper_server: ZooKeeperServer,
) -> None:
    """Thousands of requests to a server that is paused: each call ends, others go on meanwhile.

    kazoo's own pipe holds 278 of them; the next one would block whoever makes it.
    """
    store = ZooKeeperStore(own_zookeeper_server.hosts, session_timeout=3.0)
    await store.open()
    owned = Assignment(PARTITIONS[0], 1)
    await store.claim(GROUP, [owned])
    own_zookeeper_server.pause()
    gap = asyncio.ensure_future(longest_gap())
    many = [Assignment(Partition("many", str(number)), 1) for number in range(1000)]
    calls: list[Awaitable[object]] = [store.claim(GROUP, many) for _ in range(5)]
    calls += [store.save(GROUP, [StoreItem(owned, "x" * 900_000)]) for _ in range(2)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    gap.cancel()
    assert all(isinstance(result, TransientStoreError) for result in results[:5])
    assert {result[0].kind for result in results[5:]} == {OutcomeKind.RETRY}  # type: ignore[index] # lists, if they did not raise
    assert await gap < 1.5  # much less, but for what else the machine has to do
    own_zookeeper_server.resume()
    await until_durable(store, owned)
    await store.aclose()


async def until_durable(store: ZooKeeperStore, owned: Assignment) -> None:
    """The claim is still good once the server answers."""
    for _ in range(10):
        (outcome,) = await store.save(GROUP, [StoreItem(owned, "after")])
        if outcome.kind is OutcomeKind.DURABLE:
            return
    raise AssertionError(outcome)


async def test_closing_in_an_outage_is_bounded(own_zookeeper_server: ZooKeeperServer) -> None:
    """Whoever waits for the server is told at once, and closing does not wait for it long."""
    store = ZooKeeperStore(own_zookeeper_server.hosts, session_timeout=30.0)
    await store.open()
    owned = Assignment(PARTITIONS[0], 1)
    await store.claim(GROUP, [owned])
    await own_zookeeper_server.kill()
    saving = asyncio.ensure_future(store.save(GROUP, [StoreItem(owned, "text")]))
    await asyncio.sleep(0.5)
    await asyncio.wait_for(store.aclose(), timeout=25.0)
    (outcome,) = await asyncio.wait_for(saving, timeout=25.0)
    assert outcome.kind is OutcomeKind.RETRY


async def test_absent_server_stops_the_consumer_with_the_reason() -> None:
    """Without its checkpoints a consumer does not start, at latest or anywhere."""
    load = Load("127.0.0.1:1")
    store = ZooKeeperStore("127.0.0.1:1", session_timeout=0.5)
    with pytest.raises(TransientStoreError, match="no connection to ZooKeeper at"):
        await load.consumer(store).run(load.see)
    assert not load.seen

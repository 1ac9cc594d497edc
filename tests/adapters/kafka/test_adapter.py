"""Opening and closing the Kafka adapter: typed errors first, nothing left behind last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from consumer_sdk.adapters.kafka import KafkaAdapter
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerClosedError,
    TransientAdapterError,
)
from consumer_sdk.records import Assignment, AtTime, OutcomeKind, StartPoint
from consumer_sdk.testing.conformance.adapters import Record
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.adapters.kafka.world import World, flush_of, numbered, values


@pytest.fixture(autouse=True)
def leaves_no_task() -> Callable[[], set[asyncio.Task[Any]]]:
    """What runs besides the test."""
    return lambda: {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def test_unreachable_servers_are_named(leaves_no_task: Any, world: World) -> None:
    """A wrong address is a transient error within the connect timeout, with the address."""
    before = leaves_no_task()
    (port,) = free_ports(1)
    adapter = KafkaAdapter("t", bootstrap_servers=f"{HOST}:{port}", connect_timeout=2)
    with pytest.raises(TransientAdapterError, match=f"bootstrap_servers {HOST}:{port}"):
        await adapter.open(world.owner())
    await adapter.aclose()
    assert leaves_no_task() == before


async def test_server_that_never_answers_is_given_up_in_time(world: World) -> None:
    """Something listens there, but it is no Kafka, or a paused one."""
    connections = []
    server = await asyncio.start_server(lambda *each: connections.append(each), HOST, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        adapter = KafkaAdapter("t", bootstrap_servers=f"{HOST}:{port}", connect_timeout=0.3)
        with pytest.raises(TransientAdapterError, match="TimeoutError"):
            async with asyncio.timeout(25):  # a request would wait for 40 s
                await adapter.open(world.owner())
        for _reader, writer in connections:
            writer.close()


@pytest.mark.kafka
@pytest.mark.parametrize("password", ["secret", "wrong"])
async def test_credentials_are_passed_on_and_refused_ones_are_a_typed_error(
    world: World, sasl_servers: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client logs the reason and raises another: the error here has it, and no log a secret."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, numbered(0, 1))
    options: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }
    world.kafka.servers = sasl_servers
    if password == "secret":  # noqa: S105 - of a server that lives for a test
        caplog.set_level(logging.DEBUG, "aiokafka")
        async with world.member(topic, **options) as member:
            assert values(await member.read(1)) == [0]
        assert "<SaslAuthenticateRequest_v" in caplog.text
        assert "secret" not in caplog.text
        return
    with pytest.raises(AdapterError, match=r"check security_protocol.*sasl_") as caught:
        await world.adapter(topic, **options).open(world.owner())
    assert not isinstance(caught.value, TransientAdapterError)
    assert "Authentication" in str(caught.value)


@pytest.mark.kafka
async def test_missing_topic_is_named_and_not_created(world: World, leaves_no_task: Any) -> None:
    """The client's metadata request would create it, and wait for records in it."""
    assert "no-such-topic" not in await world.kafka.admin.list_topics()
    before = leaves_no_task()
    adapter = world.adapter("no-such-topic")
    with pytest.raises(ConfigurationError, match=r"'no-such-topic' does not exist .* create it"):
        await adapter.open(world.owner())
    assert "no-such-topic" not in await world.kafka.admin.list_topics()
    assert leaves_no_task() == before
    await adapter.aclose()


@pytest.mark.kafka
async def test_session_that_the_broker_refuses_is_found_at_open(world: World) -> None:
    """The broker has limits of its own; the message names the option."""
    topic = await world.kafka.create_stream()
    adapter = world.adapter(topic, session_timeout=3600.0)
    with pytest.raises(ConfigurationError, match="does not accept this session_timeout"):
        await adapter.open(world.owner())


@pytest.mark.kafka
async def test_cancelled_open_leaves_nothing(world: World, leaves_no_task: Any) -> None:
    """Wherever in its course it is cancelled."""
    topic = await world.kafka.create_stream()
    before = leaves_no_task()
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.05):
        adapter = world.adapter(topic)
        opening = asyncio.ensure_future(adapter.open(world.owner()))
        await asyncio.wait({opening}, timeout=delay)
        opening.cancel()
        await asyncio.wait({opening})
        await adapter.aclose()
    assert leaves_no_task() == before


@pytest.mark.kafka
async def test_close_leaves_the_group_at_once_and_no_task(
    world: World, leaves_no_task: Any
) -> None:
    """The next member need not wait for a session to time out."""
    topic = await world.kafka.create_stream()
    before = leaves_no_task()
    async with world.member(topic, session_timeout=30.0) as member:
        await member.holding(1)
    assert await world.state() == "Empty"
    assert leaves_no_task() == before


@pytest.mark.kafka
async def test_close_is_quick_while_another_member_holds_up_the_join(world: World) -> None:
    """T27: the client's stop waited for another member's join, and then joined again."""
    topic = await world.kafka.create_stream(2)
    owner, drained = world.owner(), asyncio.Event()
    async with world.member(topic, owner) as old:
        await old.holding(2)
        owner.on_revoked = lambda _: drained.wait()
        new = world.adapter(topic, connect_timeout=2.0)
        await new.open(world.owner())
        await world.until("revoked", "member-1")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await new.aclose()
        assert loop.time() - began < 25  # the join waits for up to 60 s
        drained.set()
        owner.on_revoked = None
        await old.holding(2)
    assert world.kinds("member-2") == []


@pytest.mark.kafka
async def test_close_revokes_and_its_commit_lands(world: World) -> None:
    """The client's stop never calls revoked: what was settled would be delivered again."""
    topic = await world.kafka.create_stream()
    owner = world.owner()
    kinds: list[OutcomeKind] = []
    async with world.member(topic, owner) as member:
        await member.holding(1)

        async def flush(assignments: Sequence[Assignment]) -> None:
            outcomes = await member.adapter.commit([flush_of(a, 4) for a in assignments])
            kinds.extend(outcome.kind for outcome in outcomes)

        owner.on_revoked = flush
        await member.adapter.aclose()
        assert kinds == [OutcomeKind.DURABLE]
        assert await world.offsets(topic) == {0: 4}
        with pytest.raises(ConsumerClosedError):
            await member.fetch()


@pytest.mark.kafka
async def test_close_is_bounded_when_the_broker_hangs(own_kafka_server: Any) -> None:
    """T27: every step of the close has its own limit, and the last is forced."""
    from tests.adapters.kafka.harness import KafkaHarness

    async with KafkaHarness(own_kafka_server.bootstrap_servers) as harness:
        world = World(harness)
        topic = await harness.create_stream()
        async with world.member(topic, session_timeout=10.0) as member:
            await member.holding(1)
            own_kafka_server.pause()
            try:
                async with asyncio.timeout(120):
                    await member.adapter.aclose()
            finally:
                own_kafka_server.resume()


@pytest.mark.kafka
async def test_adapter_opens_once(world: World) -> None:
    """A closed one does not come back."""
    topic = await world.kafka.create_stream()
    async with world.member(topic) as member:
        with pytest.raises(ConsumerClosedError, match="once"):
            await member.adapter.open(world.owner())
    with pytest.raises(ConsumerClosedError):
        await member.adapter.open(world.owner())


async def test_adapter_that_is_not_open_says_so() -> None:
    """Not an attribute error."""
    adapter = KafkaAdapter("t", bootstrap_servers="a:1", group="g")
    with pytest.raises(ConsumerClosedError, match="not open"):
        await adapter.fetch(max_records=1, max_bytes=1, max_wait=0)
    with pytest.raises(ConsumerClosedError, match="not open"):
        await adapter.commit([])


@pytest.mark.kafka
async def test_positions_answer_for_the_ends_and_for_times(world: World) -> None:
    """What starts, pins and range checks are made of."""
    topic = await world.kafka.create_stream(2)
    await world.kafka.append(topic, [Record(b"x", timestamp=1_000 * n) for n in (1, 2, 3)], 0)
    async with world.member(topic) as member:
        first, second = await member.holding(2)
        ask = member.adapter.positions
        assert await ask([first, second], StartPoint.EARLIEST) == {first: 0, second: 0}
        assert await ask([first, second], StartPoint.LATEST) == {first: 3, second: 0}
        assert await ask([first, second], AtTime(1.5)) == {first: 1, second: None}
        assert await ask([], StartPoint.LATEST) == {}
        assert member.adapter.identity(first) == member.adapter.identity(second)
        assert len(member.adapter.identity(first) or "") == 22


@pytest.mark.kafka
async def test_two_members_share_without_noise(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A plain rebalance logs nothing of ours at warning or above."""
    topic = await world.kafka.create_stream(2)
    async with world.member(topic) as old:
        await old.holding(2)
        async with world.member(topic) as new:
            await new.holding(1)
    ours = [r for r in caplog.records if r.name.startswith("consumer_sdk")]
    assert [r.getMessage() for r in ours if r.levelno >= logging.WARNING] == []

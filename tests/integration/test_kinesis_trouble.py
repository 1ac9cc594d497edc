"""The server stops, or comes back empty; the store is away: nothing is skipped, errors say what is wrong."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from consumer_sdk import AdapterError, Message, StoreError, TransientAdapterError
from consumer_sdk.adapters.kinesis.service.client import ClientService
from consumer_sdk.adapters.kinesis.service.service import Page
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.testing.servers import KinesisServer
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.adapters.kinesis.server_harness import recreate_stream
from tests.integration.field import until
from tests.integration.kinesis_consumer import BLOCK, GROUP, LEASE, released_by
from tests.integration.kinesis_field import PATIENCE, KinesisField, Seen
from tests.integration.kinesis_team import ROOT, Place, is_settled, lines_of

pytestmark = pytest.mark.kinesis


@pytest.fixture
def field(kinesis_server: KinesisServer, tmp_path: Path) -> KinesisField:
    """A stream of the test's own."""
    return KinesisField(kinesis_server, tmp_path)


@pytest.fixture
def own_field(own_kinesis_server: KinesisServer, tmp_path: Path) -> KinesisField:
    """A stream on a server that may be stopped."""
    return KinesisField(own_kinesis_server, tmp_path)


@pytest.mark.campaign
async def test_server_that_does_not_answer_for_a_while_is_waited_for(
    own_field: KinesisField, own_kinesis_server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests run into their timeouts; the shard stays held, and nothing is lost or repeated."""
    failed: list[Exception] = []

    async def records(self: ClientService, iterator: str, limit: int) -> Page:
        try:
            return await read(self, iterator, limit)
        except TransientAdapterError as error:
            failed.append(error)
            raise

    read = ClientService.records
    monkeypatch.setattr(ClientService, "records", records)
    await own_field.create()
    await own_field.append(10)
    seen = Seen()
    adapter = own_field.adapter(request_timeout=2.0, connect_timeout=2.0)
    async with own_field.running(own_field.consumer(adapter), seen.handle) as task:
        await until(lambda: len(seen.numbers) == 10, "the first", task)
        own_kinesis_server.pause()
        await until(lambda: len(failed) >= 3, "timeouts", task)
        own_kinesis_server.resume()
        await own_field.append(10)
        await until(lambda: len(seen.numbers) == 20, "the rest", task)
    assert sorted(seen.numbers) == list(range(20))
    (lease,) = (await own_field.leases()).values()
    assert lease.fence == 1


@pytest.mark.campaign
async def test_server_that_comes_back_without_the_stream_ends_the_consumer_with_the_reason(
    own_field: KinesisField, own_kinesis_server: KinesisServer
) -> None:
    """A stream that is gone is not waited for: its records cannot come back."""
    await own_field.create()
    await own_field.append(10)
    seen = Seen()
    with pytest.raises(AdapterError, match=f"{own_field.stream}.* was deleted"):
        async with own_field.running(own_field.consumer(), seen.handle) as task:
            await until(lambda: len(seen.numbers) == 10, "the first", task)
            await own_kinesis_server.kill()
            await own_kinesis_server.restart()
            async with asyncio.timeout(PATIENCE):
                await asyncio.wait({task})


async def test_stream_made_again_while_it_is_read_ends_the_consumer_with_the_reason(
    field: KinesisField,
) -> None:
    """Nor are the records of another stream of its name taken for its own."""
    await field.create()
    await field.append(10)
    seen = Seen()
    with pytest.raises(AdapterError, match=f"{field.stream}.* was deleted"):
        async with field.running(field.consumer(), seen.handle) as task:
            await until(lambda: len(seen.numbers) == 10, "the first", task)
            await recreate_stream(field.server, field.stream)
            await field.append(10)
            async with asyncio.timeout(PATIENCE):
                await asyncio.wait({task})
    assert len(seen.numbers) == 10


async def test_store_that_cannot_be_reached_at_start_is_an_error_and_never_latest(
    field: KinesisField,
) -> None:
    """Kinesis trap 17: one of the seeds began at the newest record then."""
    await field.create()
    await field.append(10)
    (port,) = free_ports(1)
    store = ZooKeeperStore(f"{HOST}:{port}", session_timeout=1.0)
    seen = Seen()
    with pytest.raises(TransientStoreError, match=f"{HOST}:{port}"):
        async with asyncio.timeout(PATIENCE):
            await field.consumer(store=store, start="latest").run(seen.handle)
    assert not seen.numbers


async def test_store_that_fails_after_the_start_is_waited_for_and_then_resumed_from(
    field: KinesisField,
) -> None:
    """Kinesis trap 17: what cannot be claimed is not read, and what was settled is not repeated."""
    await field.create()
    await field.append(10)
    seen = Seen()
    async with field.running(field.consumer(), seen.handle) as task:
        await until(lambda: len(seen.numbers) == 10, "the first", task)
    await field.append(10)
    store = field.store()
    claim, tries = store.claim, 0

    async def failing(group: str, assignments: object) -> object:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise TransientStoreError("the disk is away")
        return await claim(group, assignments)  # type: ignore[arg-type]  # handed on as it came

    store.claim = failing  # type: ignore[method-assign, assignment]  # this store's alone
    async with field.running(field.consumer(store=store, start="latest"), seen.handle) as task:
        await until(lambda: len(seen.numbers) == 20, "the rest", task)
    assert tries >= 4
    assert sorted(seen.numbers) == list(range(20))


async def test_member_whose_loop_is_blocked_loses_its_shards_and_commits_nothing_after(
    field: KinesisField, tmp_path: Path
) -> None:
    """Kinesis trap 13: a handler computes until others have its shards; its ack is too late to count."""
    first, second = await field.create(2)
    file = tmp_path / "processed"
    file.touch()
    arguments = [field.server.endpoint_url, field.stream, str(field.store_file), str(file)]
    command = [sys.executable, "-m", "tests.integration.kinesis_consumer", *arguments]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    try:
        await field.append(20)
        await until(lambda: len(lines_of(file)) == 20, "the member to read")
        ((_, taken),) = await field.server.put(field.stream, [("k", BLOCK)], shard=first)
        await _check_blocked_member(field, file, (first, int(taken)), second)
    finally:
        process.kill()
        await process.wait()


async def _check_blocked_member(
    field: KinesisField, file: Path, place: Place, other_shard: str
) -> None:
    """Another one takes its shards, and still has the record open when the blocked one acks it."""
    has_it, let_go = asyncio.Event(), asyncio.Event()

    async def handle(message: Message) -> None:
        if message.position[0] == place[1]:
            has_it.set()
            await let_go.wait()

    def done() -> set[Place]:
        return {line.place for line in lines_of(file)}

    adapter = field.adapter(group=GROUP, lease_duration=LEASE)
    async with field.running(field.consumer(adapter), handle) as task:
        await until(has_it.is_set, "the other member to take it over", task)
        assert place not in done()
        released_by(file).touch()
        await until(lambda: place in done(), "the blocked member to wake up", task)
        # It gets its share again, with the second shard; by then it has flushed all that it can.
        lines = len(lines_of(file))
        async with asyncio.timeout(PATIENCE):
            while len(lines_of(file)) == lines:
                await field.append(1, shard=other_shard)
        assert not is_settled((await field.checkpoints(GROUP))[place[0]], place[1])
        let_go.set()
    assert is_settled((await field.checkpoints(GROUP))[place[0]], place[1])


async def test_damaged_store_is_named_before_the_group_is_joined(field: KinesisField) -> None:
    """It never means "no checkpoint yet"."""
    await field.create()
    field.store_file.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match=str(field.store_file)):
        await field.consumer().run(Seen().handle)

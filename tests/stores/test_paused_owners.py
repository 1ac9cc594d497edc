"""Owners in different processes: one is stopped in its tracks, and goes on too late."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from consumer_sdk.abc import CheckpointStore, StoreItem
from consumer_sdk.errors import TransientStoreError
from consumer_sdk.records import Assignment, OutcomeKind
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.stores.owner_child import FIRST, SESSION_TIMEOUT, claim, opened

ROOT = Path(__file__).parents[2]
RUNS = 20


@asynccontextmanager
async def owner_process(*place: str) -> AsyncIterator[Process]:
    """A process of `tests.stores.owner_child`."""
    module = ("-W", "error", "-m", "tests.stores.owner_child")
    child = await asyncio.create_subprocess_exec(
        sys.executable, *module, *place, cwd=ROOT, stdin=PIPE, stdout=PIPE
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def said(child: Process) -> tuple[str, int]:
    """Its next outcome, and of which number."""
    assert child.stdout is not None
    kind, number = (await child.stdout.readline()).decode().split()
    return kind, int(number)


async def until_claimed(
    child: Process, store: CheckpointStore, epoch: int
) -> tuple[Assignment, int]:
    """Takes over; a child that stands in the middle of a file's transaction first ends that."""
    while True:
        try:
            return await claim(store, epoch)
        except TransientStoreError:
            child.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.001)
            child.send_signal(signal.SIGSTOP)


async def takeover(
    child: Process, store: CheckpointStore, epoch: int, pause: float, chaos: random.Random
) -> None:
    """The child owns, is stopped, is replaced, goes on, and is refused."""
    assert child.stdin is not None
    child.stdin.write(b"own it\n")
    for _ in range(chaos.randint(1, 30)):
        while (kind := (await said(child))[0]) != "durable":
            assert kind == "retry"
    await asyncio.sleep(chaos.uniform(0, 0.003))  # anywhere within a save
    child.send_signal(signal.SIGSTOP)
    await asyncio.sleep(pause)
    assignment, number = await until_claimed(child, store, epoch)
    await until_durable(store, assignment, number + 1000)
    child.send_signal(signal.SIGCONT)
    await until_refused(child, number)
    await until_durable(store, assignment, number + 2000)
    assert await stored(store) == str(number + 2000)


async def until_durable(store: CheckpointStore, assignment: Assignment, number: int) -> None:
    """Saves; on a busy machine again, but it is never refused."""
    while True:
        (outcome,) = await store.save("g", [StoreItem(assignment, str(number))])
        if outcome.kind is OutcomeKind.DURABLE:
            return
        assert outcome.kind is OutcomeKind.RETRY


async def stored(store: CheckpointStore) -> str | None:
    """What is there."""
    while True:
        with suppress(TransientStoreError):
            return (await store.peek("g", [FIRST]))[FIRST]


async def until_refused(child: Process, number: int) -> None:
    """Nothing that it says to be durable is newer than what its successor found."""
    while True:
        kind, mine = await said(child)
        if kind == "fenced":
            return
        assert kind != "durable" or mine <= number


async def race(*place: str, expiring: Container[int] = ()) -> None:
    """Twenty takeovers; in some of them the owner is paused until its session has expired."""
    chaos, store = random.Random(7), await opened(*place)
    async with owner_process(*place) as child:
        try:
            for epoch in range(RUNS):
                pause = SESSION_TIMEOUT * 2 if epoch in expiring else 0.0
                await takeover(child, store, epoch, pause, chaos)
        finally:
            await store.aclose()


@pytest.mark.campaign
@pytest.mark.zookeeper
async def test_paused_owner_is_refused_by_zookeeper(zookeeper_server: ZooKeeperEndpoint) -> None:
    """SIGSTOP in the middle of saving, a takeover, SIGCONT, 20 times: no stale write succeeds.

    In some of the runs the session of the paused process has expired as well.
    """
    root = f"/paused-{uuid.uuid4().hex}"
    await race("zookeeper", zookeeper_server.hosts, root, expiring=range(0, RUNS, 5))


async def test_paused_owner_is_refused_by_a_file(tmp_path: Path) -> None:
    """The same between two processes of one host."""
    await race("local", str(tmp_path / "state.db"))

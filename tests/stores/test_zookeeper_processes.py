"""Owners in different processes: one is stopped in its tracks, and goes on too late."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from consumer_sdk.abc import StoreItem
from consumer_sdk.records import OutcomeKind
from consumer_sdk.stores import ZooKeeperStore
from consumer_sdk.testing.servers import ZooKeeperEndpoint
from tests.stores.zookeeper_child import FIRST, SESSION_TIMEOUT, claim

pytestmark = pytest.mark.zookeeper

ROOT = Path(__file__).parents[2]
RUNS = 20
EXPIRING = range(0, RUNS, 5)
"""Runs in which the paused owner's session expires as well."""


@asynccontextmanager
async def owner_process(hosts: str, root: str) -> AsyncIterator[Process]:
    """A process of `tests.stores.zookeeper_child`."""
    module = ("-W", "error", "-m", "tests.stores.zookeeper_child")
    child = await asyncio.create_subprocess_exec(
        sys.executable, *module, hosts, root, cwd=ROOT, stdin=PIPE, stdout=PIPE
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


async def takeover(child: Process, store: ZooKeeperStore, run: int, chaos: random.Random) -> None:
    """The child owns, is stopped, is replaced, goes on, and is refused."""
    assert child.stdin is not None
    child.stdin.write(b"own it\n")
    for _ in range(chaos.randint(1, 30)):
        assert (await said(child))[0] == "durable"
    await asyncio.sleep(chaos.uniform(0, 0.003))  # anywhere within a save
    child.send_signal(signal.SIGSTOP)
    if run in EXPIRING:
        await asyncio.sleep(SESSION_TIMEOUT * 2)
    assignment, number = await claim(store, run)
    (outcome,) = await store.save("g", [StoreItem(assignment, str(number + 1000))])
    assert outcome.kind is OutcomeKind.DURABLE
    child.send_signal(signal.SIGCONT)
    await until_refused(child, number)
    (outcome,) = await store.save("g", [StoreItem(assignment, str(number + 2000))])
    assert outcome.kind is OutcomeKind.DURABLE
    assert await store.peek("g", [FIRST]) == {FIRST: str(number + 2000)}


async def until_refused(child: Process, number: int) -> None:
    """Nothing that it says to be durable is newer than what its successor found."""
    while True:
        kind, mine = await said(child)
        if kind == "fenced":
            return
        assert kind != "durable" or mine <= number


@pytest.mark.timeout(180)
async def test_paused_owner_that_goes_on_is_refused_in_twenty_runs(
    zookeeper_server: ZooKeeperEndpoint,
) -> None:
    """SIGSTOP in the middle of saving, a takeover, SIGCONT: every stale write is refused.

    In some of the runs the session of the paused process has expired as well.
    """
    root, chaos = f"/paused-{uuid.uuid4().hex}", random.Random(7)
    store = ZooKeeperStore(zookeeper_server.hosts, root=root)
    await store.open()
    async with owner_process(zookeeper_server.hosts, root) as child:
        try:
            for run in range(RUNS):
                await takeover(child, store, run, chaos)
        finally:
            await store.aclose()

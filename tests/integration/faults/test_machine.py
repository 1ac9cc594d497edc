"""The machine has no disk, no descriptors or no memory left, the store's file is locked, or its clock is wrong: nothing is lost."""

from __future__ import annotations

import asyncio
import resource
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import KafkaServer
from tests.integration.faults.fault_proxy import Fault, FaultProxy, kafka_addresses
from tests.integration.faults.worlds import KafkaWorld, Member, World

pytestmark = [pytest.mark.kafka, pytest.mark.campaign]

RATE = 200
SPELL = 15.0
"""Seconds of each trouble: longer than a session."""
TURNS = 3
DAY = 86_400
SLACK = 1 << 20
"""Bytes that a member may still take where there is no memory."""
BURST, LARGE = 500, 40_000
"""Records, and bytes of each, that come at once."""


@asynccontextmanager
async def at_work(world: World, *command: str, clock: str = "") -> AsyncIterator[Member]:
    """A member that has begun; at the end of the block everything is handled, in the order of each key."""
    await world.create()
    async with world.members_gone():
        async with world.producing(RATE):
            member = await world.join(*command, clock=clock)
            await goes_on(world, member)
            yield member
        await world.until_all(*[m for m in world.members if m.process.returncode is None])
    world.ledger.check_order()
    print(  # noqa: T201 - what a campaign was run for
        f"{len(world.ledger.produced)} records, 0 lost, {world.ledger.repeated} handled again, "
        f"{len(world.members)} processes"
    )


async def goes_on(world: World, member: Member) -> None:
    """What has been produced by now is handled."""
    count = len(world.ledger.produced) + RATE
    await world.until(lambda: len(world.ledger.done) >= count, "it goes on", member)


async def for_a_while(world: World, member: Member) -> None:
    """The trouble lasts, and the member lives."""
    until = asyncio.get_running_loop().time() + SPELL
    while asyncio.get_running_loop().time() < until:
        member.check()
        world.ledger.read()
        await asyncio.sleep(0.2)


async def test_full_disk_is_waited_for(kafka_server: KafkaServer, tmp_path: Path) -> None:
    """The store's file cannot be written; the log says so, and it goes on when there is space."""
    unshare = [shutil.which("unshare") or "false", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:  # noqa: ASYNC221 - before anything runs
        pytest.skip("this system lets nobody mount a disk of his own")
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=1m tmpfs {disk} && exec "$@"'  # gone with the process
    world = KafkaWorld(kafka_server, tmp_path, f"sqlite://{disk}/checkpoints.db")
    async with at_work(world, *unshare, "sh", "-c", script, "sh") as member:
        ballast = Path(f"/proc/{member.pid}/root{disk}/ballast")
        for _ in range(TURNS):
            with pytest.raises(OSError, match="No space left"):
                fill(ballast)
            await for_a_while(world, member)
            ballast.unlink()  # noqa: ASYNC240 - a file in memory
            await goes_on(world, member)
    assert "the disk is full" in member.log.read_text()


def fill(file: Path) -> None:
    """Writes until there is no space left."""
    with file.open("ab", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


async def test_locked_store_is_waited_for(kafka_server: KafkaServer, tmp_path: Path) -> None:
    """Another program holds the store's file for longer than a session."""
    world = KafkaWorld(kafka_server, tmp_path, "sqlite")
    async with at_work(world) as member:
        for _ in range(TURNS):
            path = world.store.removeprefix("sqlite://")
            with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as other:
                other.execute("BEGIN EXCLUSIVE")
                await for_a_while(world, member)
                other.execute("ROLLBACK")
            await goes_on(world, member)
    assert "locked" in member.log.read_text()


async def test_process_without_descriptors_goes_on_when_it_has_some(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    """All its connections break, and none can be made."""
    async with FaultProxy(kafka_server.bootstrap_servers, kafka_addresses) as proxy:
        world = KafkaWorld(kafka_server, tmp_path, address=proxy.address)
        async with at_work(world) as member:
            for _ in range(TURNS):
                before = resource.prlimit(member.pid, resource.RLIMIT_NOFILE)
                resource.prlimit(member.pid, resource.RLIMIT_NOFILE, (3, before[1]))
                await proxy.become(Fault.RESET)
                await for_a_while(world, member)
                resource.prlimit(member.pid, resource.RLIMIT_NOFILE, before)
                await proxy.become(Fault.NONE)
                await goes_on(world, member)
    assert "Too many open files" in member.log.read_text()


async def test_process_without_memory_goes_on_or_ends(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    """Megabytes of records come, and it may take none: it ends with an error, or goes on when it may take some again."""
    world = KafkaWorld(kafka_server, tmp_path, "sqlite")
    await world.create()
    missed = 0
    async with world.members_gone():
        member = await world.join()
        for _ in range(TURNS):
            await world.burst(BURST, 400)
            await world.until_all(member)
            member.signal(signal.SIGSTOP)
            await world.burst(BURST, LARGE)
            before = resource.prlimit(member.pid, resource.RLIMIT_AS)
            size = int(Path(f"/proc/{member.pid}/statm").read_text().split()[0])  # noqa: ASYNC240 - no disk
            limit = size * resource.getpagesize() + SLACK
            resource.prlimit(member.pid, resource.RLIMIT_AS, (limit, before[1]))
            member.signal(signal.SIGCONT)
            until = asyncio.get_running_loop().time() + SPELL
            while member.process.returncode is None and asyncio.get_running_loop().time() < until:
                await asyncio.sleep(0.2)
            missed += "MemoryError" in member.log.read_text()
            if member.process.returncode is None:
                resource.prlimit(member.pid, resource.RLIMIT_AS, before)
            else:
                await world.bury()
                member = await world.join()
            await world.until_all(member)
    world.ledger.check_order()
    assert missed, "it had all the memory that it wanted"
    print(  # noqa: T201 - what a campaign was run for
        f"{len(world.ledger.produced)} records, 0 lost, {world.ledger.repeated} handled again, {len(world.members)} processes"
    )


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_clock_that_jumps_a_day_holds_nothing_up(
    kafka_server: KafkaServer, tmp_path: Path, jump: int
) -> None:
    """While it runs, and between two lives: stored retries are neither due at once for ever, nor in a day."""
    offset = tmp_path / "offset"
    offset.write_text("0")
    world = KafkaWorld(kafka_server, tmp_path, "sqlite")
    async with at_work(world, clock=str(offset)) as first:
        member = first
        for turn in range(1, 2 * TURNS):
            offset.write_text(str(turn % 2 * jump))
            if turn > TURNS:
                await member.kill()
                await world.bury()
                member = await world.join(clock=str(offset))
            await goes_on(world, member)

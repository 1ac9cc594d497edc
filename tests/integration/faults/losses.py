"""Has members of a group killed, or frozen for longer than the group waits, and holds what they say against what is stored."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.integration.faults.ledger import repeats_stored
from tests.integration.faults.worlds import Member, World

__all__ = ["freeze_members", "kill_members", "stop_between_transactions"]

RATE = 200
"""Records a second."""
LONGEST = 600
"""Deliveries in a life, at most: three seconds."""
MOST_WAITING = 3_000
"""Records: a life handles fewer than come while the next one waits for its sessions and leases, and what waits would grow."""
HEIRS = 50
"""Deliveries of the one that takes over, before the frozen one wakes."""
SILENCE = 8.0
"""Seconds that it is frozen at least: longer than a session, a lease, and two of a quick Pulsar's questions to its clients."""


async def kill_members(world: World, kills: int) -> None:
    """One after the other, at random moments, and each is replaced: nothing is lost, nothing stored is repeated."""
    chance = random.Random(kills)
    world.most_waiting = MOST_WAITING
    await world.create()
    async with world.members_gone():
        async with world.producing(RATE):
            for life in range(kills):
                settled = await world.settled() if life else {}
                before = len(world.ledger.read())
                member = await world.join()
                await _more(world, member, chance.randrange(1, LONGEST))
                await member.kill()
                await world.bury()
                assert not repeats_stored(settled, world.ledger.read()[before:])
            member = await world.join()
        await world.until_all(member)
        await world.until_acked()
    _report(world, f"{kills} kills")


async def freeze_members(world: World, freezes: int) -> None:
    """SIGSTOP until another one has taken over, SIGCONT, and the other one leaves."""
    chance = random.Random(freezes)
    world.most_waiting = MOST_WAITING
    await world.create()
    async with world.members_gone():
        async with world.producing(RATE):
            member = await world.join()
            for _ in range(freezes):
                await _more(world, member, chance.randrange(1, LONGEST))
                stop_between_transactions(member.pid, world.store.removeprefix("sqlite://"))
                settled, before = await world.settled(), len(world.ledger.read())
                heir = await world.join()
                await asyncio.gather(_more(world, heir, HEIRS), asyncio.sleep(SILENCE))
                member.signal(signal.SIGCONT)
                # Pulsar may give the one that wakes a failover subscription back at once.
                await _more(world, heir, HEIRS, member)
                assert not repeats_stored(settled, world.ledger.read()[before:])
                heir.signal(signal.SIGTERM)
                await heir.process.wait()
                if (
                    member.process.returncode is not None
                ):  # an exclusive consumer that was displaced
                    member = await world.join()
                await _more(world, member, 1)
        await world.until_all(member)
    _report(world, f"{freezes} freezes")


async def _more(world: World, member: Member, count: int, *others: Member) -> None:
    """Waits for so many more deliveries of a member, or of it and others together."""
    at = len(world.ledger.read())
    lives = {each.pid for each in (member, *others)}

    def is_so() -> bool:
        return sum(line.life in lives for line in world.ledger.lines[at:]) >= count

    await world.until(is_so, f"{count} more deliveries", member)


def stop_between_transactions(pid: int, file: str) -> None:
    """Freezes a process; one that stands inside a transaction of the file would keep all others out.

    Args:
        file: where its checkpoints are, unless that is no file.
    """
    while True:
        os.kill(pid, signal.SIGSTOP)
        # SIGSTOP only asks: on a busy machine a thread may still run.
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if not Path(file).is_file() or _is_free(file):
            return
        os.kill(pid, signal.SIGCONT)


def _is_free(file: str) -> bool:
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


def _report(world: World, what: str) -> None:
    kind = next((each for each in world.url().split("&") if each.startswith("type=")), "")
    if kind != "type=shared":
        world.ledger.check_order()
    store = world.store.partition(":")[0] or "no store"
    print(  # noqa: T201 - what a campaign was run for
        f"{world.broker} {kind} {store}: {what}, {len(world.ledger.produced)} records, 0 lost, "
        f"{world.ledger.repeated} handled again"
    )

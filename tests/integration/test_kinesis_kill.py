"""``kill -9`` of one of three consumers that share twelve shards: nothing is lost."""

from __future__ import annotations

import random
import statistics
import uuid
from collections import Counter
from pathlib import Path

import pytest

from consumer_sdk.testing.servers import KinesisServer, ZooKeeperServer
from tests.integration.kinesis_consumer import LEASE
from tests.integration.kinesis_team import Team

pytestmark = pytest.mark.kinesis

MEMBERS, SHARDS = 3, 12


async def lose_none(server: KinesisServer, place: str, folder: Path, kills: int) -> None:
    """Kills one after the other, each replaced by a new one, while records are put.

    Args:
        place: of leases and checkpoints: a file, or ``zookeeper:`` and its hosts.
    """
    stream = f"kill-{uuid.uuid4().hex}"
    await server.create_stream(stream, SHARDS)
    team = Team(server, stream, SHARDS, place, folder)
    chance = random.Random(kills)
    async with team.at_work(MEMBERS):
        for _ in range(kills):
            await team.until_owned(is_even=True)
            await team.until_done(chance.randrange(1, 300))
            await team.kill(chance.choice(list(team.members)))
            await team.join()
        await team.finish()
    check(team, kills)
    report(team)


def check(team: Team, kills: int) -> None:
    """Nothing is lost, and nothing durable comes again. How soon all is owned is in the report."""
    counts = Counter(done.place for done in team.done())
    assert counts.keys() == team.produced
    assert len(team.deaths) == kills
    for death in team.deaths:
        again = [done for done in team.done(death.line) if death.is_durable(done.place)]
        assert not again
    assert counts.total() - len(counts) <= sum(death.was_open for death in team.deaths)


def report(team: Team) -> None:
    """Prints the figures; pytest shows them with ``-rP``."""
    owned = [death.owned for death in team.deaths]
    read = [death.read for death in team.deaths]
    done = team.done()
    print(  # noqa: T201 - what a slow test was run for
        f"{len(owned)} kills, lease {LEASE} s; all shards owned again after "
        f"{statistics.median(owned):.2f} s (median), {max(owned):.2f} s (longest); a record of each "
        f"read after {statistics.median(read):.2f} s, {max(read):.2f} s; {len(team.produced)} "
        f"records, 0 lost, {len(done) - len(team.produced)} processed twice, of "
        f"{sum(death.was_open for death in team.deaths)} that were open"
    )


async def test_killed_member_of_three_loses_nothing_with_a_local_store(
    kinesis_server: KinesisServer, tmp_path: Path
) -> None:
    """Once: the survivors own all shards again."""
    await lose_none(kinesis_server, str(tmp_path / "checkpoints.db"), tmp_path, 1)


@pytest.mark.campaign
@pytest.mark.zookeeper
async def test_members_killed_ten_times_lose_nothing_with_zookeeper(
    kinesis_server: KinesisServer, zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    """Leases end with their sessions."""
    await lose_none(kinesis_server, f"zookeeper:{zookeeper_server.hosts}", tmp_path, 10)

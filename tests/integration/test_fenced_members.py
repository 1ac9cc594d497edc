"""A member that was stopped for longer than its session: what it says afterwards changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Message
from tests.adapters.kafka.consumer_groups import member_ids, set_session
from tests.integration.field import Field, place, until
from tests.integration.stopped_consumer import SESSION

pytestmark = pytest.mark.kafka

CLASSIC = {"session_timeout": SESSION, "heartbeat_interval": 0.2}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": CLASSIC,
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"], **CLASSIC},
    "consumer": {"protocol": "consumer", "session_timeout": None},
}
IN_URL = {
    "eager": f"session_timeout={SESSION}",
    "cooperative": f"session_timeout={SESSION}&partition_assignment_strategy=cooperative-sticky",
    "consumer": "protocol=consumer",
}
RECORDS = 1_000


@pytest.mark.parametrize(
    "protocol", ["eager", pytest.param("cooperative", marks=pytest.mark.campaign), "consumer"]
)
async def test_member_that_was_stopped_beyond_its_session_commits_nothing_afterwards(
    field: Field, tmp_path: Path, protocol: str
) -> None:
    """SIGSTOP with handlers at work; another member does all; SIGCONT: the group's position stays there."""
    await field.create()
    await set_session(field.kafka.admin, field.group, SESSION)
    await field.append(RECORDS)
    file = tmp_path / "started"
    url = f"kafka://{field.kafka.servers}/{field.topic}?group={field.group}&{IN_URL[protocol]}"
    stopped = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.stopped_consumer", url, str(file)
    )
    seen = set()

    async def handle(message: Message) -> None:
        seen.add(place(message))

    try:
        await until(lambda: _started(file) > 50, "it works")
        os.kill(stopped.pid, signal.SIGSTOP)
        assert _started(file) < RECORDS
        async with field.running(field.consumer(adapter=PROTOCOLS[protocol]), handle) as heir:
            await until(lambda: (0, RECORDS - 1) in seen, "the heir has done all", heir)
            await field.until_committed({0: RECORDS})
            os.kill(stopped.pid, signal.SIGCONT)
            while await _members(field) < 2:
                assert await field.committed() == {0: RECORDS}
            await field.append(10)
            await field.until_committed({0: RECORDS + 10})
            assert not heir.done()
    finally:
        stopped.kill()
        await stopped.wait()
    assert field.seen_commits[0] == sorted(field.seen_commits[0])


def _started(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


async def _members(field: Field) -> int:
    """How many the group knows, of either protocol."""
    (answer,) = await field.kafka.admin.describe_consumer_groups([field.group])
    return len(answer.groups[0][5]) + len(await member_ids(field.kafka.admin, field.group))

"""Enhanced fan-out on a real server: records are pushed, and a restart goes on where it was.

kinesis-local never ends a subscription to a closed shard and tells of no child shards there, so
resharding under fan-out is tested on the fake alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_sdk.testing.servers import KinesisServer
from tests.integration.field import until
from tests.integration.kinesis_field import KinesisField, Seen

pytestmark = pytest.mark.kinesis


async def test_subscriber_is_registered_and_a_restart_goes_on_where_it_was(
    kinesis_server: KinesisServer, tmp_path: Path
) -> None:
    """No record is polled for, lost or repeated; the consumer's name is found again."""
    field = KinesisField(kinesis_server, tmp_path)
    await field.create(2)
    seen = Seen()
    for _ in range(2):
        adapter = field.adapter(fan_out="subscriber")
        async with field.running(field.consumer(adapter), seen.handle) as task:
            for _ in range(2):
                await field.append(20)
                await until(lambda: len(seen.numbers) == field.put, "what is new", task)
        assert not adapter.asked
    assert seen.is_ordered()

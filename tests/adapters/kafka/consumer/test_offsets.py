"""Where partitions start: what comes between two questions to a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.adapters.kafka.client.lookups import LATEST
from consumer_sdk.records import AtTime
from consumer_sdk.testing.conformance.adapters import Record
from tests.adapters.kafka.world import World, cluster_of

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("question", [LATEST, 2_000])
async def test_record_that_comes_between_two_questions_is_not_skipped(
    world: World, question: int
) -> None:
    """A start at a time that no record has reached yet is the end as it was before."""
    topic = await world.kafka.create_stream()
    await world.kafka.append(topic, [Record(b"old", timestamp=1_000)])
    async with world.member(topic) as member:
        await member.holding(1)
        cluster = cluster_of(member)
        real = cluster.list_offsets

        async def race(times: Any, **options: Any) -> Any:
            answer = await real(times, **options)
            if question in times.values():
                await world.kafka.append(topic, [Record(b"new", timestamp=2_500)])
            return answer

        cluster.list_offsets = race
        session: Any = member.adapter._session  # type: ignore[attr-defined]  # Kafka's
        (grant,) = session.grants
        grant.start = AtTime(2.0)
        assert await session.offsets.resolve([grant], has_group=True) == {grant: 1}

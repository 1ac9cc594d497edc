"""When a topic counts as gone, and when its metadata are only an error.

The answers are the client's own responses, given by a script on virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.protocol.metadata import MetadataResponse_v1

from consumer_sdk.adapters.kafka.client.lookups import LATEST, ListOffsetsResponseV4
from consumer_sdk.adapters.kafka.ranges import KafkaRanges
from consumer_sdk.adapters.kafka.ranges.connection import Connection
from consumer_sdk.adapters.kafka.ranges.reader import Selection
from consumer_sdk.errors import AdapterError, TransientAdapterError
from consumer_sdk.testing import Simulation, simulate

TP = TopicPartition("t", 0)
UNKNOWN, NO_LEADER, FORBIDDEN = 3, 5, 29
END = 7
LISTED = [(0, "t", False, [(0, 0, 1, [1], [1])])]


def wrong(code: int) -> list[Any]:
    """Metadata of a topic that are an error."""
    return [(code, "t", False, [])]


class Script(Connection):
    """Gives metadata one after another; the last ones again and again.

    Args:
        metadata: the topics of each answer.
        described: the error that the topic has when it is asked for by name.
    """

    def __init__(self, *metadata: Sequence[Any], described: int = UNKNOWN, **options: Any) -> None:
        chosen = options or {"topics": "t"}
        reader = KafkaRanges(bootstrap_servers="127.0.0.1:1", read_timeout=10, **chosen)
        super().__init__(reader._options)
        self._metadata = list(metadata)
        self._described = described
        cluster: Any = self.cluster
        cluster.send, cluster.refresh = self._answer, self.refresh

    async def refresh(self) -> None:
        """Takes the next metadata in."""
        topics = self._metadata.pop(0) if len(self._metadata) > 1 else self._metadata[0]
        answer = MetadataResponse_v1([(1, "h", 1, None)], 1, topics)
        now, lists_all = asyncio.get_running_loop().time(), not self.options.names
        self.cluster.metadata.take(answer, now, lists_all=lists_all)

    async def _answer(self, node: int | None, _request: Any) -> Any:
        """Where the log ends; of any node: what the topic is."""
        if node is not None:
            return ListOffsetsResponseV4(0, [("t", [(0, 0, -1, END, 0)])])
        partitions: list[Any] = [] if self._described else [(0, 0, 1, [1], [1])]
        entry = (self._described, "t", False, partitions)
        return MetadataResponse_v1([(1, "h", 1, None)], 1, [entry])


async def listed(cluster: Script) -> list[str]:
    """The partitions that a reader shows."""
    return [str(partition) for partition in await Selection(cluster).partitions()]


async def end(cluster: Script) -> int | None:
    """Where the partition ends; None: it is gone."""
    return (await cluster.look_up([TP], LATEST))[TP]


@pytest.mark.parametrize("options", [{"topics": "t"}, {"pattern": "t.*"}], ids=str)
def test_topic_without_a_leader_for_a_moment_is_waited_for(options: dict[str, Any]) -> None:
    """The client forgets it: who lists partitions then would take them for gone."""

    async def main(_: Simulation) -> None:
        answers = [LISTED, wrong(NO_LEADER), wrong(NO_LEADER), LISTED]
        cluster = Script(*answers, **options)
        assert await listed(cluster) == ["t/0"]
        await asyncio.sleep(5)
        assert await listed(cluster) == ["t/0"]

    simulate(main)


@pytest.mark.parametrize("ask", [listed, end])
def test_topic_without_a_leader_for_long_is_an_outage(ask: Any) -> None:
    """Neither an empty list, nor a loss."""

    async def main(_: Simulation) -> None:
        with pytest.raises(TransientAdapterError, match="given up after 10 s"):
            await ask(Script(wrong(NO_LEADER)))

    simulate(main)


@pytest.mark.parametrize("ask", [listed, end])
def test_topic_that_is_forbidden_is_an_error_and_not_gone(ask: Any) -> None:
    """An ACL that was withdrawn: it says what to grant."""

    async def main(_: Simulation) -> None:
        cluster = Script(wrong(FORBIDDEN))
        await cluster.refresh()
        with pytest.raises(AdapterError, match="ACLs") as caught:
            await ask(cluster)
        assert not isinstance(caught.value, TransientAdapterError)

    simulate(main)


def test_topic_that_a_list_of_all_leaves_out_is_asked_for_by_name() -> None:
    """Brokers leave out what is forbidden, without a word."""

    async def main(_: Simulation) -> None:
        with pytest.raises(AdapterError, match="ACLs"):
            await end(Script([], described=FORBIDDEN, pattern="t.*"))
        with pytest.raises(TransientAdapterError, match="there after all"):
            await end(Script([], described=0, pattern="t.*"))

    simulate(main)


def test_topic_that_no_broker_knows_by_name_is_gone() -> None:
    """After a while: a new one is not known to all of them at once."""

    async def main(_: Simulation) -> None:
        cluster = Script(wrong(UNKNOWN))
        now = asyncio.get_running_loop().time
        started = now()
        assert await end(cluster) is None
        assert 2 <= now() - started < 3
        assert await listed(cluster) == []

    simulate(main)

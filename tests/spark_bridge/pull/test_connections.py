"""Claims about the connections that tasks of one process share."""

from __future__ import annotations

import asyncio

import pytest

from consumer_sdk.errors import TransientAdapterError
from consumer_sdk.spark_bridge.pull.connections import IDLE_SECONDS, Connections
from consumer_sdk.testing import simulate
from consumer_sdk.testing.simulation import Simulation
from tests.spark_bridge.pull.memory_ranges import Logs, Openings


async def use(connections: Connections, options: Openings) -> int:
    """Borrow a reader for a moment; return who it is."""
    async with connections.borrowed(options) as reader:
        await reader.partitions()
        return id(reader)


def test_a_second_task_gets_the_same_connection() -> None:
    """A connection costs milliseconds, with TLS many: it outlives its task."""

    async def main(_: Simulation) -> None:
        logs, connections = Logs.of(1), Connections()
        first = await use(connections, Openings(logs))
        assert await use(connections, Openings(logs)) == first
        assert (logs.opened, logs.closed) == (1, 0)
        await connections.aclose()
        assert logs.closed == 1

    simulate(main)


def test_tasks_at_the_same_time_share_one_connection() -> None:
    """Also while it opens."""

    async def main(_: Simulation) -> None:
        logs, connections = Logs.of(1), Connections()
        logs.delay = 1.0
        found = await asyncio.gather(*(use(connections, Openings(logs)) for _ in range(5)))
        assert len(set(found)) == 1
        assert logs.opened == 1
        await connections.aclose()

    simulate(main)


def test_other_options_get_another_connection() -> None:
    """Trap 14: a worker serves several queries, with brokers and credentials of their own."""

    async def main(_: Simulation) -> None:
        logs, connections = Logs.of(1), Connections()
        one = await use(connections, Openings(logs, "one"))
        assert await use(connections, Openings(logs, "two")) != one
        assert logs.opened == 2
        await connections.aclose()
        assert logs.closed == 2

    simulate(main)


def test_an_idle_connection_is_closed() -> None:
    """Not before its time, and a use starts the time anew."""

    async def main(_: Simulation) -> None:
        logs, connections = Logs.of(1), Connections()
        await use(connections, Openings(logs))
        await asyncio.sleep(IDLE_SECONDS - 1)
        await use(connections, Openings(logs))
        await asyncio.sleep(IDLE_SECONDS - 1)
        assert logs.closed == 0
        await asyncio.sleep(2)
        assert logs.closed == 1
        await use(connections, Openings(logs))
        assert logs.opened == 2
        await connections.aclose()

    simulate(main)


def test_a_connection_that_failed_somebody_is_not_used_again() -> None:
    """Its last user closes it."""

    async def main(_: Simulation) -> None:
        logs, connections = Logs.of(1), Connections()
        async with connections.borrowed(Openings(logs)):
            with pytest.raises(TransientAdapterError):
                async with connections.borrowed(Openings(logs)):
                    raise TransientAdapterError("gone")
            assert logs.closed == 0
            await use(connections, Openings(logs))
            assert logs.opened == 2
        assert logs.closed == 1
        await connections.aclose()

    simulate(main)


def test_a_connection_that_cannot_be_opened_fails_all_who_wait_for_it() -> None:
    """The next one tries anew."""

    async def main(_: Simulation) -> None:
        logs, connections = Logs.of(1), Connections()
        logs.faults = [TransientAdapterError("down")]
        found = await asyncio.gather(
            use(connections, Openings(logs)),
            use(connections, Openings(logs)),
            return_exceptions=True,
        )
        assert [type(each) for each in found] == [TransientAdapterError] * 2
        assert logs.closed == 1
        await use(connections, Openings(logs))
        await connections.aclose()
        assert (logs.opened, logs.closed) == (2, 2)

    simulate(main)


def test_a_cancelled_user_leaves_no_connection_behind() -> None:
    """A task that is killed while it opens."""

    async def main(_: Simulation) -> None:
        logs, connections = Logs.of(1), Connections()
        logs.delay = 10.0
        using = asyncio.create_task(use(connections, Openings(logs)))
        await asyncio.sleep(1)
        using.cancel()
        await asyncio.wait([using])
        assert (logs.opened, logs.closed) == (1, 1)

    simulate(main)

"""How often nodes are connected to, and what is said where they are away; on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError, NodeNotReadyError, SaslAuthenticationFailed

from consumer_sdk.adapters.kafka.client import connections
from consumer_sdk.adapters.kafka.client.cluster_metadata import Broker
from consumer_sdk.adapters.kafka.client.connections import LONGEST_REST, Channel, Connections
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.testing import simulate


class World:
    """Nodes, of which some refuse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nodes: int = 1) -> None:
        self.refusal: Exception | None = ConnectionRefusedError("refused")
        self.tries: Counter[str] = Counter()
        self.lost = 0
        self.seconds = 0.001
        self.brokers = {n: Broker(n, f"broker-{n}", 9092, None) for n in range(nodes)}
        monkeypatch.setattr(connections, "open_connection", self._open)
        options = {"connections_max_idle_ms": 1_000}
        self.connections = Connections(options, 10.0, lambda: self.brokers, self._lose)

    def _lose(self) -> None:
        self.lost += 1

    async def _open(self, host: str, port: int, **_options: Any) -> Any:
        self.tries[host] += 1
        await asyncio.sleep(self.seconds)
        if host == "broker-0" and self.refusal is not None:
            raise self.refusal
        return SimpleNamespace(connected=lambda: True, host=host, port=port, close=_closed)

    async def ask(self, node: int, seconds: float, channel: Channel = Channel.QUESTIONS) -> None:
        """As each task does: again and again."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            try:
                await self.connections.get(node, channel)
            except NodeNotReadyError:
                await asyncio.sleep(0.1)
            else:
                return


def _closed(_reason: object = None) -> None:
    """Ends at once."""


def test_node_that_refuses_is_tried_every_other_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tasks want it, by whatever channel; and soon after it takes connections again."""

    async def scenario() -> None:
        world = World(monkeypatch)
        await asyncio.gather(*[world.ask(0, 60, channel) for channel in Channel for _ in range(2)])
        tries = world.tries["broker-0"]
        assert tries > 60 / LONGEST_REST * 0.8
        assert tries < 60 / LONGEST_REST * 1.25 + 8 + len(Channel)  # which all try first
        assert world.lost == world.tries["broker-0"]
        world.refusal = None
        async with asyncio.timeout(LONGEST_REST * 1.3):
            await world.connections.get(0, Channel.FETCHES)

    simulate(lambda _: scenario())


def test_other_nodes_are_asked_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that rests, or hangs, holds up nobody, and is asked last."""

    async def scenario() -> None:
        world = World(monkeypatch, nodes=2)
        await world.connections.get(1, Channel.QUESTIONS)
        await world.ask(0, 1)
        now = asyncio.get_running_loop().time
        started = now()
        with pytest.raises(NodeNotReadyError):
            await world.connections.get(0, Channel.QUESTIONS)
        assert now() == started
        assert world.connections.order() == [1, 0]
        await asyncio.sleep(60)
        world.seconds = 5.0
        hanging = asyncio.create_task(world.ask(0, 0.1))
        await asyncio.sleep(0)
        world.seconds = 0.001
        started = now()
        await world.connections.get(1, Channel.FETCHES)
        assert now() - started < 1
        await hanging

    simulate(lambda _: scenario())


def test_connecting_is_shared_and_survives_who_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled caller takes nothing from the others."""

    async def scenario() -> None:
        world = World(monkeypatch)
        world.refusal = None
        first, *others = [
            asyncio.create_task(world.connections.get(0, Channel.QUESTIONS)) for _ in range(5)
        ]
        await asyncio.sleep(0)
        first.cancel()
        found = await asyncio.gather(*others)
        assert len({id(each) for each in found}) == 1
        assert world.tries["broker-0"] == 1

    simulate(lambda _: scenario())


@pytest.mark.parametrize(
    "refusal, said",
    [
        (SaslAuthenticationFailed("token expired"), "token expired; check security_protocol"),
        (ConfigurationError("the token provider returned an int"), "returned an int"),
    ],
)
def test_reason_is_in_the_error(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception, said: str
) -> None:
    """A node that "is not ready" may have refused our token, or have got none."""

    async def scenario() -> None:
        world = World(monkeypatch)
        world.refusal = refusal
        with pytest.raises(NodeNotReadyError, match="node 0 at broker-0:9092") as caught:
            await world.connections.get(0, Channel.QUESTIONS)
        assert said in str(caught.value)
        assert world.connections.why_away() in str(caught.value)
        assert caught.value.retriable  # the next token may be taken

    simulate(lambda _: scenario())


def test_closing_ends_who_connects_and_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once; nothing is left."""

    async def scenario() -> None:
        world = World(monkeypatch, nodes=1)
        world.seconds = 9.0
        waiting = [
            asyncio.create_task(world.connections.get(0, channel))
            for channel in (Channel.QUESTIONS, Channel.FETCHES)
        ]
        await asyncio.sleep(1)
        await world.connections.aclose()
        for each in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(each, KafkaError)
        assert asyncio.get_running_loop().time() < 2

    simulate(lambda _: scenario())

"""How often a broker that refuses is asked, and what is said of it; on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import NodeNotReadyError, SaslAuthenticationFailed

from consumer_sdk.adapters.kafka.client import producers
from consumer_sdk.adapters.kafka.client.connections import LONGEST_REST, Pace
from consumer_sdk.adapters.kafka.client.producers import Reconnecting
from consumer_sdk.testing import simulate

ADDRESS = ("broker-1", 9092)


def test_rests_grow_to_seconds_and_end_with_a_success() -> None:
    """Twice as long each time; a success makes the next failure the first."""
    pace = Pace(chance=lambda: 0.5)
    rests = []
    for _ in range(10):
        pace.failed(ADDRESS, OSError("refused"), now=100.0)
        rests.append(pace.rest(ADDRESS, 100.0))
    assert rests[:4] == pytest.approx([0.05, 0.1, 0.2, 0.4])
    assert rests[-1] == pytest.approx(LONGEST_REST)
    assert pace.rest(ADDRESS, 100.0 + LONGEST_REST) == 0
    assert pace.rest(("broker-2", 9092), 100.0) == 0
    pace.worked(ADDRESS)
    assert pace.error(ADDRESS) is None
    pace.failed(ADDRESS, OSError("refused"), now=200.0)
    assert pace.rest(ADDRESS, 200.0) == pytest.approx(0.05)


def test_rests_of_two_clients_differ() -> None:
    """A broker that comes back is not met by all of them at once."""
    rests = set()
    for chance in (0.0, 1.0):
        pace = Pace(chance=lambda chance=chance: chance)  # type: ignore[misc]  # a default of its own
        pace.failed(ADDRESS, OSError(), now=0.0)
        rests.add(round(pace.rest(ADDRESS, 0.0), 3))
    assert rests == {0.04, 0.06}


class Cluster:
    """A client's brokers, of which some refuse."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nodes: int = 1) -> None:
        self.refusal: Exception | None = ConnectionRefusedError("refused")
        self.tries: Counter[str] = Counter()
        brokers = [SimpleNamespace(nodeId=n, host=f"broker-{n}", port=9092) for n in range(nodes)]
        self.client: Any = SimpleNamespace(
            _conns={},
            _get_conn_lock=asyncio.Lock(),
            _on_connection_closed=None,
            _connections_max_idle_ms=None,
            cluster=SimpleNamespace(brokers=lambda: brokers, broker_metadata=brokers.__getitem__),
            force_metadata_update=lambda: None,
            send=self._send,
        )
        Reconnecting(self.client)
        monkeypatch.setattr(producers, "open_connection", self._open)
        monkeypatch.setattr(producers, "_connection_options", lambda _client: {})

    async def _open(self, host: str, _port: int, **_options: Any) -> Any:
        self.tries[host] += 1
        await asyncio.sleep(0.001)
        if host == "broker-0" and self.refusal is not None:
            raise self.refusal
        return SimpleNamespace(connected=lambda: True)

    async def _send(self, node: int, _request: object) -> None:
        if await self.client._get_conn(node) is None:
            raise NodeNotReadyError(f"not ready (node id {node})")

    async def ask(self, node: int, seconds: float) -> None:
        """As each of the client's tasks does: again and again."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            try:
                await self.client.send(node, None)
            except NodeNotReadyError:
                await asyncio.sleep(0.1)


def test_broker_that_refuses_is_asked_every_other_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of the client's tasks want it: 25 times a second without that."""

    async def scenario() -> None:
        cluster = Cluster(monkeypatch)
        await asyncio.gather(*[cluster.ask(0, 60) for _ in range(4)])
        assert 60 / LONGEST_REST * 0.8 < cluster.tries["broker-0"] < 60 / LONGEST_REST * 1.25 + 8
        cluster.refusal = None
        async with asyncio.timeout(LONGEST_REST * 1.3):
            await cluster.client.send(0, None)

    simulate(lambda _: scenario())


def test_other_brokers_are_asked_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that rests holds up nobody."""

    async def scenario() -> None:
        cluster = Cluster(monkeypatch, nodes=2)
        await cluster.client.send(1, None)
        await cluster.ask(0, 1)
        now = asyncio.get_running_loop().time()
        with pytest.raises(NodeNotReadyError):
            await cluster.client.send(0, None)
        assert asyncio.get_running_loop().time() == now
        await cluster.ask(0, 60)
        assert cluster.tries["broker-0"] < 60 / LONGEST_REST * 1.25 + 10

    simulate(lambda _: scenario())


def test_reason_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that "is not ready" may have refused our token."""

    async def scenario() -> None:
        cluster = Cluster(monkeypatch)
        cluster.refusal = SaslAuthenticationFailed("token expired")
        with pytest.raises(NodeNotReadyError) as caught:
            await cluster.client.send(0, None)
        said = str(caught.value)
        assert "node 0 at broker-0:9092: SaslAuthenticationFailed" in said
        assert "token expired; check security_protocol" in said
        assert caught.value.retriable  # the next token may be taken

    simulate(lambda _: scenario())

"""A network between clients and a real Kafka on which a bit flips."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Self

import pytest
from aiokafka.cluster import ClusterMetadata

from consumer_sdk.adapters.kafka.client import cluster_metadata

__all__ = ["FlippingProxy"]

FETCH = 1
"""The request's key in Kafka's protocol."""


class FlippingProxy:
    """Passes frames on; flips one bit of answers to fetches.

    Args:
        server: ``host:port`` of the broker.

    Attributes:
        flips: bits that are to flip yet, each in an answer of its own.
        flipped: bits that have.
    """

    def __init__(self, server: str) -> None:
        self._target = server.split(":")
        self._links: set[asyncio.Task[None]] = set()
        self.flips = 0
        self.flipped = 0
        self._place: Callable[[bytes], int] = lambda _answer: -1

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for link in self._links:
            link.cancel()
        if self._links:
            await asyncio.wait(self._links)

    def flip(self, place: Callable[[bytes], int], times: int = 1) -> None:
        """Flips a bit of the byte at a place of an answer, where that is not negative."""
        self._place, self.flips = place, times

    def route(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Clients take this way to the broker from now on; connections that are there stay."""
        found = ClusterMetadata.broker_metadata
        port = self._server.sockets[0].getsockname()[1]

        def through_here(cluster: Any, node: Any) -> Any:
            broker = found(cluster, node)
            return broker and broker._replace(host="127.0.0.1", port=port)

        monkeypatch.setattr(ClusterMetadata, "broker_metadata", through_here)
        self._route_ours(monkeypatch, port)

    @staticmethod
    def _route_ours(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
        ours = cluster_metadata.ClusterMetadata
        take = ours.take

        def taken(self: Any, answer: Any, now: float, **options: Any) -> bool:
            is_changed = take(self, answer, now, **options)
            found = self.brokers.values()
            self.brokers = {b.node: b._replace(host="127.0.0.1", port=port) for b in found}
            return is_changed

        monkeypatch.setattr(ours, "take", taken)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        link.add_done_callback(self._links.discard)
        broker = await asyncio.open_connection(*self._target)
        fetches: set[int] = set()

        def asked(frame: bytes) -> bytes:
            key, _version, number = struct.unpack_from(">hhi", frame)
            fetches.update([number] if key == FETCH else [])
            return frame

        def answered(frame: bytes) -> bytes:
            return self._changed(frame) if struct.unpack_from(">i", frame)[0] in fetches else frame

        ways = [(reader, broker[1], asked), (broker[0], writer, answered)]
        tasks = [asyncio.ensure_future(_pass_on(*way)) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # the end of the test
        finally:
            for task, way in zip(tasks, ways, strict=True):
                task.cancel()
                way[1].close()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _changed(self, frame: bytes) -> bytes:
        at = self._place(frame)
        if self.flips <= 0 or at < 0:
            return frame
        self.flips -= 1
        self.flipped += 1
        return frame[:at] + bytes([frame[at] ^ 0x10]) + frame[at + 1 :]


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, look: Callable[[bytes], bytes]
) -> None:
    while True:
        head = await reader.readexactly(4)
        frame = await reader.readexactly(int.from_bytes(head))
        writer.write(head + look(frame))
        await writer.drain()

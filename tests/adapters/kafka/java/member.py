"""Java's consumer as a member of a group, in a process of its own."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

from benchmarks.java_program import JavaProgram
from consumer_sdk.testing.servers.kafka import KAFKA_JARS

__all__ = ["JavaMember", "JavaShareMember", "Place"]

Place = tuple[int, int]
"""A record's partition and offset."""

_SOURCE = Path(__file__).parent / "GroupMember.java"
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
_LINE = 1 << 20
"""Bytes of a line at most."""


@cache
def _program(source: Path) -> JavaProgram:
    return JavaProgram(source, KAFKA_JARS)


class JavaMember:
    """``async with JavaMember(…)``: a member that reads, commits, and leaves at the end of the block.

    Args:
        topics: their names, or one text that begins with ``^``: a pattern.
        protocol: Java's ``group.protocol``.
        assignor: the class for ``classic``, the server's assignor for ``consumer``; Kafka's default if "".
        instance_id: of a static member.
        session: seconds; for ``consumer`` the broker decides.
        properties: any other property of the client, underscores for dots.

    Attributes:
        held: the partitions that it has now.
        read: how often it has read each record.
        committed: the position that it has committed last, by partition.
        events: all else that it said, in order: ``("assigned", {0, 1})``.
    """

    _source = _SOURCE

    def __init__(
        self,
        servers: str,
        topics: str | Sequence[str],
        group: str,
        *,
        protocol: str = "classic",
        assignor: str = "",
        instance_id: str = "",
        session: float = 30.0,
        **properties: object,
    ) -> None:
        self._topics = topics if isinstance(topics, str) else ",".join(topics)
        is_classic = protocol == "classic"
        found: dict[str, object] = {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "group.instance.id": instance_id,
            "partition.assignment.strategy" if is_classic else "group.remote.assignor": assignor,
        }
        if is_classic:
            found |= {"session.timeout.ms": round(session * 1000), "heartbeat.interval.ms": 100}
        found |= {name.replace("_", "."): value for name, value in properties.items()}
        self._properties = [f"{name}={value}" for name, value in found.items() if value != ""]
        self.held: set[int] = set()
        self.read: Counter[Place] = Counter()
        self.committed: dict[int, int] = {}
        self.events: list[tuple[str, set[int]]] = []

    async def __aenter__(self) -> Self:
        program = await asyncio.to_thread(_program, self._source)
        pipe = asyncio.subprocess.PIPE
        command = program.command(self._topics, *self._properties, options=_QUICK)
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=_LINE
        )
        self.hearing = asyncio.create_task(self._hear())
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.close()
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def close(self) -> None:
        """Leaves the group, and ends the process; does nothing the second time."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self.hearing
        assert await self._process.wait() == 0, "its error is above"
        assert self.events[-1][0] == "closed"

    async def _hear(self) -> None:
        """Ends with the process."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        match said:
            case {"event": "record", "partition": partition, "offset": offset}:
                self.read[partition, offset] += 1
            case {"event": "committed", "offsets": offsets}:
                self.committed |= {partition: offset for _, partition, offset in offsets}
            case {"event": event}:
                partitions = {partition for _, partition in said.get("partitions", ())}
                self.held = (
                    self.held | partitions if event == "assigned" else self.held - partitions
                )
                self.events.append((event, partitions))


class JavaShareMember(JavaMember):
    """``async with JavaShareMember(…)``: a member of a share group that accepts what it reads."""

    _source = Path(__file__).parent / "ShareGroupMember.java"

    def __init__(self, servers: str, topics: Sequence[str], group: str) -> None:
        super().__init__(servers, topics, group)
        others = ("group.protocol", "session.timeout", "heartbeat.interval", "group.instance")
        self._properties = [each for each in self._properties if not each.startswith(others)]

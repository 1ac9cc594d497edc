"""Ranges of a log that transactions write to while Kafka compacts it, against a plain model of both, by a seed."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchResponse_v11

from consumer_sdk.adapters.kafka.ranges.reading import RangeRead
from consumer_sdk.testing import Simulation, simulate
from tests.adapters.kafka.decoding.transactional_log import (
    TransactionalLog,
    compact,
    write_by_chance,
)
from tests.adapters.kafka.ranges.test_answers import TP, Script


class Changing(Script):
    """A leader whose log changes between two answers, and is compacted while one is made."""

    def __init__(self, chance: Random) -> None:
        super().__init__([()])
        self._chance = chance
        self.log = TransactionalLog(chance.choice([100, 300, 4000]))
        for _ in range(chance.randint(5, 80)):
            self.change()

    def change(self) -> None:
        """Something happens."""
        if write_by_chance(self.log, self._chance, 11) == 10 and self._chance.random() < 0.3:
            self.compact()

    def compact(self) -> None:
        """A pass."""
        compact(self.log, self._chance)

    async def send(self, node: int, request: Any) -> Any:
        """What lies at the position, and behind it."""
        ((_topic, ((_partition, at, size),)),) = request.topics
        await asyncio.sleep(0.001)
        chance, log = self._chance, self.log
        for _ in range(chance.choice([0, 0, 1, 5])):
            self.change()
        stable = log.stable
        race = self.compact if chance.random() < 0.5 else lambda: None
        found = log.read(at, min(size, chance.choice([300, 1 << 20, 1 << 20])), race)
        data, aborted = (b"", []) if found is None else (found.data, [*found.aborted])
        partition = (0, 0, log.end, stable, log.start, aborted, -1, data)
        return FetchResponse_v11(0, 0, 0, [("t", [partition])])


async def read_by(seed: int) -> None:
    """A range that may begin and end anywhere."""
    chance = Random(seed)
    made = Changing(chance)
    start = chance.randint(0, made.log.stable // 2)
    stop = chance.choice([made.log.stable, chance.randint(start, made.log.stable)])
    found: list[tuple[int, bytes | None]] = []
    reading = RangeRead(made, TP, start, stop)
    async for part in reading.parts(with_headers=False, max_bytes=chance.choice([1, 200, 1 << 20])):
        found += zip(part.positions, part.values, strict=True)
    made.log.check(start, stop, [offset for offset, _value in found])
    assert all(value == b"%d" % offset for offset, value in found)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_what_is_committed_comes_once_and_nothing_else(first: int) -> None:
    """Through answers that are cut anywhere."""

    async def main(_simulation: Simulation, seed: int) -> None:
        await read_by(seed)

    for seed in range(first, first + 50):
        simulate(partial(main, seed=seed))

"""What was produced, and what the processes of a campaign say that they have handled."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from consumer_sdk.records import Checkpoint

__all__ = ["Ledger", "Line", "repeats_stored"]

Settled = Mapping[str, Checkpoint]
"""By partition."""


class Line(NamedTuple):
    """One handler's end.

    Attributes:
        life: the process.
        number: which record.
        place: what the broker calls it, as numbers.
        attempt: which one it was, from 1.
        is_done: it did not fail.
    """

    life: int
    partition: str
    key: str
    number: int
    place: tuple[int, ...]
    attempt: int
    is_done: bool

    def __str__(self) -> str:
        place = ":".join(map(str, self.place))
        end = "done" if self.is_done else "failed"
        return f"{self.life} {self.partition} {self.key} {self.number} {place} {self.attempt} {end}"

    @classmethod
    def read(cls, text: str) -> Line:
        """The line that `str` has written."""
        life, partition, key, number, place, attempt, end = text.split()
        at = tuple(map(int, place.split(":")))
        return cls(int(life), partition, key, int(number), at, int(attempt), end == "done")


class Ledger:
    """All lines of a campaign's processes.

    Attributes:
        lines: those that were read, in the order in which they were written.
        produced: the numbers of the records that the broker has taken.
        done: how often each record was handled.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines: list[Line] = []
        self.produced: set[int] = set()
        self.done: Counter[int] = Counter()
        self._at = 0

    def read(self) -> Sequence[Line]:
        """Reads on; a line that is being written is not there yet."""
        if self.file.exists():
            with self.file.open("rb") as file:
                file.seek(self._at)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._at += len(whole)
            new = [Line.read(each) for each in whole.decode().splitlines()]
            self.lines += new
            self.done.update(line.number for line in new if line.is_done)
        return self.lines

    @property
    def lost(self) -> set[int]:
        """Records that nobody has handled."""
        return self.produced - self.done.keys()

    @property
    def repeated(self) -> int:
        """Times that a record was handled again."""
        return self.done.total() - len(self.done)

    def check_order(self) -> None:
        """The records of each key were first handled in the order in which they were produced."""
        firsts: dict[str, dict[int, None]] = defaultdict(dict)
        for line in self.lines:
            if line.is_done:
                firsts[line.key].setdefault(line.number)
        for key, numbers in firsts.items():
            assert list(numbers) == sorted(numbers), f"the records of {key} came in another order"


def position_of(line: Line) -> Any:
    """A line's place as the broker's positions are."""
    return line.place if len(line.place) > 1 else line.place[0]


def is_settled(settled: Settled, line: Line) -> bool:
    """Whether a record's end is stored."""
    checkpoint = settled.get(line.partition)
    if checkpoint is None:
        return False
    place, watermark = position_of(line), checkpoint.watermark
    is_below = watermark is not None and place <= watermark
    return is_below or any(first <= place <= last for first, last in checkpoint.ranges)


def repeats_stored(settled: Settled, later: Iterable[Line]) -> list[Line]:
    """Of the next life's lines: what had been settled already, or counts fewer attempts than are stored."""
    found = []
    for line in later:
        checkpoint = settled.get(line.partition)
        if checkpoint is None:
            continue
        failures, _due = checkpoint.attempts.get(position_of(line), (0, 0.0))
        if is_settled(settled, line) or line.attempt <= failures:
            found.append(line)
    return found

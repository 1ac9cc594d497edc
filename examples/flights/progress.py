"""The demo's output: a live table and bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

WIDTH = 30  # characters of the bar
QUIET = 2.0  # seconds between two plain lines
TABLE_EVERY = 0.25  # of the whole, between two plain tables


@dataclass(frozen=True)
class Gauge:
    """The progress of one part: its share of the whole, and a text."""

    name: str
    share: float
    text: str

    def __str__(self) -> str:
        share = min(self.share, 1.0)
        bar = ("█" * int(share * WIDTH)).ljust(WIDTH, "░")
        return f"{self.name:<9} {bar} {int(share * 100):3}%  {self.text}"


class Progress:
    """Redraws its lines in place on a terminal; elsewhere prints one now and then."""

    def __init__(
        self, out: TextIO = sys.stdout, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._clock = clock
        self._live = out.isatty()
        self._started = clock()
        self._drawn = 0
        self._last_line = -QUIET
        self._next_table = TABLE_EVERY

    def show(self, gauges: Sequence[Gauge], table: Sequence[str]) -> None:
        """Shows the progress; the last gauge is the one that ends at 100 %."""
        elapsed = self._clock() - self._started
        if self._live:
            self._redraw([*table, "", *map(str, gauges), f"{elapsed:.0f} s"])
        else:
            texts = "  ".join(f"{gauge.name} {gauge.text}" for gauge in gauges)
            share = gauges[-1].share
            self._print_some(share, f"{elapsed:3.0f} s {share:4.0%}  {texts}", table, elapsed)

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        self._redraw([])
        self._out.write(text + "\n")
        self._out.flush()

    def _redraw(self, lines: Sequence[str]) -> None:
        up_and_clear = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        # A line that the terminal wraps would not be cleared.
        columns = shutil.get_terminal_size().columns - 1
        self._out.write(up_and_clear + "".join(f"{line[:columns]}\n" for line in lines))
        self._out.flush()
        self._drawn = len(lines)

    def _print_some(self, share: float, line: str, table: Sequence[str], elapsed: float) -> None:
        if self._next_table <= share < 1:
            self._next_table = share + TABLE_EVERY
            self.say("\n".join(table))
        if elapsed - self._last_line >= QUIET:
            self._last_line = elapsed
            self.say(line)


def number(value: int) -> str:
    """A number with its digits in groups: 336 776."""
    return f"{value:,}".replace(",", " ")

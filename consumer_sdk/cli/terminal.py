"""Shows rows and progress: on a terminal a table and a bar, elsewhere lines with tabs and no bar.

Both are drawn by rich where that is installed (the extra ``top`` brings it); without it a terminal
gets what a pipe gets. The words are the same everywhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat, zip_longest
from typing import TYPE_CHECKING, Any, Generic, Self, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["Bar", "Rows", "Watched", "clean", "say_count"]

T = TypeVar("T")

PAGE = 200
"""Rows that make a table: a list without end is shown as it comes."""

SHORT = 24
"""Characters of a field that others are set under: a time, a place, a count."""

GAP = 2
"""Spaces between columns."""

PATIENCE = 1.0
"""Seconds that a command may take without a bar."""

STYLES = (
    (re.compile(r"FAIL|no dead letter: .*|no checkpoint that can be read: .*"), "bold red"),
    (re.compile(r"warn|nobody's|.*, who is gone.*|pinned .*|no position.*|would .*"), "yellow"),
    (re.compile(r"ok|ACTIVE|released|all is settled, .*"), "green"),
    (re.compile(r"-|ended|stays|since .*|fence \d+|\d{4}-\d\d-\d\dT\S+"), "dim"),
)
"""What a field has to be, and how it looks then; the first field of a row is bold else."""

CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def say_count(verb: str, count: int, *, is_json: bool, to: TextIO | None = None) -> None:
    """Writes how many a command has done; to stdout, unless another stream is given."""
    line = json.dumps({verb: count}) if is_json else f"{verb} {count}"
    (to or sys.stdout).write(f"{line}\n")


class Rows:
    """Rows that a command writes to stdout; a table of them ends with the block, or by `flush`.

    Args:
        is_json: a JSON object for each, on a terminal too.
        widths: of the first columns at least, for rows that are shown one by one.
    """

    def __init__(self, *, is_json: bool, widths: Sequence[int] = ()) -> None:
        self._is_json = is_json
        self._widths = widths
        self._console = None if is_json else _console(sys.stdout)
        self._rows: list[list[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def say(self, row: Mapping[str, Any], line: str) -> None:
        """Writes one.

        Args:
            row: what it is as JSON.
            line: its fields, with tabs between them; one without tabs is text.
        """
        if self._is_json:
            sys.stdout.write(json.dumps(row) + "\n")
            return
        fields = [clean(field, sys.stdout) for field in line.split("\t")]
        if self._console is None:
            sys.stdout.write("\t".join(fields) + "\n")
        else:
            self._gather(self._console, fields)

    def flush(self) -> None:
        """Shows the rows that there are now."""
        if self._console is not None and self._rows:
            _print(self._console, self._rows, self._widths)
            self._rows = []
        sys.stdout.flush()

    def _gather(self, console: Console, fields: list[str]) -> None:
        if len(fields) > 1:
            self._rows.append(fields)
        if len(fields) == 1 or len(self._rows) == PAGE:
            self.flush()
        if len(fields) == 1:
            console.print(fields[0], soft_wrap=True)


class Bar:
    """Progress on stderr, after a second; erased in the end. Used by one task of an event loop.

    There is none where stderr is no terminal, and none with ``--json``.

    Args:
        what: is done now.
        is_apart: lines are written to stdout meanwhile, which a bar on the same terminal would tear.
    """

    def __init__(self, what: str, arguments: Namespace, *, is_apart: bool = False) -> None:
        self._what = what
        self._total: int | None = None
        self._done = 0
        is_torn = is_apart and sys.stdout.isatty()
        self._console = None if arguments.json or is_torn else _console(sys.stderr)
        self._shown: Progress | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether a bar may be shown; without one, nobody needs to find out the total."""
        return self._console is not None

    def __enter__(self) -> Self:
        if self.is_wanted:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._show)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._shown is not None:
            self._shown.stop()

    def begin(self, what: str, total: int | None = None) -> None:
        """Begins another step.

        Args:
            total: how many items it has; None: it is not known.
        """
        self._what, self._total, self._done = what, total, 0
        if self._shown is not None:
            (task,) = self._shown.task_ids
            self._shown.reset(task, description=what, total=total)

    def advance(self, count: int = 1) -> None:
        """Counts ``count`` items more as done."""
        self._done += count
        if self._shown is not None:
            (task,) = self._shown.task_ids
            self._shown.update(task, completed=self._done)

    def _show(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._shown = Progress(
            *columns, console=self._console, transient=True, redirect_stdout=False
        )
        self._shown.add_task(self._what, total=self._total, completed=self._done)
        self._shown.start()
        self._shown.console.show_cursor(show=True)  # whoever is killed leaves it as it is


class Watched(Generic[T]):
    """Letters that are read in several passes, each with a bar.

    Args:
        passes: what is done with them the first time, the second, and then each time.
    """

    def __init__(self, items: Iterable[T], bar: Bar, passes: Sequence[str]) -> None:
        self._items = items
        self._bar = bar
        self._passes = chain(passes, repeat(passes[-1]))
        self._count: int | None = None

    def __iter__(self) -> Iterator[T]:
        self._bar.begin(next(self._passes), self._count)
        count = 0
        for count, item in enumerate(self._items, 1):  # noqa: B007 - it is the last one that counts
            yield item
            self._bar.advance()
        self._count = count


def _console(file: TextIO) -> Console | None:
    """None: it is no terminal that can be drawn on, or nobody draws."""
    if not file.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=file, highlight=False, markup=False, emoji=False)


def _print(console: Console, rows: Sequence[Sequence[str]], least: Sequence[int]) -> None:
    """Rows in columns; one that is too long is wrapped by the terminal.

    A table of rich's would cut fields off where there is no room, and what it folds cannot be copied.
    """
    from rich.cells import cell_len
    from rich.text import Text

    sizes = [[cell_len(field) for field in row] for row in rows]
    widths = _widths(sizes, console.width, least)
    for row, cells in zip(rows, sizes, strict=True):
        line = Text()
        for at, field in enumerate(row):
            room = max(widths[at] - cells[at], 0) + GAP if at < len(row) - 1 else 0
            line.append(field, _style(field, at)).append(" " * room)
        console.print(line, soft_wrap=True)


def _widths(sizes: Sequence[Sequence[int]], width: int, least: Sequence[int]) -> list[int]:
    """Of columns but the last: as their longest fields, or as short ones, as long as there is room."""
    columns = zip_longest(*(row[:-1] for row in sizes), fillvalue=0)
    longest = [max(column) for column in columns]
    for widths in (longest, [min(each, SHORT) for each in longest]):
        if sum(widths) + GAP * len(widths) + SHORT // 2 <= width:
            return list(map(max, zip_longest(widths, least[: len(widths)], fillvalue=0)))
    return [0] * len(longest)


def _style(field: str, at: int) -> str:
    for pattern, style in STYLES:
        if pattern.fullmatch(field):
            return style
    return "" if at else "bold"


def clean(text: str, file: TextIO) -> str:
    """A text without characters that a terminal obeys, or that the file cannot hold; anybody may have written it."""
    shown = CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    encoding = file.encoding or "utf-8"
    return shown.encode(encoding, errors="backslashreplace").decode(encoding)

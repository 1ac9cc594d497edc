"""When a worker that ended is started again, and what its files' changes are. Pure but for `modified`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["Restarts", "Signals", "changes", "modified"]

FIRST = 0.5
LONGEST = 30.0
SAME = 1.0
"""Seconds within which signals are one: who ends a process group may send its leader two."""
SOUND = 60.0
"""Seconds after which a worker counts as one that has worked: the next wait is the first one again."""


class Restarts:
    """How long to wait before one worker is started again: twice as long each time it dies soon."""

    def __init__(self) -> None:
        self._next = FIRST

    def after(self, lived: float) -> float:
        """Seconds to wait.

        Args:
            lived: seconds from its start to its end.
        """
        wait = FIRST if lived >= SOUND else self._next
        self._next = min(wait * 2, LONGEST)
        return wait


class Signals:
    """Which signals mean the same: ``timeout`` sends one to its child, and one to the child's group."""

    def __init__(self) -> None:
        self._first: float | None = None

    def is_another(self, now: float) -> bool:
        """Whether this one comes after the first, and is not the same."""
        if self._first is None:
            self._first = now
        return now - self._first >= SAME


def modified(root: Path, others: Iterable[str] = ()) -> dict[str, int]:
    """When each Python file below a directory, and each other one, was written: nanoseconds.

    Hidden directories and virtual environments are left out.
    """
    files = [*others]
    for folder, below, names in os.walk(root):
        below[:] = [
            name
            for name in below
            if not name.startswith((".", "__pycache__", "node_modules"))
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))  # noqa: PTH110, PTH118 - thousands of them
        ]
        files += [os.path.join(folder, name) for name in names if name.endswith(".py")]  # noqa: PTH118 - likewise
    return {file: at for file in files if (at := _written(file))}


def _written(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116 - likewise
    except OSError:
        return 0  # deleted meanwhile


def changes(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """The files that were written, made or deleted."""
    names = before.keys() | after.keys()
    return sorted(name for name in names if before.get(name) != after.get(name))

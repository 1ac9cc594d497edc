"""A process that imports a file into a SQLite file, and perhaps is killed in the middle.

``python -m tests.stores.import_child STATE FILE [SAVE before|after]``: at that save, counted from
0, it kills itself, before or after the save has taken effect. At the end it prints the most memory
that it had, in kB.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from consumer_sdk.abc import StoreItem
from consumer_sdk.cli import main
from consumer_sdk.records import Outcome
from consumer_sdk.stores import LocalStore


def die_at(wanted: int, when: str) -> None:
    """Makes a save the last thing that this process does."""
    saves, save = count(), LocalStore.save

    async def last_save(store: Any, group: str, items: Sequence[StoreItem]) -> list[Outcome]:
        is_last = next(saves) == wanted
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        outcomes = await save(store, group, items)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcomes

    LocalStore.save = last_save  # type: ignore[method-assign,assignment] # there is no other seam in a process


def peak() -> str:
    """The most memory that this program had; getrusage would count its parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return found[1]


if __name__ == "__main__":
    state, file, *death = sys.argv[1:]
    if death:
        die_at(int(death[0]), death[1])
    status = main(["checkpoints", "import", f"sqlite:{state}", file])
    sys.stdout.write(f"{peak()}\n")
    sys.exit(status)

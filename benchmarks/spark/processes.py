"""The processes below a driver: the most memory that each has had, and their processor time. Linux only."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Spent", "between", "descendants", "kind_of", "peak_mb", "peaks", "spent"]

_PROC = Path("/proc")


def peaks(root: int) -> dict[str, float]:
    """Megabytes by kind: the largest peak of a process of that kind below ``root``."""
    found: dict[str, float] = {}
    for pid in descendants(root):
        kind, peak = kind_of(_text(pid, "cmdline").replace("\0", " ")), peak_mb(pid)
        if kind and peak:
            found[kind] = max(peak, found.get(kind, 0.0))
    return found


class Spent(NamedTuple):
    """What a process has used of a processor, in seconds.

    Attributes:
        kind: see `kind_of`.
        parent: the process that has started it.
        own: its own.
        ended: of its children that have ended.
    """

    kind: str
    parent: int | None
    own: float
    ended: float


def spent(root: int) -> dict[int, Spent]:
    """The processes below ``root``."""
    return {pid: _spent(pid) for pid in descendants(root)}


def _spent(pid: int) -> Spent:
    # Behind the name, which may hold anything: the 14th to 17th field of proc(5).
    ticks = [int(each) for each in _text(pid, "stat").rpartition(")")[2].split()[11:15]]
    second = os.sysconf("SC_CLK_TCK")
    kind = kind_of(_text(pid, "cmdline").replace("\0", " ")) or "other"
    return Spent(kind, _parent(pid), sum(ticks[:2]) / second, sum(ticks[2:]) / second)


def between(before: Mapping[int, Spent], after: Mapping[int, Spent]) -> dict[str, float]:
    """Seconds of a processor from one look to the next, by kind.

    Of the JVM's children that have ended meanwhile, what is new counts for the runner: a query has one, and
    it ends with it. A worker that has ended counts for nothing, since its parent does not keep its times.
    """
    found: dict[str, float] = defaultdict(float)
    for pid, now in after.items():
        then = before.get(pid, now._replace(own=0.0, ended=0.0))
        found[now.kind] += now.own - then.own
        if now.kind == "jvm":
            gone = (b.own for p, b in before.items() if b.parent == pid and p not in after)
            found["runner"] += now.ended - then.ended - sum(gone)
    return found


def kind_of(command: str) -> str | None:
    """What a process is for Spark: ``jvm``, ``worker`` or ``runner`` (of a streaming source)."""
    if "java" in command.split(" ", 1)[0]:
        return "jvm"
    if "python_streaming_source_runner" in command:
        return "runner"
    # Workers are forked from a daemon, whose command line they keep.
    return "worker" if "pyspark.daemon" in command or "pyspark/daemon" in command else None


def descendants(root: int) -> list[int]:
    """All processes below ``root``."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and (parent := _parent(int(entry.name))) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _parent(pid: int) -> int | None:
    match = re.search(r"^PPid:\s+(\d+)$", _text(pid, "status"), re.MULTILINE)
    return int(match[1]) if match else None


def peak_mb(pid: int) -> float | None:
    """The most megabytes that a process has had; None when it is gone."""
    match = re.search(r"^VmHWM:\s+(\d+) kB$", _text(pid, "status"), re.MULTILINE)
    return round(int(match[1]) / 1024, 1) if match else None


def _text(pid: int, name: str) -> str:
    try:
        return (_PROC / str(pid) / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # it has ended

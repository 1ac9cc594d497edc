"""The processes below a driver: the most memory that each has had, and their processor time. Linux only."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

__all__ = ["cpu_seconds", "descendants", "kind_of", "peak_mb", "peaks"]

_PROC = Path("/proc")


def peaks(root: int) -> dict[str, float]:
    """Megabytes by kind: the largest peak of a process of that kind below ``root``."""
    found: dict[str, float] = {}
    for pid in descendants(root):
        kind, peak = kind_of(_text(pid, "cmdline").replace("\0", " ")), peak_mb(pid)
        if kind and peak:
            found[kind] = max(peak, found.get(kind, 0.0))
    return found


def cpu_seconds(root: int) -> dict[str, float]:
    """Seconds of a processor so far, by kind, of the processes below ``root``.

    Of Python processes that have ended, those count that the JVM has started itself: the runners of streams.
    """
    found: dict[str, float] = defaultdict(float)
    for pid in descendants(root):
        kind = kind_of(_text(pid, "cmdline").replace("\0", " "))
        own, ended = _cpu(pid)
        found[kind or "other"] += own
        if kind == "jvm":
            found["runner"] += ended
    return found


def _cpu(pid: int) -> tuple[float, float]:
    """Of a process, and of its children that have ended."""
    # Behind the name, which may hold anything: the 14th to 17th field of proc(5).
    ticks = [int(each) for each in _text(pid, "stat").rpartition(")")[2].split()[11:15]]
    own, ended = sum(ticks[:2]), sum(ticks[2:])
    return own / os.sysconf("SC_CLK_TCK"), ended / os.sysconf("SC_CLK_TCK")


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

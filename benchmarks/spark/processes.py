"""The processes below a driver, and the most memory that each has had. Linux only."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["descendants", "kind_of", "peak_mb", "peaks"]

_PROC = Path("/proc")


def peaks(root: int) -> dict[str, float]:
    """Megabytes by kind: the largest peak of a process of that kind below ``root``."""
    found: dict[str, float] = {}
    for pid in descendants(root):
        kind, peak = kind_of(_text(pid, "cmdline").replace("\0", " ")), peak_mb(pid)
        if kind and peak:
            found[kind] = max(peak, found.get(kind, 0.0))
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

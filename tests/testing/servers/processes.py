"""Looks at processes that are not our children."""

import os
import time
from pathlib import Path

_PATIENCE = 300.0  # seconds; a loaded machine takes its time


def is_gone(pid: int) -> bool:
    """Return whether no such process runs; a zombie that nobody reaps has ended too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    try:
        return (
            stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] == "Z"
        )
    except FileNotFoundError:
        # Ended between the two looks; where there is no /proc, the first look is all there is.
        return Path("/proc/self").exists()


def is_gone_soon(pid: int) -> bool:
    """Wait until the process has ended, and return False when it does not."""
    deadline = time.monotonic() + _PATIENCE
    while not is_gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_gone(pid)


def marked(mark: str) -> set[str]:
    """The processes that inherited an environment variable."""
    found = set()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in environment.read_bytes().split(b"\0"):
                found.add(environment.parent.name)
        except OSError:  # it has ended, or is another user's
            continue
    return found


def left_after(seconds: float, mark: str) -> set[str]:
    """The processes that are still there then: Spark's JVM takes a moment to see its end."""
    deadline = time.monotonic() + seconds
    while (found := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found

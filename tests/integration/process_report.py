"""What a process that does not end is doing: whether it is starved or hung, and where."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

__all__ = ["report"]

NANO = 1e-9
"""Of a second, the unit of ``/proc/…/schedstat``."""

PATIENCE = 60.0
"""Seconds for a debugger to read the stacks."""


async def report(pid: int) -> str:
    """Each thread with its state and its times, and the native stacks where gdb may read them.

    A thread that is starved has waited for a processor for seconds (``queued``). One that is hung has
    not, and its ``wchan`` tells what it sleeps on. Where the kernel tells nothing of this, there is
    nothing of it here.
    """
    head = f"process {pid}, load {os.getloadavg()}, {os.cpu_count()} processors"
    return "\n".join([head, *_threads(pid), await _native_stacks(pid)])


def _threads(pid: int) -> list[str]:
    return [_thread(task) for task in sorted(Path(f"/proc/{pid}/task").glob("*"))]


def _thread(task: Path) -> str:
    state = next((s for s in _text(task / "status").splitlines() if s.startswith("State:")), "")
    times = _text(task / "schedstat").split()
    ran, queued = (int(time) * NANO for time in times[:2]) if len(times) > 1 else (0.0, 0.0)
    name, place = _text(task / "comm"), _text(task / "wchan")
    return f"  {task.name} {name}: {state} ran={ran:.2f}s queued={queued:.2f}s wchan={place}"


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # it has ended meanwhile, or is not ours to see
        return ""


async def _native_stacks(pid: int) -> str:
    if shutil.which("gdb") is None:
        return "  no gdb, no native stacks"
    command = ("gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 25")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"  gdb said nothing within {PATIENCE:g} s"
    return said.decode(errors="replace")

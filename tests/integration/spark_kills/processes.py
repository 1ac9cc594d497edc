"""The processes of one driver, and which of them is what. Linux only.

All belong to one session of the operating system, also those whose parent is dead.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyspark

from tests.integration.spark_kills.driver import ROOT, Job

__all__ = ["PATIENCE", "Driver"]

PATIENCE = 300.0
"""Seconds that anything may take: a machine with much else to do starts a JVM slowly."""
GRACE = 20.0
"""Seconds in which what is left of a dead driver ends by itself."""

TARGETS = {
    "worker": "pyspark.daemon pyspark.worker",
    "executor": "CoarseGrainedExecutorBackend",
    "runner": "python_streaming_source_runner",
    "jvm": "org.apache.spark.deploy.SparkSubmit",
}
"""What the command line of each kind has in it."""


class Process(NamedTuple):
    """A running process."""

    pid: int
    parent: int
    command: str


class Driver:
    """A process of ``spark_kills.driver``; it may be started again when it is dead."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.log = Path(job.folder) / "log"
        self.orphans = 0
        self._process: subprocess.Popen[bytes] | None = None
        job.sink.mkdir(parents=True)
        _link_spark(Path(job.folder) / "spark")

    def start(self) -> None:
        """Starts it; its output goes to a file."""
        command = [sys.executable, "-m", "tests.integration.spark_kills.driver"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, self.job.to_json()],
                cwd=self.job.folder,
                env=_environment(self.job.folder),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def check(self) -> None:
        """It runs; what it said last, if it does not."""
        assert self._process is not None
        status = self._process.poll()
        assert status is None, f"the driver ended by itself: {status}\n{self._tail()}"

    async def kill_part(self, target: str, chance: random.Random) -> None:
        """Kills one process of a kind, as soon as there is one."""
        async with asyncio.timeout(PATIENCE):
            while not (found := self._found(target)):
                self.check()
                await asyncio.sleep(0.05)
        _kill(chance.choice(found))

    async def kill(self, chance: random.Random) -> None:
        """Kills the driver's Python process, its JVM, or all there is of it; waits for the rest.

        What is left may end in order, and say a last word to the broker. Two drivers of one
        checkpoint are not allowed, so that it has to be gone before the next one starts.
        """
        assert self._process is not None
        way = chance.choice(("python", "jvm", "all"))
        if way == "jvm" and (machines := self._found("jvm")):
            _kill(machines[0])
        elif way == "all":
            self._kill_all()
        else:
            self._process.kill()
        await self._until_gone()

    async def aclose(self) -> None:
        """Kills whatever is left."""
        if self._process is not None:
            self._kill_all()
            await self._until_gone()

    def _found(self, target: str) -> list[int]:
        assert self._process is not None
        fitting = [p for p in _session(self._process.pid) if TARGETS[target] in p.command]
        if target != "worker":
            return [process.pid for process in fitting]
        # They are forked from a daemon, whose command line they keep.
        daemons = {process.pid for process in fitting}
        return [process.pid for process in fitting if process.parent in daemons]

    def _kill_all(self) -> None:
        assert self._process is not None
        for process in _session(self._process.pid):
            _kill(process.pid)

    async def _until_gone(self) -> None:
        assert self._process is not None
        deadline = asyncio.get_running_loop().time() + GRACE
        while left := self._left():
            if asyncio.get_running_loop().time() > deadline:
                self.orphans += len(left)
                self._kill_all()
            await asyncio.sleep(0.05)
        assert self._process.stdin is not None
        self._process.wait()
        self._process.stdin.close()
        self._process = None

    def _left(self) -> list[Process]:
        assert self._process is not None
        self._process.poll()  # else it stays a zombie
        return _session(self._process.pid)

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])


def _environment(folder: str) -> dict[str, str]:
    ours = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": f"{folder}/spark",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": tempfile.gettempdir(),
    }
    return {**os.environ, **ours}


def _link_spark(home: Path) -> None:
    """Spark without its zip of PySpark, which nobody has compiled: each Python starts in a third."""
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it was faster


def _session(number: int) -> list[Process]:
    """Every process of a session that has not ended."""
    entries = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    return [process for pid in entries if (process := _process(pid, number)) is not None]


def _process(pid: int, session: int) -> Process | None:
    try:
        # The name in parentheses may hold anything.
        state, parent, _, owner = (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
        )
        if int(owner) != session or state in "ZX":
            return None
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return None  # it has ended meanwhile
    return Process(pid, int(parent), command)

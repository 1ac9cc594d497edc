"""The demo's processes. Each reports on its standard output, one JSON object a line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any, Self

STOP_WITHIN = 15.0  # seconds, then SIGKILL


def report(**facts: object) -> None:
    """Reports to the parent; ends this process with an error if the parent is gone."""
    print(json.dumps(facts), flush=True)


class Child:
    """``python -m module arguments`` as a process of its own.

    Leaving the ``async with`` block ends it, first by SIGTERM. It leads its own session, so
    that Ctrl-C reaches the parent alone, which ends its children in the right order.

    Attributes:
        facts: the newest value of each reported name.
    """

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        self.facts: dict[str, Any] = {}
        self._command = (sys.executable, "-m", module, *arguments)
        self._log = log

    async def __aenter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), STOP_WITHIN)
        await self.kill()

    async def kill(self) -> None:
        """Kills the process with ``kill -9``, so it cannot finish anything."""
        self._signal(signal.SIGKILL)
        await self._process.wait()
        await self._reader

    def check(self) -> None:
        """Raises an error if the process has failed.

        Raises:
            RuntimeError: with the end of its log.
        """
        if self._process.returncode:
            log = self._log.read_text(errors="replace").splitlines()[-20:]
            command = " ".join(self._command[1:3])
            status = self._process.returncode
            raise RuntimeError("\n".join([f"{command} ended with status {status}:", *log]))

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - asked for above; for mypy
        async for line in self._process.stdout:
            with contextlib.suppress(ValueError):  # cut off by kill -9
                self.facts.update(json.loads(line))

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

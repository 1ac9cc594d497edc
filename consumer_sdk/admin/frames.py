"""Frames for the viewers of the page: one task asks the consumers once a second, for all viewers together."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from typing import Any

from consumer_sdk.admin.sources import Source
from consumer_sdk.admin.view import Trends, frame
from consumer_sdk.runtime import Snapshot

__all__ = ["Frames", "Viewer"]

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two frames while there are viewers, and for `LINGER` after."""
LINGER = 300.0
"""Seconds that sampling goes on without a viewer: a page that is opened again in time shows its past."""


class Viewer:
    """One viewer. It holds the newest frame that it has not sent, and no queue that could grow."""

    def __init__(self, first: bytes) -> None:
        self._frame: bytes | None = first
        self._is_over = False
        self._news = asyncio.Event()
        self._news.set()

    def show(self, frame: bytes) -> None:
        """Holds another frame, in place of one that was not taken."""
        self._frame = frame
        self._news.set()

    def end(self) -> None:
        """Ends the stream after the frame that it holds."""
        self._is_over = True
        self._news.set()

    async def next(self) -> bytes | None:
        """Waits for the next frame; None: the stream has ended."""
        await self._news.wait()
        frame, self._frame = self._frame, None
        if not self._is_over:
            self._news.clear()
        return frame


class Frames:
    """Makes the frames of some consumers, and hands them to the viewers.

    Args:
        most: viewers at the same time.
        actions: viewers may pause, resume, flush and stop.
    """

    def __init__(self, source: Source, *, most: int, actions: bool) -> None:
        self._source = source
        self._most = most
        self._actions = actions
        self._trends: list[Trends] = []
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None
        self._seen_by_anyone = 0.0
        self._sampled = -INTERVAL
        self._snapshots: Sequence[Snapshot] = []
        self._took = 0.0
        self._frames: dict[bool, bytes] = {}
        self.is_over = False

    def join(self) -> Viewer | None:
        """Adds a viewer, whose first frame has the past. None: there are too many viewers.

        A viewer that joins after the end gets one frame.
        """
        if len(self._viewers) >= self._most:
            return None
        viewer = Viewer(self.now(is_first=True))
        if self.is_over:
            viewer.end()
            return viewer
        self._viewers.add(viewer)
        self._keep_sampling()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Removes a viewer."""
        self._viewers.discard(viewer)
        self._seen_by_anyone = asyncio.get_running_loop().time()

    def now(self, *, is_first: bool) -> bytes:
        """The last frame as JSON, no older than a second; ``is_first``: with all of the past."""
        self.snapshots()
        if is_first not in self._frames:
            self._frames[is_first] = self._render(is_first=is_first)
        return self._frames[is_first]

    def snapshots(self) -> Sequence[Snapshot]:
        """The last snapshot of each consumer: no older than a second, nor than the consumer's state."""
        loop_time = asyncio.get_running_loop().time()
        is_old = loop_time - self._sampled >= INTERVAL
        if is_old or self._source.states() != [each.state for each in self._snapshots]:
            self._sample(loop_time)
        return self._snapshots

    def forget(self) -> None:
        """Drops the last snapshots after an action, so that the next frame shows it."""
        self._sampled = -INTERVAL

    def look(self) -> bytes:
        """`now` with all of the past, for programs that ask again and again; sampling goes on for them."""
        self._seen_by_anyone = asyncio.get_running_loop().time()
        found = self.now(is_first=True)
        if not self.is_over:
            self._keep_sampling()
        return found

    def close(self) -> None:
        """Ends all viewers' streams, and the sampling."""
        self.is_over = True
        self._send_away()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # -- sampling -----------------------------------------------------------------------------

    def _keep_sampling(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="admin frames")

    async def _run(self) -> None:
        """Samples while somebody looks, and `LINGER` seconds more; ends with the consumers."""
        loop = asyncio.get_running_loop()
        self._seen_by_anyone = loop.time()
        while self._viewers or loop.time() - self._seen_by_anyone < LINGER:
            await asyncio.sleep(INTERVAL)
            try:
                await self._source.refresh()
                self._tick(loop.time())
            except Exception:
                log.exception("the page's viewers are sent away: the consumer cannot be looked at")
                self._send_away()
                return
            if self._source.is_over:
                self._task = None
                self.close()
                return

    def _tick(self, loop_time: float) -> None:
        if loop_time - self._sampled >= INTERVAL / 2:  # else somebody has asked just now
            self._sample(loop_time)
        for viewer in self._viewers:
            viewer.show(self.now(is_first=False))

    def _send_away(self) -> None:
        for viewer in self._viewers:
            viewer.end()
        self._viewers.clear()

    def _sample(self, loop_time: float) -> None:
        began = time.perf_counter()
        self._snapshots = self._source.snapshots()
        self._took = time.perf_counter() - began
        self._trends += [Trends() for _ in self._snapshots[len(self._trends) :]]
        for trends, snapshot in zip(self._trends, self._snapshots, strict=True):
            trends.add(snapshot)
        self._sampled = loop_time
        self._frames = {}

    def _render(self, *, is_first: bool) -> bytes:
        consumers = [
            frame(snapshot, trends, is_first=is_first)
            for snapshot, trends in zip(self._snapshots, self._trends, strict=True)
        ]
        shown: dict[str, Any] = {
            "consumers": consumers,
            "actions": self._actions,
            "viewers": len(self._viewers),
            "took_us": round(self._took * 1e6),
        }
        return json.dumps(shown, separators=(",", ":")).encode()

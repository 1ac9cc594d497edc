"""One run of one streaming query, in the process that Spark starts for its source."""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import InputPartition

from consumer_sdk.spark_bridge.collector import is_runner
from consumer_sdk.spark_bridge.errors import StrictAckError
from consumer_sdk.spark_bridge.pull.ack_rule import AckRule
from consumer_sdk.spark_bridge.pull.acks import Acks, AckTargets
from consumer_sdk.spark_bridge.pull.connections import of_this_process
from consumer_sdk.spark_bridge.pull.options.options import PullOptions
from consumer_sdk.spark_bridge.pull.planning.admission import Limit
from consumer_sdk.spark_bridge.pull.planning.offsets import INITIAL, Offsets, empty_batch
from consumer_sdk.spark_bridge.pull.planning.polling import Poller, patiently
from consumer_sdk.spark_bridge.pull.planning.stream_planner import StreamPlanner
from consumer_sdk.spark_bridge.pull.reading import Ranges
from consumer_sdk.spark_bridge.read_limits import NextBatch

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

__all__ = ["QueryRun", "before_end"]

_ACK_SECONDS = 0.1
_STRICT_SECONDS = 30.0
_LAST_ACK_SECONDS = 2.0
_RUN_END_SECONDS = 10.0
"""For the last ack of an AvailableNow run; the first one of a broker's first group takes seconds."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
Offset = dict[str, Any]


class QueryRun:
    """Answers `PullStreamReader`: Spark calls in one thread, and the work is done in the event loop's.

    Args:
        options: what was asked for.
    """

    def __init__(self, options: PullOptions) -> None:
        self._options = options
        process = of_this_process()
        self._loop = process.loop
        self._connections = process.connections
        # It is never opened: it reads and writes positions as text, and refuses options that cannot work.
        self._texts = options.open_reader()
        self._planner = StreamPlanner(options, process.connections)
        self._next = NextBatch(lambda: INITIAL, options.limits.default_limit)
        self._patience = options.patience
        self._poller = Poller(
            self._planner.end, patience=self._patience, cost=lambda: self._planner.look_cost
        )
        has_target = options.group is not None or options.store is not None
        self._rule = AckRule(options.ack_mode if has_target else "none")
        self._targets = AckTargets(options, process.connections)
        self._acks = Acks(self._targets.write)
        self._acked: Offset | None = None
        self._is_closed = False
        before_end(self.close)

    def freeze(self) -> None:
        """Reads no further than what is there now."""
        self._rule.available_now()
        self._patiently(self._planner.freeze)

    def latest_offset(self, start: Offset | None, limit: ReadLimit | None) -> Offset:
        """Where the next batch ends; where it begins, after a short wait, if there is no news."""
        end = self._end(*self._next.asked(start, limit))
        self._next.answered(end)
        return end

    def tasks(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of one batch."""
        self._next.planned(end)
        self._rule.planned(_text(start), _text(end))
        found = self._patiently(lambda: self._planner.tasks(start, end))
        return [Ranges(each) for each in found]

    def committed(self, end: Offset) -> None:
        """Spark has logged that everything below ``end`` is done."""
        if self._rule.committed(_text(end)):
            self._ack(end)

    @property
    def latest(self) -> Offset | None:
        """Where the logs ended when they were last asked, for progress reports; None before.

        With whose they are, and since when what was not taken waits: see `spark_bridge.metrics.lag`.
        """
        found = self._planner.latest
        if found is None:
            return None
        waiting: dict[str, dict[str, float]] = {}
        for partition, since in self._planner.waiting.items():
            waiting.setdefault(partition.stream, {})[partition.id] = since
        origin = {"broker": self._options.broker, "group": self._options.group, "waiting": waiting}
        return found.to_json(self._texts.encode_position) | origin

    def close(self) -> None:
        """Makes durable what is done, in two seconds at most; disconnects. Idempotent."""
        if not self._is_closed and self._loop.is_started:
            self._is_closed = True
            self._loop.call(self._aclose(), timeout=2 * _LAST_ACK_SECONDS)
            self._loop.stop()

    def _end(self, start: Offset, limit: Limit) -> Offset:
        now = time.monotonic()
        if self._rule.asked(_text(start), now):
            self._ack(start)
        is_final = self._planner.is_final
        answer = self._poller.end(start, limit, is_final=is_final)
        found = self._loop.call(answer, timeout=self._patience + 5)
        if found != start:
            return found
        if is_final:
            self._settle_run()
        if self._rule.wants_batch(_text(start), now):
            return empty_batch(start) or start
        return start

    async def _aclose(self) -> None:
        await self._acks.settle(_LAST_ACK_SECONDS)
        await self._acks.aclose()
        await self._poller.aclose()
        await self._planner.aclose()
        await self._targets.aclose()
        await self._connections.aclose()

    def _ack(self, offset: Offset) -> None:
        if offset == self._acked:
            return
        is_strict = self._options.strict_acks
        patience = _STRICT_SECONDS if is_strict else _ACK_SECONDS
        problem = self._loop.call(self._done(offset, patience), timeout=2 * _STRICT_SECONDS)
        self._acked = offset
        if problem is not None and is_strict:
            raise StrictAckError(
                f"{problem}: strictAcks is on, so the query ends here; it goes on where Spark's "
                "checkpoint says when it is started again"
            ) from problem

    async def _done(self, offset: Offset, patience: float) -> Exception | None:
        self._acks.done(Offsets.from_json(offset, self._texts.decode_position).positions)
        return await self._acks.settle(patience)

    def _settle_run(self) -> None:
        """The run ends here, and Spark ends its process: the last ack gets its time before that."""
        self._loop.call(self._acks.settle(_RUN_END_SECONDS), timeout=2 * _RUN_END_SECONDS)

    def _patiently(self, work: Callable[[], Awaitable[_T]]) -> _T:
        return self._loop.call(patiently(work, self._patience), timeout=self._patience + 5)


def _text(offset: Offset) -> str:
    return json.dumps(offset)


# -- a last word before Spark's source runner dies -----------------------------------------
#
# `query.stop()` and the end of a driver send SIGTERM to the runner process: neither `stop()` of the
# reader nor a `finally` runs by itself.


def before_end(last_word: Callable[[], None]) -> None:
    """Has ``last_word`` called when this process ends, where it is Spark's source runner.

    Elsewhere signals belong to the program. A handler that was set before is called afterwards.
    """
    if not is_runner():
        return
    atexit.register(last_word)
    if threading.current_thread() is threading.main_thread():
        _chain(last_word)


def _chain(last_word: Callable[[], None]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def ending(number: int, frame: FrameType | None) -> None:
        last_word()
        if callable(before):
            before(number, frame)
        elif before is not signal.SIG_IGN:
            # Dies by the signal, as it would have without us.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, ending)

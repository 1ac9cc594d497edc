"""Warns once of problems that nobody would notice.

These are a blocked event loop, acks that do not come, and a partition that falls behind while it is
read. (`starts.decide` decides about a partition that starts far behind.)
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping

from consumer_sdk.abc import Adapter
from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.records import Assignment
from consumer_sdk.runtime.fetch_loop import FetchLoop
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.partitions.held_partition import HeldPartition
from consumer_sdk.runtime.partitions.partition_state import ConsumerContext

__all__ = ["HealthWatch", "LagWatch"]

log = logging.getLogger(__name__)

PACE = 0.5
"""Seconds between looks. A look that comes late says for how long the loop was blocked."""
BLOCKED = 1.0
"""Seconds of a blocked loop that are worth a warning."""
PATIENCE = 30.0
"""Seconds without an ack, while nothing more is fetched, that are worth a warning."""
LAG_PACE = 10.0
"""Seconds between looks at the lag: each asks the broker."""
WANTED = 60.0
"""Seconds for which the lag is looked at after somebody wanted to know it."""
LAG_BACK = 0.5
"""The share of ``max_lag`` at which a partition is no longer behind, so that it is said once."""


class HealthWatch:
    """Looks after one consumer, and logs the counts that its `ConsumerLog` owes.

    The cost of a look does not depend on the number of partitions: it uses the sums of `FetchLoop`.

    Args:
        context: what is held, what was seen of it, and who is told.
        fetch_loop: knows what is in flight, and what is not fetched.

    Attributes:
        turned: the loop's time when it turned last; infinite before the first look.
        late: by how many seconds it turned too late then.
    """

    def __init__(self, context: ConsumerContext, fetch_loop: FetchLoop) -> None:
        self._context = context
        self._clock = context.clock
        self._log = context.log
        self._fetch_loop = fetch_loop
        self._longest = BLOCKED
        self._settled: int | None = None  # while nothing more is fetched
        self._since = 0.0
        self._has_warned = False
        self.turned = math.inf
        self.late = 0.0

    async def run(self) -> None:
        """Looks twice a second, until it is cancelled."""
        self.turned = asyncio.get_running_loop().time()
        while True:
            before = self._clock.monotonic()
            await asyncio.sleep(PACE)
            now = self._clock.monotonic()
            self.turned, self.late = asyncio.get_running_loop().time(), max(now - before - PACE, 0)
            self._look_at_loop(now - before - PACE)
            if not self._has_warned:
                self._look_at_acks(now)
            self._log.report(now)

    def _look_at_loop(self, late: float) -> None:
        """Warns of a blocked loop, and again only of one that was blocked for twice as long."""
        if late > self._longest:
            self._longest = 2 * late
            self._log.events.add("loop-blocked", f"the event loop was blocked for {late:.1f} s")
            log.warning(
                "the event loop was blocked for %.1f s: no fetch, no ack and no heartbeat passed "
                "meanwhile. Let a handler that blocks or computes do that in a thread: await "
                "asyncio.to_thread(…). (A process or machine that was paused looks the same.)",
                late,
            )

    def _look_at_acks(self, now: float) -> None:
        if not self._is_held_up():
            self._settled = None
            return
        settled = self._context.totals.fetched - self._fetch_loop.unsettled
        if settled != self._settled:
            self._settled, self._since = settled, now
        elif now - self._since >= PATIENCE:
            self._has_warned = True
            waited = f"no record was settled for {now - self._since:.0f} s"
            held = list(self._context.holdings.values())
            self._log.events.add("no-ack", waited, [h.assignment.partition for h in held])
            log.warning(
                "no record was settled for %.0f s, and no more are fetched until some are: %d are "
                "in flight, %d of them wait for a retry. Who pulls has to call message.ack() for "
                "each record; consumer.explain() says what is stuck",
                *(now - self._since, sum(h.tracker.unsettled for h in held)),
                sum(h.tracker.retrying for h in held),
            )

    def _is_held_up(self) -> bool:
        """Paused by hand, for its lag or its holes is no concern of ours: that is said elsewhere."""
        return self._fetch_loop.is_full or any(
            not (holding.held_back or holding.is_over_budget) for holding in self._fetch_loop.paused
        )


class LagWatch:
    """Looks at the lag of what one consumer holds, if it has a ``max_lag``, or somebody asks.

    Attributes:
        wanted_at: the loop's time when somebody did.
    """

    def __init__(
        self, adapter: Adapter, options: Options, holdings: Mapping[Assignment, HeldPartition]
    ) -> None:
        self._adapter = adapter
        self._most = options.max_lag
        self._holdings = holdings
        self.wanted_at = -math.inf

    async def run(self) -> None:
        """Looks every ten seconds, until it is cancelled; a look that fails is left out."""
        while True:
            await asyncio.sleep(LAG_PACE)
            if self._most is None and asyncio.get_running_loop().time() - self.wanted_at > WANTED:
                continue
            try:
                lags = await self._adapter.lag(list(self._holdings))
            except ConsumerSdkError as error:
                log.debug("the lag is not known: %s", error)
                continue
            for assignment, lag in lags.items():
                holding = self._holdings.get(assignment)
                if holding is not None:
                    holding.is_news = bool(lag) or lag != holding.lag or holding.is_news
                    holding.lag = lag
                    if lag is not None and self._most is not None:
                        self._look(holding, lag, self._most)

    @staticmethod
    def _look(holding: HeldPartition, lag: int, most: int) -> None:
        is_behind = lag > (most * LAG_BACK if holding.is_behind else most)
        if is_behind != holding.is_behind:
            holding.is_behind = is_behind
            level, how = (logging.WARNING, "has fallen") if is_behind else (logging.INFO, "is now")
            where = holding.assignment.partition
            log.log(level, "%s %s %d behind the end (max_lag=%s)", where, how, lag, most)

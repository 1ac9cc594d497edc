"""Says when a partition falls behind while it is read; where it starts is `start_limits`'s."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping

from consumer_sdk.abc import Adapter
from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.records import Assignment
from consumer_sdk.runtime.options import Options
from consumer_sdk.runtime.partitions.held_partition import HeldPartition

__all__ = ["LagWatch"]

log = logging.getLogger(__name__)

PACE = 10.0
"""Seconds between looks: each asks the broker."""
WANTED = 60.0
"""Seconds for which the lag is looked at after somebody wanted to know it."""
BACK = 0.5
"""The share of ``max_lag`` at which a partition is no longer behind, so that it is said once."""


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
        """Looks, for ever; a look that fails is left out."""
        while True:
            await asyncio.sleep(PACE)
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
        is_behind = lag > (most * BACK if holding.is_behind else most)
        if is_behind != holding.is_behind:
            holding.is_behind = is_behind
            level, how = (logging.WARNING, "has fallen") if is_behind else (logging.INFO, "is now")
            where = holding.assignment.partition
            log.log(level, "%s %s %d behind the end (max_lag=%s)", where, how, lag, most)

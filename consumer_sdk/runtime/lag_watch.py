"""Says when a partition falls behind while it is read; where it starts is `start_limits`'s."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from consumer_sdk.abc import Adapter
from consumer_sdk.errors import ConsumerSdkError
from consumer_sdk.records import Assignment
from consumer_sdk.runtime.holding import Holding
from consumer_sdk.runtime.options import Options

__all__ = ["LagWatch"]

log = logging.getLogger(__name__)

PACE = 10.0
"""Seconds between looks: each asks the broker."""
BACK = 0.5
"""The share of ``max_lag`` at which a partition is no longer behind, so that it is said once."""


class LagWatch:
    """Looks at the lag of what one consumer holds, if it has a ``max_lag``."""

    def __init__(
        self, adapter: Adapter, options: Options, holdings: Mapping[Assignment, Holding]
    ) -> None:
        self._adapter = adapter
        self._most = options.max_lag
        self._holdings = holdings

    async def run(self) -> None:
        """Looks, for ever; a look that fails is left out."""
        while self._most is not None:
            await asyncio.sleep(PACE)
            try:
                lags = await self._adapter.lag(list(self._holdings))
            except ConsumerSdkError as error:
                log.debug("the lag is not known: %s", error)
                continue
            for assignment, lag in lags.items():
                self._look(self._holdings.get(assignment), lag, self._most)

    @staticmethod
    def _look(holding: Holding | None, lag: int | None, most: int) -> None:
        if holding is None or lag is None:
            return
        is_behind = lag > (most * BACK if holding.is_behind else most)
        if is_behind != holding.is_behind:
            holding.is_behind = is_behind
            level, how = (logging.WARNING, "has fallen") if is_behind else (logging.INFO, "is now")
            where = holding.assignment.partition
            log.log(level, "%s %s %d behind the end (max_lag=%s)", where, how, lag, most)

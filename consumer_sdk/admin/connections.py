"""Connections of the admin server: how many there are, and how long one may ask or take nothing.

They share the consumer's file descriptors, so that whoever opens them must not take all. A new one is
always let in: at the limit it takes the place of the oldest that waits for no answer. So a probe is
answered under a flood of connections, and viewers stay. A transport that is closed waits for the other
side to take what was written, for ever if it does not: so that is bounded here too.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import Any

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.log_limits import LimitedLoggers

try:
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
except ImportError as _error:
    raise MissingExtraError("uvicorn", "admin") from _error

__all__ = ["BACKLOG", "CONNECTIONS", "LOGS", "Connection"]

log = logging.getLogger(__name__)
LOGS = LimitedLoggers(__name__, burst=3)
"""Whoever gets here may send what is no HTTP, as often as they like."""

CONNECTIONS = 200
"""Open at once."""
BACKLOG = 32
"""Taken in one turn of the event loop: more than `CONNECTIONS` are open for so long at most."""
ASKING = 10.0
"""Seconds that one may take to ask: from its opening, or from its last answer on."""

TAKING = 15.0
"""Seconds that one may take nothing of what was written."""
LEAVING = 1.0
"""Seconds that one may take for the rest of its answer, when the server ends."""


class Connection(H11Protocol):
    """Ends itself when it asks or takes nothing, and another one when there are too many.

    Attributes:
        number: the later it was opened, the higher.
    """

    _numbers = count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = log  # uvicorn's own one may be that of another server in this process
        self.number = next(self._numbers)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_answered(self) -> bool:
        """A whole request came, and its answer is under way and taken."""
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn's types leave out the None
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        return not (self.flow.write_paused or self.transport.is_closing())

    def abort(self) -> None:
        """Its file descriptor is free in the event loop's next turn."""
        self.connections.discard(self)
        self.transport.abort()

    # -- what the transport calls -------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in H11Protocol
        """Makes room for itself."""
        super().connection_made(transport)
        self._check_in(self._patience)
        if len(self.connections) >= (self.limit_concurrency or CONNECTIONS):
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is checked any more."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """It may ask again, or has to take the rest."""
        super().on_response_complete()
        self._check_in(self._patience)

    def pause_writing(self) -> None:
        """It has to take some of what was written."""
        super().pause_writing()
        self._check_in(self._patience)

    def resume_writing(self) -> None:
        """It took most of it."""
        super().resume_writing()
        self._check_in(self._patience)

    def shutdown(self) -> None:
        """Whoever waits for no answer leaves soon."""
        super().shutdown()
        self._check_in(LEAVING)

    # -- ending -------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Where all are answered, there is none for this one."""
        idle = [c for c in self.connections if isinstance(c, Connection) and not c.is_answered]
        min((c for c in idle if c is not self), key=lambda c: c.number, default=self).abort()

    @property
    def _patience(self) -> float:
        return TAKING if self.flow.write_paused or self.transport.is_closing() else ASKING

    def _check_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._check)

    def _check(self) -> None:
        if self.is_answered:
            self._check_in(self._patience)
        else:
            self.abort()

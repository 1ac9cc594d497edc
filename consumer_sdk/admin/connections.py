"""Connections of the admin server: how many there are, and how long one may ask nothing.

They share the consumer's file descriptors, so that whoever opens them must not take all. A new one is
always let in: at the limit it takes the place of the oldest that waits for no answer. So a probe is
answered under a flood of connections, and viewers stay.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from consumer_sdk.errors import MissingExtraError

try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as _error:
    raise MissingExtraError("uvicorn", "admin") from _error

__all__ = ["BACKLOG", "CONNECTIONS", "Connection"]

CONNECTIONS = 200
"""Open at once."""
BACKLOG = 32
"""Taken in one turn of the event loop: more than `CONNECTIONS` are open for so long at most."""
ASKING = 10.0
"""Seconds that one may take to ask: from its opening, or from its last answer on."""


class Connection(H11Protocol):
    """Ends itself when it asks nothing, and another one when there are too many.

    Attributes:
        number: the later it was opened, the higher.
    """

    _numbers = count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.number = next(self._numbers)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_answered(self) -> bool:
        """A whole request came, and its answer is under way."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def abort(self) -> None:
        """Its file descriptor is free in the event loop's next turn."""
        self.connections.discard(self)
        self.transport.abort()

    # -- what the transport calls -------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in H11Protocol
        """Makes room for itself."""
        super().connection_made(transport)
        self._check_in(ASKING)
        if len(self.connections) >= (self.limit_concurrency or CONNECTIONS):
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is checked any more."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """It may ask again."""
        super().on_response_complete()
        self._check_in(ASKING)

    # -- ending -------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Where all are answered, there is none for this one."""
        idle = [c for c in self.connections if isinstance(c, Connection) and not c.is_answered]
        min((c for c in idle if c is not self), key=lambda c: c.number, default=self).abort()

    def _check_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._check)

    def _check(self) -> None:
        if self.is_answered:
            self._check_in(ASKING)
        else:
            self.abort()

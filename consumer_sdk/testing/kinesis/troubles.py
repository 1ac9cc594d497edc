"""What a server does wrong on purpose: a plan for the next requests of an operation."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Literal

from aiohttp import web

from consumer_sdk.testing.kinesis.errors import RefusedError

__all__ = ["Kind", "Trouble", "Troubles", "break_connection", "inject"]

Kind = Literal["refuse", "drop", "lose", "stall"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing to go wrong.

    Attributes:
        kind: ``"refuse"``: an error is answered; ``"drop"``: the connection breaks before
            anything is done; ``"lose"``: it breaks when all is done; ``"stall"``: no answer comes.
        code: AWS's name of the error.
        status: of HTTP; 500 and above are errors of the server.
    """

    kind: Kind
    code: str = ""
    status: int = 400


class Troubles:
    """Plans, by the operation's name; each is used once."""

    def __init__(self) -> None:
        self._plans: dict[str, deque[Trouble]] = {}

    def add(self, operation: str, trouble: Trouble, times: int) -> None:
        """Plans it for the next requests."""
        self._plans.setdefault(operation, deque()).extend([trouble] * times)

    def take(self, operation: str) -> Trouble | None:
        """What is to go wrong with this request."""
        plan = self._plans.get(operation)
        return plan.popleft() if plan else None


async def inject(request: web.Request, trouble: Trouble | None) -> None:
    """Does what is planned to go wrong before the effect.

    Raises:
        RefusedError: an error is to be answered.
    """
    if trouble is None or trouble.kind == "lose":
        return
    if trouble.kind == "refuse":
        raise RefusedError(trouble.code, "injected")
    if trouble.kind == "drop":
        break_connection(request)
    await asyncio.get_running_loop().create_future()  # cancelled when the client has gone


def break_connection(request: web.Request) -> None:
    """Cuts it off, without a word."""
    if request.transport is not None:
        request.transport.abort()

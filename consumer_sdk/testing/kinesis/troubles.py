"""What a server does wrong on purpose: a plan for the next requests of an operation."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

__all__ = ["Trouble", "Troubles"]

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

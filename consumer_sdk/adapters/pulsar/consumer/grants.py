"""The grants of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from consumer_sdk.adapters.assignment_book import BaseGrant
from consumer_sdk.records import Assignment

__all__ = ["Grant"]


class Grant(BaseGrant):
    """One epoch of a partition.

    Attributes:
        decided: set when the owner has answered, or the grant is over.
        is_declined: the owner does not accept it.

    Args:
        ended: called when it is over.
    """

    def __init__(self, assignment: Assignment, ended: Callable[[], None]) -> None:
        super().__init__(assignment)
        self.decided = asyncio.Event()
        self.is_declined = False
        self._ended = ended

    def close(self) -> None:
        super().close()
        self.decided.set()
        self._ended()

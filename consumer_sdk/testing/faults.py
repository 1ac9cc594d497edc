"""Seeded faults at named seams: errors before and after an effect, and delays.

A seam is a place where a call leaves the process: ``"fetch"``, ``"commit"``, ``"assigned"``,
``"claim"``, ``"save"``, ``"dead_letter"``, ``"handler"``... An *error before* means that nothing
happened; an *error after* that it happened and the reply was lost; a *delay* may come before
and after. At ``"acks"``, where a subscriber of the in-memory broker acks records, either is a loss
that nobody is told of, and the connection breaks. Faults end at a virtual time, so that what is
under test can come to rest.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from consumer_sdk.errors import ConfigurationError, ConsumerSdkError, TransientAdapterError

__all__ = ["FaultRates", "Faults", "Seam"]

T = TypeVar("T")
Side = Literal["before", "after"]
"""Of the effect of a call that fails."""


class Seam(Protocol):
    """What the calls of a fake pass through; `Faults` is one, and a test may write its own."""

    async def around(self, seam: str, call: Callable[[], Awaitable[T]]) -> T:
        """Awaits ``call()``; may wait, be cancelled or fail before and after it.

        Args:
            seam: which call it is.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """How often a seam fails.

    Args:
        before: probability of an error with no effect.
        after: probability of an error although the effect took place.
        delay: probability of a wait, before and again after the effect.
        max_delay: the longest wait, in seconds; short ones are more likely.
    """

    before: float = 0.0
    after: float = 0.0
    delay: float = 0.0
    max_delay: float = 1.0

    def __post_init__(self) -> None:
        for name in ("before", "after", "delay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigurationError(
                    f"FaultRates({name}={getattr(self, name)!r}): give a probability, 0 to 1"
                )
        if not 0 <= self.max_delay < math.inf:
            raise ConfigurationError(f"FaultRates(max_delay={self.max_delay!r}): give seconds")


NO_FAULTS = FaultRates()


class Faults:
    """Decides, from one random source, when which seam fails.

    All fakes of `consumer_sdk.testing` ask one of these. Tests that want one certain fault use
    `fail_next` and need neither rates nor seed.

    Args:
        random: where chance comes from.
        rates: by seam; a seam that is missing never fails by chance.
        until: loop time after which no seam fails by chance any more.
        error: makes the exception for a seam; `TransientAdapterError` by default.
        trace: called with a line for each fault.
    """

    def __init__(
        self,
        random: random.Random | None = None,
        rates: Mapping[str, FaultRates] | None = None,
        *,
        until: float = math.inf,
        error: Callable[[str], Exception] | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self._random = random or _NO_CHANCE
        self._rates = dict(rates or {})
        self._until = until
        self._error = error or _transient
        self._trace = trace
        self._planned: dict[str, deque[Side]] = {}
        self._is_dead = False

    def fail_next(self, seam: str, side: Side = "before", *, times: int = 1) -> None:
        """Makes the next ``times`` calls of a seam fail, before or after their effect."""
        self._planned.setdefault(seam, deque()).extend([side] * times)

    def die(self) -> None:
        """From now on every call hangs until it is cancelled: the process was killed."""
        self._is_dead = True

    @property
    def is_dead(self) -> bool:
        """`die` was called."""
        return self._is_dead

    def should_fail(self, seam: str) -> Side | None:
        """Whether this call fails, and on which side of its effect; each answer counts as a call."""
        planned = self._planned.get(seam)
        if planned:
            return self._say(seam, planned.popleft())
        rates = self._current(seam)
        if rates is NO_FAULTS:
            return None
        chance = self._random.random()
        if chance < rates.before:
            return self._say(seam, "before")
        return self._say(seam, "after") if chance < rates.before + rates.after else None

    async def wait(self, seam: str) -> None:
        """Waits a random time, or for ever when the process is dead."""
        if self._is_dead:
            await asyncio.get_running_loop().create_future()
        rates = self._current(seam)
        if rates.delay and self._random.random() < rates.delay:
            await asyncio.sleep(rates.max_delay * self._random.random() ** 2)
            if self._is_dead:
                await asyncio.get_running_loop().create_future()

    def error(self, seam: str) -> Exception:
        """The exception that a failing call of this seam raises."""
        return self._error(seam)

    async def around(
        self,
        seam: str,
        call: Callable[[], Awaitable[T]],
        error: Callable[[str], Exception] | None = None,
    ) -> T:
        """Awaits ``call()`` with this seam's faults around it.

        Raises:
            Exception: ``error(seam)``, when a fault says so.
        """
        make_error = error or self._error
        side = self.should_fail(seam)
        await self.wait(seam)
        if side == "before":
            raise make_error(seam)
        result = await call()
        await self.wait(seam)
        if side == "after":
            raise make_error(seam)
        return result

    def _current(self, seam: str) -> FaultRates:
        if not self._rates or asyncio.get_running_loop().time() >= self._until:
            return NO_FAULTS
        return self._rates.get(seam, NO_FAULTS)

    def _say(self, seam: str, side: Side) -> Side:
        if self._trace:
            self._trace(f"fault {side} {seam}")
        return side


def _transient(seam: str) -> ConsumerSdkError:
    return TransientAdapterError(f"injected fault at {seam!r}")


_NO_CHANCE = random.Random(0)

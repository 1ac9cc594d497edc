"""When a failed record is delivered again, and when it is given up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.options import (
    COUNT,
    NUMBER,
    SECONDS_OR_0,
    TEXT,
    OptionType,
    check_fields,
    option,
    optional,
)

__all__ = ["Reject", "Retry", "RetryPolicy"]


RETRY_REASON = replace(TEXT, wanted="a text; a delay has its name: Retry(delay=3600), in seconds")
REJECT_REASON = replace(TEXT, wanted="a text, such as Reject('no such customer')")


class Retry(Exception):  # noqa: N818 - a handler's answer, not an error
    """Raised by a handler: deliver this record again.

    Args:
        delay: seconds until then; the policy's back-off if None.
        reason: kept for the dead letter, should the limit be reached.

    Raises:
        ConfigurationError: the reason is no text (a delay has to be named), or the delay cannot be.
    """

    def __init__(self, reason: str = "retry", *, delay: float | None = None) -> None:
        RETRY_REASON.check("reason", reason, "Retry")
        super().__init__(reason)
        optional(SECONDS_OR_0).check("delay", delay, "Retry")
        self.delay = delay


class Reject(Exception):  # noqa: N818 - a handler's answer, not an error
    """Raised by a handler: this record can never be processed; dead-letter it now.

    Args:
        reason: the error text of the dead letter.

    Raises:
        ConfigurationError: the reason is no text.
    """

    def __init__(self, reason: str = "rejected") -> None:
        REJECT_REASON.check("reason", reason, "Reject")
        super().__init__(reason)


FACTOR = OptionType("1 or more", lambda v: NUMBER.accepts(v) and 1 <= v < math.inf)
SHARE = OptionType("between 0 and 1", lambda v: NUMBER.accepts(v) and 0 <= v <= 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential back-off with jitter, a cap and a limit.

    Args:
        max_attempts: deliveries before a record is dead-lettered, 1 for no retry; None for
            no limit.
        initial: seconds before the second delivery.
        multiplier: how much longer each further wait is.
        maximum: the longest wait, in seconds.
        jitter: up to this share of a wait is taken off at random, so that records that failed
            together do not come back together.
    """

    max_attempts: int | None = option(optional(COUNT), default=5)
    initial: float = option(SECONDS_OR_0, default=0.5)
    multiplier: float = option(FACTOR, default=2.0)
    maximum: float = option(SECONDS_OR_0, default=60.0)
    jitter: float = option(SHARE, default=0.2)

    def __post_init__(self) -> None:
        check_fields(self, "RetryPolicy")
        if self.maximum < self.initial:
            raise ConfigurationError(
                f"RetryPolicy(maximum={self.maximum!r}): give at least initial={self.initial!r}"
            )

    def is_exhausted(self, failures: int) -> bool:
        """A record that failed so often is given up."""
        return self.max_attempts is not None and failures >= self.max_attempts

    def delay(self, failures: int, random: Callable[[], float]) -> float:
        """Seconds to wait after ``failures`` (1 or more) failed deliveries."""
        try:
            # As a float: 3 ** 2_000_000_000 takes hours, 3.0 ** 2_000_000_000 overflows at once.
            factor = float(self.multiplier) ** (failures - 1)
            wait = min(self.maximum, self.initial * factor)
        except OverflowError:  # 2.0 ** 10_000
            wait = self.maximum if self.initial else 0.0
        return wait * (1 - self.jitter * random())

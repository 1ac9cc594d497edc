"""When a failed record is delivered again, and when it is given up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from consumer_sdk.errors import ConfigurationError

__all__ = ["Reject", "Retry", "RetryPolicy"]


class Retry(Exception):  # noqa: N818 - a handler's answer, not an error
    """Raised by a handler: deliver this record again.

    Args:
        delay: seconds until then; the policy's back-off if None.
        reason: kept for the dead letter, should the limit be reached.
    """

    def __init__(self, reason: str = "retry", *, delay: float | None = None) -> None:
        super().__init__(reason)
        if delay is not None and not 0 <= delay < math.inf:
            raise ConfigurationError(f"Retry(delay={delay!r}): give finite seconds, 0 or more")
        self.delay = delay


class Reject(Exception):  # noqa: N818 - a handler's answer, not an error
    """Raised by a handler: this record can never be processed; dead-letter it now."""


def _is_limit(value: object) -> bool:
    return value is None or (isinstance(value, int) and value >= 1)


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

    max_attempts: int | None = 5
    initial: float = 0.5
    multiplier: float = 2.0
    maximum: float = 60.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        checks = (
            ("max_attempts", _is_limit(self.max_attempts), "a whole number, 1 or more, or None"),
            ("initial", 0 <= self.initial < math.inf, "0 or more seconds"),
            ("multiplier", 1 <= self.multiplier < math.inf, "1 or more"),
            ("maximum", self.initial <= self.maximum < math.inf, "at least initial"),
            ("jitter", 0 <= self.jitter <= 1, "between 0 and 1"),
        )
        for name, is_valid, wanted in checks:
            if not is_valid:
                raise ConfigurationError(
                    f"RetryPolicy({name}={getattr(self, name)!r}): give {wanted}"
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

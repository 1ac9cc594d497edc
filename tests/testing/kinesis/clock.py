"""A clock that stands still until a test moves it."""

EPOCH = 1_700_000_000.0


class HandClock:
    """Time as a number."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Seconds since the test began."""
        return self.now

    def wall(self) -> float:
        """Seconds since 1970."""
        return EPOCH + self.now

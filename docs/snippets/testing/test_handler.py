"""The handler alone: what becomes of each value."""

from billing import Billing

from consumer_sdk import RetryPolicy
from consumer_sdk.testing import deliver

ORDER = {"customer": "ann", "amount": 5}


class FlakyCards:
    """Answers after some failures."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.charged: list[tuple[str, int]] = []

    async def charge(self, customer: str, amount: int) -> None:
        """Fails, or remembers."""
        if self.left:
            self.left -= 1
            raise TimeoutError
        self.charged.append((customer, amount))


def test_order_is_charged() -> None:
    """Once."""
    cards = FlakyCards(failures=0)
    delivered = deliver(Billing(cards).handle, ORDER)
    assert delivered.acked == [ORDER]
    assert cards.charged == [("ann", 5)]


def test_failure_is_tried_again() -> None:
    """The third delivery succeeds; the back-off takes no time."""
    cards = FlakyCards(failures=2)
    delivered = deliver(Billing(cards).handle, ORDER)
    assert delivered.retried == [ORDER, ORDER]
    assert delivered.acked == [ORDER]


def test_limit_and_bad_amount_end_as_dead_letters() -> None:
    """Each with its reason."""
    handler = Billing(FlakyCards(failures=9)).handle
    free = {"customer": "ann", "amount": 0}
    delivered = deliver(handler, ORDER, free, retry=RetryPolicy(max_attempts=3))
    errors = {letter.error_type: letter.attempts for letter in delivered.dead}
    assert errors == {"rejected": 1, "builtins.TimeoutError": 3}

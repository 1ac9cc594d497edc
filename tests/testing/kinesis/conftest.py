"""The fake on a clock that the test moves."""

import pytest

from consumer_sdk.testing.kinesis import FakeKinesis
from tests.testing.kinesis.clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    """Time stands still until the test moves it."""
    return HandClock()


@pytest.fixture
def kinesis(clock: HandClock) -> FakeKinesis:
    """A fake with one stream, `orders`, of two shards."""
    fake = FakeKinesis(clock)
    fake.create_stream("orders", 2)
    return fake

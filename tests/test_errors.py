"""The errors."""

from __future__ import annotations

import pickle

import pytest

from consumer_sdk import errors
from consumer_sdk.errors import ConsumerSdkError, MissingExtraError

ALL = [getattr(errors, name) for name in errors.__all__]
MADE = [each("why") for each in ALL if each is not MissingExtraError]


@pytest.mark.parametrize("error", [*MADE, MissingExtraError("aiokafka", "kafka")], ids=repr)
def test_error_that_crosses_a_process_is_the_same_there(error: ConsumerSdkError) -> None:
    """Spark's workers and the workers of a test run send theirs as pickles."""
    there = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(there) is type(error)
    assert (str(there), vars(there)) == (str(error), vars(error))

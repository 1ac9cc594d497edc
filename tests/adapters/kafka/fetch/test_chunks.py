"""What the heads of an answer's batches say: whether it may leave out an aborted transaction."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from consumer_sdk.adapters.kafka.fetch.chunks import ends_in_doubt
from tests.adapters.kafka.decoding.test_salvage import rows
from tests.adapters.kafka.decoding.test_unpacking import batch, control


def of(producer: int, first: int, stop: int) -> bytes:
    """A batch of a transaction."""
    return batch(rows(first, stop), producer=producer, transaction=True)


PLAIN = batch(rows(0, 3))
OPEN = of(7, 3, 6)
ENDED = OPEN + control(6, 7, abort=False)
ABORTED = OPEN + control(6, 7, abort=True)


@pytest.mark.parametrize(
    "data, aborted, is_doubtful",
    [
        (PLAIN, [], False),
        (PLAIN + OPEN, [], True),
        (PLAIN + OPEN, [(7, 3)], False),
        (PLAIN + OPEN, [(7, 0)], False),  # it has begun before the answer
        (PLAIN + OPEN, [(8, 3)], True),
        (PLAIN + OPEN, [(7, 4)], True),
        (OPEN + PLAIN, [], True),
        (ENDED, [], False),
        (ABORTED, [(7, 3)], False),
        (ABORTED + of(7, 7, 9), [(7, 3)], True),  # the next transaction is another one
        (ABORTED + of(7, 7, 9), [(7, 3), (7, 7)], False),
        (ENDED + of(8, 7, 9) + of(9, 9, 11), [(8, 7)], True),
        (ENDED + of(8, 7, 9) + of(9, 9, 11), [(9, 9), (8, 7)], False),
        (PLAIN + OPEN + ENDED[:20], [], False),  # cut off, since the bytes were enough
        (PLAIN + OPEN + ENDED[:-1], [], False),
        (b"", [], False),
    ],
)
def test_answer_that_ends_inside_a_transaction_of_which_it_says_nothing_is_doubtful(
    data: bytes, aborted: Sequence[tuple[int, int]], *, is_doubtful: bool
) -> None:
    """Only where it ends with a whole batch, as it does where a segment of the log ends."""
    assert ends_in_doubt(data, aborted) is is_doubtful

"""How writes are split into requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.stores.zookeeper.tree import Put, batches

PUTS = st.builds(
    Put, st.just("/sdk/g/orders/0"), st.binary(max_size=3000), st.none() | st.integers(0, 9)
)


@given(st.lists(PUTS, max_size=30), st.integers(1, 10_000))
def test_requests_are_full_and_none_is_too_large(puts: list[Put], limit: int) -> None:
    """Nothing is lost or moved; one put alone may be larger; no two would fit into one."""
    found = list(batches(puts, limit))
    assert [put for batch in found for put in batch] == puts
    assert all(found), "a request of nothing"
    sizes = [sum(put.size for put in batch) for batch in found]
    assert all(size <= limit or len(batch) == 1 for size, batch in zip(sizes, found, strict=True))
    assert all(
        size + following[0].size > limit for size, following in zip(sizes, found[1:], strict=False)
    )


def test_thousand_usual_checkpoints_are_one_request() -> None:
    """What a flush of a busy consumer needs."""
    puts = [Put(f"/consumer-sdk/billing/orders/{n}", b"x" * 500, 7) for n in range(1000)]
    assert len(list(batches(puts, 1_048_000))) == 1


def test_request_may_be_as_large_as_the_limit() -> None:
    """And not a byte larger."""
    puts = [Put("/a", b"x", 7)] * 2
    limit = sum(put.size for put in puts)
    assert list(batches(puts, limit)) == [puts]
    assert list(batches(puts, limit - 1)) == [puts[:1], puts[1:]]

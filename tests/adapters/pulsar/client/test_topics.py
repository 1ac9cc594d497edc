"""Names of topics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk.adapters.pulsar.client.topics import (
    dead_letter_topic,
    full_name,
    is_beside,
    origin_of,
    partition_of,
    read_pattern,
    retry_topic,
    topic_of,
)
from consumer_sdk.errors import ConfigurationError
from consumer_sdk.records import Partition

ORDERS = "persistent://public/default/orders"


@pytest.mark.parametrize(
    "topic, name",
    [
        ("orders", ORDERS),
        ("acme/shop/orders", "persistent://acme/shop/orders"),
        (ORDERS, ORDERS),
        ("non-persistent://a/b/c", "non-persistent://a/b/c"),
    ],
)
def test_full_name_has_tenant_and_namespace(topic: str, name: str) -> None:
    """Streams are named in full, so that a store has one name for each."""
    assert full_name(topic) == name


@pytest.mark.parametrize(
    "topic, partition",
    [
        (ORDERS, Partition(ORDERS, "-1")),
        (f"{ORDERS}-partition-0", Partition(ORDERS, "0")),
        (f"{ORDERS}-partition-12", Partition(ORDERS, "12")),
        (f"{ORDERS}-partition-01", Partition(f"{ORDERS}-partition-01", "-1")),
        (f"{ORDERS}-partition-", Partition(f"{ORDERS}-partition-", "-1")),
    ],
)
def test_partition_is_read_from_the_end_of_the_name(topic: str, partition: Partition) -> None:
    """And written back as it was."""
    assert partition_of(topic) == partition
    assert topic_of(partition) == topic


@given(st.from_regex(r"[a-z-]{1,9}(-partition-[0-9]{1,3})?", fullmatch=True))
def test_partition_reads_back(name: str) -> None:
    """Whatever the name looks like."""
    assert topic_of(partition_of(full_name(name))) == full_name(name)


@pytest.mark.parametrize("topic", [ORDERS, f"{ORDERS}-partition-3", "orders"])
def test_topics_beside_are_those_of_the_whole_topic(topic: str) -> None:
    """Pulsar trap 24: not one for each partition."""
    assert retry_topic(topic, "billing") == f"{ORDERS}-billing-RETRY"
    assert dead_letter_topic(topic, "billing") == f"{ORDERS}-billing-DLQ"


def test_retry_topic_has_the_dead_letters_of_its_origin() -> None:
    """There is no ``-RETRY-billing-DLQ``."""
    retries = retry_topic(ORDERS, "billing")
    assert origin_of(retries, "billing") == origin_of(ORDERS, "billing") == ORDERS
    assert dead_letter_topic(retries, "billing") == f"{ORDERS}-billing-DLQ"
    assert origin_of(retries, "other") == retries


@pytest.mark.parametrize(
    "topic, beside",
    [
        (ORDERS, False),
        (f"{ORDERS}-billing-DLQ", True),
        (f"{ORDERS}-billing-RETRY", True),
        (f"{ORDERS}-billing-DLQ-partition-0", True),
        (f"{ORDERS}-other-DLQ", False),
    ],
)
def test_topic_beside_is_known_by_its_name(topic: str, *, beside: bool) -> None:
    """Another subscription's dead letters may be read on purpose."""
    assert is_beside(topic, "billing") == beside


@pytest.mark.parametrize(
    "pattern, namespace, matching, others",
    [
        ("aa-.*|bb-.*", "public/default", ["aa-1", "bb-2"], ["cc-1", "xbb-2", "aa"]),
        ("a.c/s-1/aa|bb", "a.c/s-1", ["aa", "bb"], ["aab"]),
        ("persistent://public/default/orders.*", "public/default", ["orders"], ["order"]),
        ("x-partition-.", "public/default", ["x-partition-a", "x-partition-3"], ["x"]),
    ],
)
def test_pattern_matches_whole_names_in_its_namespace(
    pattern: str, namespace: str, matching: list[str], others: list[str]
) -> None:
    """Each alternative of it."""
    found, names = read_pattern(pattern)
    assert found == namespace
    assert all(names.fullmatch(f"persistent://{namespace}/{name}") for name in matching)
    assert not any(names.fullmatch(f"persistent://{namespace}/{name}") for name in others)


@pytest.mark.parametrize(
    "pattern", ["acme/(shop|bank)/.*", "persistent://a/b/c|persistent://a/b/d", "a/b", "("]
)
def test_pattern_of_no_or_several_namespaces_is_refused(pattern: str) -> None:
    """It would match nothing, or a part of what it says."""
    with pytest.raises(ConfigurationError, match="pattern="):
        read_pattern(pattern)

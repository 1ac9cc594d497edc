"""What a reader of ranges is told, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.adapters.pulsar.ranges import PulsarRanges
from consumer_sdk.errors import ConfigurationError


def test_url_names_topics_and_subscription() -> None:
    """As the adapter's URL, but that there need be no subscription."""
    url = "pulsar://h:6650/a,b?admin_url=http%3A%2F%2Fh%3A8080&token=secret"
    assert PulsarRanges.from_url(url).group is None
    assert PulsarRanges.from_url(url + "&subscription=s&stall_timeout=2").group == "s"


@pytest.mark.parametrize("option", ["type=shared", "retry_topic=yes", "busy_timeout=1", "x=1"])
def test_url_with_an_option_of_consumers_alone_is_refused(option: str) -> None:
    """What would do nothing is a mistake; the message names it and shows no secret."""
    url = f"pulsar://h:6650/a?token=secret&{option}"
    with pytest.raises(ConfigurationError, match=option.partition("=")[0]) as caught:
        PulsarRanges.from_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"stall_timeout": 0},
        {"stall_timeout": float("nan")},
        {"stall_timeout": "1"},
        {"receiver_queue": 0},
        {"admin_url": "h:8080"},
        {"subscription": " "},
        {"pattern": "x.*"},
        {"initial_position": "first"},
        {"tokn": "t"},
    ],
)
def test_an_option_that_cannot_work_is_refused_at_once(options: dict[str, Any]) -> None:
    """Before anything is connected."""
    with pytest.raises(ConfigurationError):
        PulsarRanges("t", service_url="pulsar://h:1", **options)


def test_each_reader_has_a_name_that_no_other_can_have() -> None:
    """The client's own names can be equal where two threads draw at a time; that reads as "busy"."""
    options = PulsarRanges("t", service_url="pulsar://h:1")._options
    names = {options.for_reader(1).subscription_role_prefix() for _ in range(50)}
    assert len(names) == 50
    assert all(name.startswith("reader-") for name in names)

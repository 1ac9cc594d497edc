"""How Kinesis is reached."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_sdk.adapters.kinesis.service.connection import Connection
from consumer_sdk.errors import ConfigurationError

SECRET, TOKEN = "the-secret", "the-token"


@pytest.mark.parametrize("name", ["request_timeout", "connect_timeout", "connections"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_that_is_not_positive_is_refused(name: str, value: float) -> None:
    """The client would take some of these for: no limit."""
    limits: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError, match=f"{name}="):
        Connection(**limits)


def test_half_a_pair_of_keys_is_refused() -> None:
    """The client would look for the other half elsewhere."""
    with pytest.raises(ConfigurationError, match="aws_secret_access_key"):
        Connection(aws_access_key_id="a")
    with pytest.raises(ConfigurationError, match="aws_access_key_id"):
        Connection(aws_secret_access_key=SECRET)


def test_a_file_of_authorities_that_is_not_there_is_refused() -> None:
    """The client would find out at its first request, and call that a failure of HTTP."""
    with pytest.raises(ConfigurationError, match="verify='/nonexistent'"):
        Connection(verify="/nonexistent")


def test_secrets_are_not_shown() -> None:
    """A connection may end up in a log."""
    shown = repr(
        Connection(
            aws_access_key_id="the-id",
            aws_secret_access_key=SECRET,
            aws_session_token=TOKEN,
        )
    )
    assert "the-id" in shown
    assert SECRET not in shown
    assert TOKEN not in shown


def test_the_place_is_the_most_exact_one_known() -> None:
    """For messages."""
    assert Connection(endpoint_url="http://x", region_name="r").place("s") == "http://x"
    assert Connection(region_name="r").place() == "r"
    assert Connection().place("s") == "s"
    assert Connection().place() == "the configured region"

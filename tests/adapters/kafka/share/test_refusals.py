"""Why a share group takes a member not, and what to do."""

from __future__ import annotations

import pytest
from aiokafka.errors import for_code

from consumer_sdk.adapters.kafka.share.refusals import refusal, unsupported
from consumer_sdk.errors import AdapterError, ConfigurationError, TransientAdapterError


@pytest.mark.parametrize(
    "code, kind, advice",
    [
        (23, ConfigurationError, "give another share_group="),
        (35, ConfigurationError, "share.version"),
        (42, AdapterError, "the broker finds the request invalid"),
        (69, ConfigurationError, "give another share_group="),
        (81, AdapterError, "group.share.max.size"),
        (30, AdapterError, "ACLs"),
    ],
)
def test_refusal_says_what_was_asked_for_and_what_to_do(
    code: int, kind: type[Exception], advice: str
) -> None:
    """With the broker's own words; it does not pass."""
    error = refusal(code, "Said so.", "joining group 'g'")
    assert isinstance(error, kind)
    assert not isinstance(error, TransientAdapterError)
    assert str(error).startswith("joining group 'g': ")
    assert (
        "Said so; " in str(error) or code == 30
    )  # an error of the client's has it in its own form
    assert "Said so" in str(error)
    assert advice in str(error)
    assert "; ;" not in str(refusal(code, "", "joining group 'g'"))


def test_code_that_usually_passes_ends_the_membership_all_the_same() -> None:
    """Whoever fetched on would wait in vain."""
    error = refusal(7, "", "joining group 'g'")
    assert isinstance(error, AdapterError)
    assert not isinstance(error, TransientAdapterError)
    assert "start the consumer again" in str(error)
    assert type(error.__cause__) is for_code(7)


def test_broker_without_share_groups_is_told_apart() -> None:
    """With its own error as the cause."""
    cause = ValueError("no version")
    error = unsupported(cause, "opening share group 'g'")
    assert isinstance(error, ConfigurationError)
    assert error.__cause__ is cause
    assert "use group= instead of share_group=" in str(error)
    assert str(error).startswith("opening share group 'g': no version; the broker")
    error = unsupported(None, "opening share group 'g'")
    assert str(error).startswith("opening share group 'g': the broker")
    assert error.__cause__ is None

"""What is said when a group does not take a member."""

from __future__ import annotations

import pytest
from aiokafka import errors as kafka

from consumer_sdk.adapters.kafka.groups.choosing import ClassicMembers
from consumer_sdk.adapters.kafka.groups.refusals import (
    ADVICE,
    refusal,
    unlike,
    unsupported,
)
from consumer_sdk.errors import (
    AdapterError,
    ConfigurationError,
    ConsumerSdkError,
    TransientAdapterError,
)

OTHER_STRATEGY = "give the partition_assignment_strategy that the others use"
OTHER_TYPE = "the group is of another type"


@pytest.mark.parametrize(
    "code, is_classic, kind, said",
    [
        (23, True, ConfigurationError, OTHER_STRATEGY),
        (23, False, ConfigurationError, OTHER_TYPE),
        (35, False, ConfigurationError, "use protocol='classic' or 'auto'"),
        (42, False, AdapterError, "the broker finds the request invalid"),
        (69, False, ConfigurationError, OTHER_TYPE),
        (81, True, AdapterError, "raise the broker's group.max.size"),
        (82, True, AdapterError, "its own words; this member was replaced"),
        (111, False, AdapterError, "end the other one"),
        (112, False, ConfigurationError, "does not know the assignor"),
        (128, False, ConfigurationError, "RE2"),
    ],
)
def test_refusal_says_what_to_do_and_not_only_the_code(
    *, code: int, is_classic: bool, kind: type[ConsumerSdkError], said: str
) -> None:
    """Also where the client has no error of that code: it would call it unknown."""
    error = refusal(code, "its own words", "joining group 'g'", is_classic=is_classic)
    assert type(error) is kind
    assert str(error).startswith("joining group 'g': ")
    assert said in str(error)
    assert "UnknownError" not in str(error)


@pytest.mark.parametrize("code", range(-1, 130))
def test_refusal_is_never_called_transient(code: int) -> None:
    """The membership is over: a consumer that fetched on would wait outside the group for ever."""
    for is_classic in (True, False):
        error = refusal(code, "its own words", "joining group 'g'", is_classic=is_classic)
        assert isinstance(error, AdapterError | ConfigurationError)
        assert not isinstance(error, TransientAdapterError)
        is_ours = code in ADVICE and not (is_classic and code == 23)
        assert is_ours or type(error.__cause__) is kafka.for_code(code)


def test_broker_that_does_not_know_the_request_is_told_apart() -> None:
    """With the client's own error as the cause."""
    cause = kafka.IncompatibleBrokerVersion("no version")
    error = unsupported(cause, "joining group 'g'")
    assert str(error).startswith("joining group 'g': IncompatibleBrokerVersion: no version; ")
    assert "use protocol='classic'" in str(error)
    assert error.__cause__ is cause


@pytest.mark.parametrize(
    "members, said",
    [
        (None, OTHER_STRATEGY),
        (ClassicMembers("consumer", "", 3), OTHER_STRATEGY),  # they rebalance just now
        (ClassicMembers("consumer", "sticky", 3), OTHER_STRATEGY),  # by now they do
        (
            ClassicMembers("consumer", "range", 3),
            r"members \(3\) share .* by 'range': give partition_assignment_strategy=\['range'\]",
        ),
        (ClassicMembers("consumer", "mine", 1), "by 'mine': give an assignor class of that name"),
        (ClassicMembers("connect", "default", 1), "another type, 'connect': give another group="),
        (ClassicMembers("connect", "", 1), "another type, 'connect': give another group="),
    ],
)
def test_members_that_share_out_otherwise_are_named_with_what_to_give(
    members: ClassicMembers | None, said: str
) -> None:
    """Whoever reads it does not see their configuration."""
    with pytest.raises(ConfigurationError, match=said) as found:
        raise unlike(["cooperative-sticky", "sticky"], "joining group 'g'", members)
    assert "this member offers the assignors 'cooperative-sticky', 'sticky'; " in str(found.value)
    assert str(found.value).startswith("joining group 'g': ")

"""What is said when a group does not take a member."""

from __future__ import annotations

import pytest

from consumer_sdk.adapters.kafka.groups.choosing import ClassicMembers
from consumer_sdk.adapters.kafka.groups.refusals import refusal, unlike
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
        (81, True, AdapterError, "raise the broker's group.max.size"),
        (82, True, AdapterError, "its own words; this member was replaced"),
        (111, False, AdapterError, "end the other one"),
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
        assert not isinstance(error, TransientAdapterError)


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

"""Errors of kazoo's: which of them may pass, and what is said of the others."""

from __future__ import annotations

import pytest
from kazoo import exceptions as kazoo

from consumer_sdk.errors import StoreError
from consumer_sdk.stores.zookeeper.bridge import UnknownResultError, is_conflict, translate


@pytest.mark.parametrize(
    "error",
    [
        kazoo.ConnectionLoss,
        kazoo.ConnectionClosedError,
        kazoo.NewConfigNoQuorumError,
        kazoo.OperationTimeoutError,
        kazoo.RequestTimeoutError,
        kazoo.SessionExpiredError,
        kazoo.SessionMovedError,
        kazoo.ThrottledOpError,
    ],
)
def test_error_that_may_pass_leaves_open_what_was_done(error: type[Exception]) -> None:
    """It says where."""
    found = translate(error(), "/here")
    assert type(found) is UnknownResultError
    assert str(found).startswith("/here: the connection to ZooKeeper was lost (")


@pytest.mark.parametrize(
    "error, words",
    [
        (kazoo.NoAuthError, "not permitted: let this user"),
        (kazoo.AuthFailedError, "refused our credentials"),
        (kazoo.SessionClosedRequireSaslError, "give sasl_options="),
        (kazoo.InvalidACLError, "do not take default_acl="),
        (kazoo.QuotaExceededError, "the quota of this path is used up"),
        (kazoo.MarshallingError, "not expected from ZooKeeper here"),
    ],
)
def test_error_that_stays_says_what_to_do(error: type[Exception], words: str) -> None:
    """And where."""
    found = translate(error(), "/here")
    assert type(found) is StoreError
    assert str(found).startswith("/here: ")
    assert words in str(found)


@pytest.mark.parametrize(
    "error, is_one",
    [
        (kazoo.BadVersionError(), True),
        (kazoo.NodeExistsError(), True),
        (kazoo.NoNodeError(), True),
        (kazoo.NoAuthError(), False),
        (kazoo.ConnectionLoss(), False),
    ],
)
def test_conflict_is_what_another_write_has_caused(*, error: Exception, is_one: bool) -> None:
    """The znode is not as it was read."""
    assert is_conflict(error) is is_one

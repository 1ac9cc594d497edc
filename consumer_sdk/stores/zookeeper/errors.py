"""What went wrong between us and ZooKeeper, and what to do about it."""

from __future__ import annotations

from kazoo import exceptions as kazoo

from consumer_sdk.errors import StoreError, TransientStoreError

__all__ = ["UnknownResultError", "is_conflict", "translate"]

PASSING = (
    kazoo.ConnectionLoss,
    kazoo.NewConfigNoQuorumError,
    kazoo.OperationTimeoutError,
    kazoo.RequestTimeoutError,
    kazoo.SessionExpiredError,  # and ConnectionClosedError
    kazoo.SessionMovedError,
    kazoo.ThrottledOpError,
)

REMEDIES: dict[type[Exception], str] = {
    kazoo.NoAuthError: "not permitted: let this user create, read and write below the store's "
    "root, or give the store auth_data= or sasl_options=",
    kazoo.AuthFailedError: "the servers refused our credentials: see auth_data=, sasl_options= "
    "and the servers' log",
    kazoo.SessionClosedRequireSaslError: "the servers want SASL: give sasl_options=",
    kazoo.InvalidACLError: "the servers do not take default_acl=, or nobody has logged in for "
    "its 'auth' scheme",
    kazoo.QuotaExceededError: "the quota of this path is used up: raise it, or delete groups "
    "that are gone",
}

CONFLICTS = (kazoo.BadVersionError, kazoo.NodeExistsError, kazoo.NoNodeError)


class UnknownResultError(TransientStoreError):
    """The request was sent, and no answer came: it may have been applied, or be applied later."""


def is_conflict(error: Exception) -> bool:
    """Whether a write was refused because the znode is not as it was read."""
    return isinstance(error, CONFLICTS)


def translate(error: Exception, what: str) -> StoreError:
    """An error of kazoo's as ours; transient where it may pass.

    Args:
        what: what was asked for, or where.
    """
    if isinstance(error, PASSING):
        return UnknownResultError(f"{what}: the connection to ZooKeeper was lost ({error!r})")
    remedy = REMEDIES.get(type(error), "not expected from ZooKeeper here")
    return StoreError(f"{what}: {error!r}: {remedy}")

"""What a member of a group logs of the leases that change hands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from consumer_sdk.log_limits import REPEATS
from consumer_sdk.records import LeaseView, Moves

__all__ = ["log_moves"]

log = logging.getLogger(__name__)

NAMED = 10
"""Shards that one line names."""


def log_moves(view: LeaseView, todo: Moves, handed_over: Iterable[str]) -> None:
    """Who gets a shard, from whom one is taken that did not hand it over, and who is missing.

    What a consumer is assigned, what was revoked and what has ended it says itself.
    """
    for member, shards in _by_member(handed_over, lambda shard: view.leases[shard].wanted_by):
        log.info("handing %s over to %s", shards, member, extra=REPEATS)
    for member, shards in _by_member(todo.take, lambda shard: view.leases[shard].owner):
        log.info("taking %s without a handover from %s", shards, member, extra=REPEATS)
    if todo.unread:
        log.warning(
            "nobody reads %s: each member has as many as its max_shards allows; start another "
            "member, or raise max_shards",
            _some(todo.unread),
            extra=REPEATS,
        )


def _by_member(
    shards: Iterable[str], member_of: Callable[[str], str | None]
) -> Iterator[tuple[str, str]]:
    """Member → its shards, as a text; those of nobody are left out."""
    found: dict[str, list[str]] = {}
    for shard in shards:
        if (member := member_of(shard)) is not None:
            found.setdefault(member, []).append(shard)
    return ((member, _some(theirs)) for member, theirs in sorted(found.items()))


def _some(shards: Sequence[str]) -> str:
    more = ", …" if len(shards) > NAMED else ""
    word = "shard" if len(shards) == 1 else "shards"
    return f"{len(shards)} {word} ({', '.join(shards[:NAMED])}{more})"

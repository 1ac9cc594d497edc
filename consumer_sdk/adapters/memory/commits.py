"""Checkpoints in a group's commits: a position, and as much of the rest as fits."""

from __future__ import annotations

from dataclasses import replace

from consumer_sdk.adapters.memory.group import Commit, Group
from consumer_sdk.adapters.memory.membership import Membership
from consumer_sdk.checkpoints.forms import Fitted
from consumer_sdk.checkpoints.json import decode_checkpoint, fit_checkpoint
from consumer_sdk.records import AckFlush, Checkpoint, Committed, Outcome, Partition

__all__ = ["Commits"]


class Commits:
    """Writes and reads a group's commits.

    Args:
        max_size: characters of checkpoint that a commit may carry.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size

    def store(self, membership: Membership, flush: AckFlush, log_start: int) -> Outcome:
        """Commits a flush; says how far its ranges are covered."""
        partition, checkpoint = flush.assignment.partition, flush.checkpoint
        position = log_start if checkpoint.resume is None else checkpoint.resume
        if checkpoint.watermark is None:
            # Positions are integers here: nothing below the first one to read is unsettled.
            # -1 for the very first makes a budget's answer "nothing is covered" sayable. A range
            # that retention has cut into may begin below the position.
            first = min([position, *(first for first, _ in checkpoint.ranges[:1])])
            checkpoint = replace(checkpoint, watermark=first - 1)
        text, covered, forgotten = self._fit(partition, checkpoint)
        member = membership.member
        owner = (member.id, member.generation, flush.assignment.epoch)
        new = Commit(position, text, owner, flush.number, flush.is_copy)
        membership.group.commit(partition, new)
        return Outcome.durable(covered, forgotten)

    def load(self, group: Group, partition: Partition, identity: str | None) -> Committed | None:
        """What the group has committed for a partition."""
        committed = group.committed.get(partition)
        if committed is None:
            return None
        if committed.text is None:
            bare = Checkpoint(resume=committed.position)
            return Committed(bare, is_foreign=committed.is_foreign, is_copy=committed.is_copy)
        checkpoint = decode_checkpoint(
            committed.text,
            broker="memory",
            partition=partition,
            identity=identity,
            decode_position=int,
        )
        if checkpoint.watermark == -1:
            checkpoint = replace(checkpoint, watermark=None)
        return Committed(checkpoint, is_copy=committed.is_copy)

    def _fit(self, partition: Partition, checkpoint: Checkpoint) -> Fitted:
        """The text that fits, None if none does."""
        fitted = fit_checkpoint(
            checkpoint,
            broker="memory",
            partition=partition,
            encode_position=str,
            max_size=self._max_size,
        )
        if len(fitted.data) <= self._max_size:
            return fitted
        covered = checkpoint.watermark if checkpoint.ranges else None
        return Fitted(None, covered, len(checkpoint.attempts))

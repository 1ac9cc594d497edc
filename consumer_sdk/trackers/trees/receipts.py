"""Receipts: what became of branches in another process, mergeable, as bytes.

A receipt is kept for each branch, and two receipts of one branch merge into the larger of each of
their halves: so merging is associative, commutative and idempotent, a fail wins over an ack, and
a task that Spark runs twice, or whose result arrives twice, counts once. (Partial XORs would be
smaller, but XOR is not idempotent: a second one would take the first back.)
"""

from __future__ import annotations

import struct
from collections.abc import ItemsView, Iterable
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple, Self

from consumer_sdk.errors import HandlerError, TokenFormatError
from consumer_sdk.records.tokens import Anchor, Bytes, decode_token, encode_token, seal, unseal
from consumer_sdk.trackers.trees.edges import child_edge

__all__ = ["Fate", "Receipt", "Receipts"]

RECEIPTS = b"br\x01"
_COUNT = struct.Struct("<I")
_RECEIPT = struct.Struct("<QQQIQBH")
LONGEST_REASON = 2_000
"""Bytes of UTF-8."""


class Fate(IntEnum):
    """What became of a branch; of two reports, the greater one wins."""

    OPEN = 0
    ACKED = 1
    FAILED = 2
    REJECTED = 3


class Receipt(NamedTuple):
    """What became of one anchor of a branch.

    Attributes:
        children: how many were made; two runs of one task make the same ones.
        value: what to XOR into the tree: the branch's own edge and its children's.
        fate: see `Fate`.
        reason: why it failed.
    """

    children: int
    value: int
    fate: Fate = Fate.OPEN
    reason: str = ""

    def merged(self, other: Receipt) -> Receipt:
        """What both know together."""
        return Receipt(*max(self[:2], other[:2]), *max(self[2:], other[2:]))


class Receipts:
    """Settles branches by their tokens, where their trees are not.

    Hand it back, itself or as ``bytes(receipts)``, to `Consumer.settle` in the process of the
    consumer. Order does not matter, nor does it if some arrive twice, or with others by ``|``.

    A token is for one task: two that make children of one token would make the same ones.
    """

    __slots__ = ("_receipts",)

    def __init__(self) -> None:
        self._receipts: dict[Anchor, Receipt] = {}

    def ack(self, token: Bytes) -> None:
        """The branch's work is done.

        Raises:
            TokenFormatError: ``token`` is not what `Branch.token` or `branch` returned; so with
                the others.
        """
        self._settle(token, Fate.ACKED, "")

    def fail(self, token: Bytes, reason: BaseException | str = "a branch failed") -> None:
        """The branch's record is to be delivered again."""
        self._settle(token, Fate.FAILED, reason)

    def reject(self, token: Bytes, reason: BaseException | str = "rejected") -> None:
        """The branch's record can never be processed: it goes to the dead letters."""
        self._settle(token, Fate.REJECTED, reason)

    def _settle(self, token: Bytes, fate: Fate, reason: BaseException | str) -> None:
        for anchor in decode_token(token):
            self._merge(anchor, Receipt(0, anchor.edge, fate, _shortened(str(reason))))

    def branch(self, token: Bytes) -> bytes:
        """The token of a new child of a branch, to be settled here or elsewhere.

        The n-th child of a branch has the same token wherever it is made, so make the children
        of one branch in one `Receipts`.

        Raises:
            HandlerError: the branch is settled in these receipts.
        """
        return self.join([token])

    def join(self, tokens: Iterable[Bytes]) -> bytes:
        """The token of one child of several branches, of one tree or of many.

        Each of their trees waits for it, and all of them fail with it, as with `Branch.join`. The
        branches themselves are still to be settled; like the children of `branch`, it is the same
        wherever the same task makes it.

        Raises:
            HandlerError: one of the branches is settled in these receipts; no child was made.
        """
        anchors = list(chain.from_iterable(map(decode_token, tokens)))
        if any(self._of(anchor).fate for anchor in anchors):
            raise HandlerError("this branch is settled: make its children before that")
        return encode_token([self._grow(anchor) for anchor in anchors])

    def _grow(self, anchor: Anchor) -> Anchor:
        known = self._of(anchor)
        edge = child_edge(anchor.edge, known.children)
        self._receipts[anchor] = Receipt(known.children + 1, known.value ^ edge)
        return anchor._replace(edge=edge)

    def _of(self, anchor: Anchor) -> Receipt:
        return self._receipts.get(anchor) or Receipt(0, anchor.edge)

    # -- merging --------------------------------------------------------------------------

    def _merge(self, anchor: Anchor, receipt: Receipt) -> None:
        self._receipts[anchor] = receipt.merged(self._of(anchor))

    def __ior__(self, other: Receipts) -> Self:
        for anchor, receipt in other.items():
            self._merge(anchor, receipt)
        return self

    def __or__(self, other: Receipts) -> Receipts:
        merged = Receipts()
        merged |= self
        merged |= other
        return merged

    def items(self) -> ItemsView[Anchor, Receipt]:
        """Each branch's anchors, and what became of it."""
        return self._receipts.items()

    def __len__(self) -> int:
        return len(self._receipts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipts) and self._receipts == other._receipts

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} branches>"

    # -- bytes ----------------------------------------------------------------------------

    def __bytes__(self) -> bytes:
        """39 bytes for each anchor; equal receipts are equal bytes."""
        heads, reasons = [], []
        for anchor, receipt in sorted(self._receipts.items()):
            reason = receipt.reason.encode()
            heads.append(
                _RECEIPT.pack(*anchor, receipt.children, receipt.value, receipt.fate, len(reason))
            )
            reasons.append(reason)
        return seal(RECEIPTS, b"".join([_COUNT.pack(len(heads)), *heads, *reasons]))

    @classmethod
    def from_bytes(cls, data: Bytes) -> Self:
        """Reads ``bytes(receipts)`` back, in time and memory that are linear in its length.

        Raises:
            TokenFormatError: these are not the bytes of receipts.
        """
        body = unseal(RECEIPTS, data, "the bytes of receipts")
        receipts = cls()
        try:
            receipts._read(body)
        except (struct.error, ValueError) as error:
            raise TokenFormatError(f"receipts whose bytes do not add up: {error}") from error
        return receipts

    def _read(self, body: bytes) -> None:
        (count,) = _COUNT.unpack_from(body)
        at = _COUNT.size + count * _RECEIPT.size
        for fields in _RECEIPT.iter_unpack(body[_COUNT.size : at]):
            *anchor, children, value, fate, length = fields
            reason = body[at : at + length].decode()
            at += length
            self._merge(Anchor(*anchor), Receipt(children, value, Fate(fate), reason))
        if at != len(body):
            raise ValueError(f"{len(body)} bytes instead of {at}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (bytes(self),)


def _shortened(reason: str) -> str:
    """At most `LONGEST_REASON` bytes, and such that they can be UTF-8."""
    whole = reason.encode("utf-8", "backslashreplace")
    return whole[:LONGEST_REASON].decode("utf-8", "ignore")

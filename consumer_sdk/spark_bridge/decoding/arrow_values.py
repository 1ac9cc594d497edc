"""Decodes a column in a Spark worker, value by value: what Avro and Protobuf share. No Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowDecoder", "RejectedError", "rejected"]

_LONGEST_REASON = 500


class RejectedError(Exception):
    """This value is bad, whoever decodes it."""


def rejected(what: str, error: BaseException) -> RejectedError:
    """What a library said of a value, short enough for a column."""
    return RejectedError(f"{what}: {type(error).__name__}: {error}"[:_LONGEST_REASON])


class ArrowDecoder(ABC):
    """Decodes values, or says why it cannot. It may be pickled.

    Args:
        kind: the Arrow type of decoded values.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind

    @abstractmethod
    def read(self, data: bytes) -> Any:
        """The value as Arrow takes it: a dictionary.

        Raises:
            RejectedError: the value is bad.
            Exception: it could not be decoded now; the task fails.
        """

    @final
    def decode(self, values: pa.Array) -> pa.Array:
        """Pairs of a value and a reason, one of which is null; both, for a value that is null.

        Raises:
            Exception: what `read` raises, other than RejectedError.
        """
        import pyarrow as pa

        found: list[Any] = []
        reasons: list[str | None] = []
        for data in values.to_pylist():
            value, reason = self._try(data)
            found.append(value)
            reasons.append(reason)
        decoded = self._column(found, reasons)
        return pa.StructArray.from_arrays(
            [decoded, pa.array(reasons, pa.string())], names=["value", "reason"]
        )

    def _try(self, data: bytes | None) -> tuple[Any, str | None]:
        if data is None:
            return None, None
        try:
            return self.read(data), None
        except RejectedError as error:
            return None, str(error)

    def _column(self, found: list[Any], reasons: list[str | None]) -> pa.Array:
        """The values as Arrow; one that does not fit a column (a date of the year 0) is rejected."""
        import pyarrow as pa

        unfit = (pa.ArrowException, OverflowError, TypeError, ValueError)
        try:
            return pa.array(found, self._kind)
        except unfit:
            for at, value in enumerate(found):
                try:
                    pa.array([value], self._kind)
                except unfit as error:
                    found[at] = None
                    reasons[at] = f"the value does not fit its column: {error}"[:_LONGEST_REASON]
        return pa.array(found, self._kind)

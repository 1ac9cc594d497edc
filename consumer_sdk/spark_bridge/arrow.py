"""The import of Arrow, and arrays that cost almost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from consumer_sdk.errors import MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa

    # Decoders, which import this module too, have no records.
    from consumer_sdk.range_reads import Header

__all__ = ["consecutive", "header_lists", "import_pyarrow", "repeated", "warm_up"]


def import_pyarrow() -> Any:
    """The pyarrow module, with its IPC part.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyarrow", "spark") from error
    return pa


def warm_up() -> None:
    """Makes the first conversion as fast as the others: it imports pandas, if that is there."""
    import_pyarrow().array([b""])


def consecutive(first: int, count: int) -> pa.Array:
    """Consecutive integers from ``first`` on, computed by Arrow."""
    from pyarrow import compute

    return compute.add(_iota(_room(count)).slice(0, count), first)


def repeated(value: str | int | None, kind: Any, count: int) -> pa.Array:
    """The same value in each row: a slice of an array that is made once."""
    return _constants(value, kind, _room(count)).slice(0, count)


def header_lists(headers: Sequence[Sequence[Header]], kind: Any) -> Any:
    """A list of headers for each record; null for none, as in Spark's own Kafka source.

    Args:
        headers: of each record.
        kind: the type of the column.

    Returns:
        an array; if the headers have 2 GiB or more, a ``ChunkedArray``, which a record batch does
        not accept.
    """
    pa = import_pyarrow()
    if not any(headers):
        return pa.nulls(len(headers), kind)
    headers = [each or () for each in headers]
    flat = list(chain.from_iterable(headers))
    keys = pa.array([key for key, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    if isinstance(values, pa.ChunkedArray):
        return values
    structs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    ends = pa.array([0, *accumulate(map(len, headers))], pa.int32())
    empty = pa.array([not each for each in headers])
    return pa.ListArray.from_arrays(ends, structs, type=kind, mask=empty)


def _room(count: int) -> int:
    """A power of two that holds ``count``, so that few arrays are made."""
    return max(1024, 1 << (count - 1).bit_length())


@lru_cache(maxsize=8)
def _iota(count: int) -> Any:
    return import_pyarrow().array(range(count), "int64")


@lru_cache(maxsize=32)
def _constants(value: str | int | None, kind: Any, count: int) -> Any:
    pa = import_pyarrow()
    return pa.repeat(pa.scalar(value, kind), count)

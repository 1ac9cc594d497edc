"""Decodes values in Spark's Python workers; shared by Avro and Protobuf.

The driver calls `decode_in_workers`: Spark hands the column to an Arrow function, batch by batch. In
the workers an `ArrowDecoder` decodes it value by value; that part needs no Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Any, final

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.arrow import import_pyarrow
from consumer_sdk.spark_bridge.decoding.outcomes import add_outcome
from consumer_sdk.spark_bridge.pyspark_version import require_pyspark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from consumer_sdk.schema_registry import SchemaRegistry

__all__ = [
    "ArrowDecoder",
    "RejectedError",
    "arrow_function",
    "arrow_type",
    "decode_in_workers",
    "registry_of",
    "rejected",
]

_LONGEST_REASON = 500
_PARSED = "__consumer_sdk_parsed"


def arrow_type(kind: StructType) -> Any:
    """The Arrow type of a column, as Spark's workers want it.

    Raises:
        MissingExtraError: pyarrow or pyspark is not installed, or PySpark is older than 4.1.
    """
    import_pyarrow()
    require_pyspark("4.1")  # who asks needs `arrow_function` next
    from pyspark.sql.pandas.types import to_arrow_type

    # Before PySpark 4.2 the function takes no zone, and means UTC.
    zone: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}
    return to_arrow_type(kind, **zone)


def decode_in_workers(
    rows: DataFrame,
    decoder: ArrowDecoder,
    kind: StructType,
    *,
    value: str,
    into: str,
    reject_null: bool,
) -> DataFrame:
    """The rows with the columns ``into``, of type ``kind``, and ``reason``."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType
    from pyspark.sql.types import StructType as Struct

    answer = Struct().add("value", kind).add("reason", StringType())
    decode = arrow_function(lambda values: decoder.decode(values), answer)
    parsed = rows.withColumn(_PARSED, decode(f.col(value).cast("binary")))
    decoded, reason = f.col(_PARSED)["value"], f.col(_PARSED)["reason"]
    return add_outcome(parsed, value, into, decoded, reason, reject_null=reject_null).drop(_PARSED)


def arrow_function(work: Callable[..., pa.Array], answer: StructType | str) -> Any:
    """A function of columns, as Spark's workers call it: with Arrow arrays.

    Args:
        work: takes an array for each column; its annotations are replaced.
        answer: the type of what it returns.

    Raises:
        MissingExtraError: pyarrow or pyspark is not installed, or PySpark is older than 4.1.
    """
    array = import_pyarrow().Array
    require_pyspark("4.1")  # the first with functions on Arrow's arrays
    from pyspark.sql.pandas.functions import arrow_udf

    # Types for Spark to see; written as annotations they would be texts, which it evaluates.
    work.__annotations__ = {**dict.fromkeys(signature(work).parameters, array), "return": array}
    return arrow_udf(work, answer)  # type: ignore[call-overload]  # its stubs know no type hints


def registry_of(
    registry: SchemaRegistry | str | None, subject: str | None, *, has_schema: bool
) -> SchemaRegistry | None:
    """The registry that was named.

    Raises:
        ConfigurationError: its URL is none, or a subject does not belong here.
    """
    if subject is not None and (registry is None or has_schema):
        raise ConfigurationError(
            f"subject={subject!r}: it says which schema of registry= is the reader's, where none is given"
        )
    if not isinstance(registry, str):
        return registry
    # JSON's workers, which ask no registry, need not import it.
    from consumer_sdk.schema_registry import SchemaRegistry

    return SchemaRegistry.from_url(registry)


# -- in a worker ---------------------------------------------------------------------------


class RejectedError(Exception):
    """The value is invalid, so decoding it again does not help."""


def rejected(what: str, error: BaseException) -> RejectedError:
    """Makes a reason of a library's error, short enough for a column."""
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
        """Returns the value as a dictionary for Arrow.

        Raises:
            RejectedError: the value is bad.
            Exception: it could not be decoded now; the task fails.
        """

    @final
    def decode(self, values: pa.Array) -> pa.Array:
        """Pairs of a value and a reason, one of which is null. For a null value both are null.

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

"""What Avro and Protobuf ask of PySpark, in each of its versions."""

from __future__ import annotations

from typing import Any

import pyspark
import pytest
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType, TimestampType

from consumer_sdk.errors import MissingExtraError
from consumer_sdk.spark_bridge.decoding.in_workers import arrow_type

KIND = StructType().add("at", TimestampType())


def test_spark_is_not_told_the_zone_before_it_asks_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark 4.1's function means UTC, and takes no other."""

    def older(kind: Any, prefers_large_types: bool = False) -> Any:  # noqa: FBT001, FBT002 - Spark's
        return kind, prefers_large_types

    monkeypatch.setattr(types, "to_arrow_type", older)
    assert arrow_type(KIND) == (KIND, False)


def test_a_pyspark_without_arrow_functions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything of it is called that it does not have."""
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    with pytest.raises(MissingExtraError, match=r"pyspark 4\.0\.5 is installed, and 4\.1"):
        arrow_type(KIND)

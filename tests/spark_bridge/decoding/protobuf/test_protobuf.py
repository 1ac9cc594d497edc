"""Protobuf values, decoded by a real Spark."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge import from_protobuf_value
from tests.schema_registry.registry_server import running
from tests.spark_bridge.decoding.protobuf.test_values import FULL, NEW, shop
from tests.spark_bridge.decoding.protobuf_messages import EVERY, build
from tests.spark_bridge.decoding.test_json_values import given, outcomes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_values_are_decoded_or_rejected(spark: SparkSession, tmp_path: Path) -> None:
    """By a descriptor file of the driver alone; the types are those of Spark's own decoder."""
    path = tmp_path / "shop.desc"
    path.write_bytes(EVERY)
    rows = given(spark, build(EVERY, "Every", **FULL), b"\xff", None, b"")
    found = from_protobuf_value(rows, "shop.Every", path)
    types = dict(found.select("decoded.*").dtypes)
    assert types["took"] == "interval day to second"
    assert types["at"] == "timestamp"
    path.unlink()
    first, bad, nothing, empty = outcomes(found)
    assert first[0]["took"] == dt.timedelta(seconds=-1, microseconds=-1)
    assert first[0]["inners"] == {3: {"x": 4, "list": []}}
    assert first[1] is None
    assert bad[0] is None
    assert "shop.Every" in bad[1]
    assert nothing == (None, None)
    assert empty[0]["tags"] == []


def test_a_registry_says_what_values_are(spark: SparkSession) -> None:
    """The reader's message is the latest schema's first one, with what it imports."""
    with running() as server:
        shop(server)
        rows = given(
            spark, b"\0\0\0\0\2\0\x08\x01", b"\0\0\0\0\2\2\0\x08\x01", b"\0\0\0\0\3\0", b"\x08"
        )
        found = from_protobuf_value(rows, "shop.Order", registry=server.url, subject="orders-value")
        assert [reason for _, reason in outcomes(found)] == [
            None,
            None,
            "the value is a shop.Box, no shop.Order",
            "the value does not begin with a zero and a schema's number",
        ]


def test_what_is_missing_is_said_before_any_value_is_read(spark: SparkSession) -> None:
    """Typed errors, on the driver."""
    rows = given(spark, b"")
    with pytest.raises(ConfigurationError, match="give both, or registry= and subject="):
        from_protobuf_value(rows, "New")
    with pytest.raises(ConfigurationError, match="subject='x'"):
        from_protobuf_value(rows, "New", NEW, subject="x")
    with pytest.raises(ConfigurationError, match="no fields that can be columns"):
        from_protobuf_value(rows, "Nothing", EVERY)
    with pytest.raises(ConfigurationError, match="max_bytes=0"):
        from_protobuf_value(rows, "New", NEW, max_bytes=0)

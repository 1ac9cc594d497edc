"""JSON values, decoded by a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, StructType

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.decoding.json_values import from_json_value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # The first query starts Spark's machinery, which takes a minute where others work too.
]

SCHEMA = (
    "id INT NOT NULL, name STRING, amount DOUBLE, at TIMESTAMP, tags ARRAY<INT>, "
    "place STRUCT<x: INT NOT NULL, y: INT>, items ARRAY<STRUCT<sku: STRING NOT NULL>>, "
    "prices MAP<STRING, STRUCT<cents: INT NOT NULL>>"
)


def given(spark: SparkSession, *values: bytes | None) -> DataFrame:
    """A row for each value, numbered."""
    rows = [(at, None if each is None else bytearray(each)) for at, each in enumerate(values)]
    return spark.createDataFrame(rows, "at INT, value BINARY")


def outcomes(rows: DataFrame) -> list[tuple[Any, Any]]:
    """``decoded``, without its nulls, and ``reason`` of each row."""
    found = rows.orderBy("at").select("decoded", "reason").collect()
    return [(_plain(row["decoded"]), row["reason"]) for row in found]


def _plain(row: Any) -> dict[str, Any] | None:
    if row is None:
        return None
    return {name: value for name, value in row.asDict(True).items() if value is not None}


def test_what_fits_is_decoded(spark: SparkSession) -> None:
    """Fields that may be missing are null then, and space around the value means nothing."""
    rows = given(
        spark,
        b'{"id":1,"name":"a","amount":2,"tags":[1,null],"place":{"x":1}}',
        b' {"id":2,"items":[{"sku":"s"}],"prices":{"eur":{"cents":5}},"unknown":[]}\n',
    )
    assert outcomes(from_json_value(rows, SCHEMA)) == [
        (
            {"id": 1, "name": "a", "amount": 2.0, "tags": [1, None], "place": {"x": 1, "y": None}},
            None,
        ),
        ({"id": 2, "items": [{"sku": "s"}], "prices": {"eur": {"cents": 5}}}, None),
    ]


MALFORMED = [
    *(b"", b"  ", b"\n"),  # nothing
    *(b"not json", b'{"id":1', b'{"id":01}', b'{"id":1 /* c */}'),  # syntax
    *(b"{'id':1}", b'{"id":1,"amount":NaN}'),  # no standard
    *(b'{"id":1} {"id":2}', b'{"id":1}{"id":2}'),  # two values
    *(b'{"id":1},{"id":2}', b'{"id":1},"json":[{"id":2}]'),  # a list
    *(b'{"id":1} and more', b'{"id":1}}', b'{"id":1}]', b'{"id":1}]}'),  # a tail
    # closed and opened again
    *(b'{"id":1}],"x":[{"id":2}', b'{"id":1}],"json":[{"id":2}'),
    *(b'{"id":1}],"end":[],"x":[{"id":2}', b'{"id":1}],"end":[]},"x":{"json":[{"id":2}'),
    b'{"id":1}]},"x":{"json":[{"id":2}',
    *(b'\xff\xfe{\x00"\x00', b'{"id":1,"name":"\xff"}'),  # no UTF-8
]
"""One job of Spark's decodes them all, as it does those of each list below: a job takes a second."""


def test_malformed_text_is_rejected_and_not_null(spark: SparkSession) -> None:
    """Also what ``from_json`` alone takes for null, or decodes as far as it can."""
    for value, (decoded, reason) in _outcome_of_each(spark, MALFORMED):
        assert decoded is None, value
        assert "malformed JSON" in reason or "no UTF-8" in reason, value


def _outcome_of_each(spark: SparkSession, values: Sequence[bytes]) -> list[tuple[bytes, Any]]:
    found = outcomes(from_json_value(given(spark, *values), SCHEMA))
    return list(zip(values, found, strict=True))


OF_ANOTHER_TYPE = [
    b'{"id":"x"}',
    b'{"id":"1"}',
    b'{"id":1.5}',
    b'{"id":true}',
    b'{"id":99999999999}',
    b'{"id":1,"amount":"NaN"}',
    b'{"id":1,"at":"yesterday"}',
    b'{"id":1,"tags":[1,"x"]}',
    b'{"id":1,"tags":7}',
    b'{"id":1,"place":{"x":"far"}}',
    b'{"id":1,"place":[]}',
    b"7",
    b'"text"',
    b"null",
    b"[]",
    b'[{"id":1}]',
]


def test_a_value_of_another_type_is_rejected_and_not_null(spark: SparkSession) -> None:
    """Whatever does not fit, at any depth; the row says that it does not fit."""
    for value, (decoded, reason) in _outcome_of_each(spark, OF_ANOTHER_TYPE):
        assert decoded is None, value
        assert "does not fit the schema" in reason, value


MISSING = [
    (b"{}", "id"),
    (b'{"id":null}', "id"),
    (b'{"ID":1}', "id"),
    (b'{"id":1,"place":{}}', "place.x"),
    (b'{"id":1,"place":{"x":null,"y":1}}', "place.x"),
    (b'{"id":1,"items":[{"sku":"s"},{}]}', "items[].sku"),
    (b'{"id":1,"prices":{"eur":{"cents":1},"usd":{"cents":null}}}', "prices{}.cents"),
]
"""And the paths of what is missing in them."""


def test_a_missing_required_field_is_rejected_by_name(spark: SparkSession) -> None:
    """``NOT NULL`` holds at any depth, which it does not for ``from_json``."""
    found = outcomes(from_json_value(given(spark, *(value for value, _ in MISSING)), SCHEMA))
    assert found == [(None, f"the field {path} is missing or null") for _, path in MISSING]


def test_required_elements_are_looked_at_too(spark: SparkSession) -> None:
    """``containsNull`` and ``valueContainsNull`` of a schema mean what they say."""
    schema = StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                _field("tags", {"type": "array", "elementType": "integer", "containsNull": False}),
                _field("more", _map_of("integer")),
            ],
        }
    )
    rows = given(spark, b'{"tags":[1]}', b'{"tags":[1,null]}', b'{"more":{"a":null}}', b"{}")
    assert [reason for _, reason in outcomes(from_json_value(rows, schema))] == [
        None,
        "the field tags[] is missing or null",
        "the field more{} is missing or null",
        None,
    ]


def _field(name: str, kind: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _map_of(kind: str) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": False}


def test_a_tombstone_is_neither_decoded_nor_rejected(spark: SparkSession) -> None:
    """A null value is a deletion (Spark trap 12); who has none can have it rejected."""
    rows = given(spark, None, b'{"id":1}')
    assert outcomes(from_json_value(rows, SCHEMA)) == [(None, None), ({"id": 1}, None)]
    assert outcomes(from_json_value(rows, SCHEMA, reject_null=True)) == [
        (None, "there is no value"),
        ({"id": 1}, None),
    ]


def test_a_string_field_takes_any_json_as_its_text(spark: SparkSession) -> None:
    """As Spark's do: nothing is lost, so nothing is rejected."""
    rows = given(spark, b'{"id":1,"name":5}', b'{"id":1,"name":{"x":1}}')
    found = outcomes(from_json_value(rows, SCHEMA))
    assert found == [({"id": 1, "name": "5"}, None), ({"id": 1, "name": '{"x":1}'}, None)]


def test_options_of_sparks_reader_are_passed_on(spark: SparkSession) -> None:
    """Also those that this decoder sets itself."""
    rows = given(spark, b"{'id':1}")
    found = outcomes(from_json_value(rows, SCHEMA, options={"allowSingleQuotes": "true"}))
    assert found == [({"id": 1}, None)]


def test_one_column_of_the_answer_tells_the_same_as_all(spark: SparkSession) -> None:
    """Spark may parse only what is asked for: then it must still see that the rest is wrong."""
    rows = from_json_value(given(spark, b'{"id":1,"amount":"x"}', b'{"amount":1}'), SCHEMA)
    assert [row[0] for row in rows.orderBy("at").select("decoded.amount").collect()] == [None, None]
    assert rows.where("reason IS NOT NULL").count() == 2
    assert rows.where(f.col("decoded").isNotNull()).count() == 0


def test_the_other_columns_are_as_they_were(spark: SparkSession) -> None:
    """The record stays beside what is made of it, and text columns are decoded too."""
    rows = given(spark, b'{"id":1}').withColumn("body", f.col("value").cast("string"))
    found = from_json_value(rows, SCHEMA, value="body", into="order")
    assert found.columns == ["at", "value", "body", "reason", "order"]
    assert found.select("order.id").collect()[0][0] == 1


def test_values_of_a_stream_are_decoded(spark: SparkSession, tmp_path: Path) -> None:
    """The same expressions run in a micro-batch."""
    source = str(tmp_path / "rows")
    rows = given(spark, b'{"id":1}', b"{", None)
    rows.write.parquet(source)
    stream = from_json_value(spark.readStream.schema(rows.schema).parquet(source), SCHEMA)
    query = stream.writeStream.format("memory").queryName("decoded_json")
    query.trigger(availableNow=True).start().awaitTermination()
    found = outcomes(spark.table("decoded_json"))
    assert [decoded for decoded, _ in found] == [{"id": 1}, None, None]
    assert [reason is None for _, reason in found] == [True, False, True]


def test_what_cannot_work_is_refused_at_once(spark: SparkSession) -> None:
    """Schemas that are none, columns that are missing, and names that are taken."""
    rows = given(spark, b"{}")
    with pytest.raises(ConfigurationError, match="no DDL"):
        from_json_value(rows, "id INT NOT NUL")
    with pytest.raises(ConfigurationError, match="StructType"):
        from_json_value(rows, DoubleType())  # type: ignore[arg-type]  # a careless call
    with pytest.raises(ConfigurationError, match="bytes or text"):
        from_json_value(rows, SCHEMA, value="at")
    with pytest.raises(ConfigurationError, match="'at' already"):
        from_json_value(rows, SCHEMA, into="at")
    with pytest.raises(ConfigurationError, match="'at' already"):
        from_json_value(rows, SCHEMA, into="At")
    with pytest.raises(ConfigurationError, match="'reason' already"):
        from_json_value(rows.withColumnRenamed("at", "Reason"), SCHEMA)
    for name in ("reason", "Reason"):
        with pytest.raises(ConfigurationError, match=f"into='{name}'"):
            from_json_value(rows, SCHEMA, into=name)


def test_what_does_not_fit_is_rescued(spark: SparkSession) -> None:
    """Where a column is given for it; what is malformed, or lacks a field, is rejected as before."""
    values = [
        b'{"id":1,"name":"a"}',
        b'{"id":1,"amount":"x","new":[1.50],"place":{"x":1,"y":"b"},"tags":[1,"b"]}',
        b'{"id":1,"amount":"x"',
        b'{"id":1,"amount":"x"} tail',
        b'{"id":"x"}',
        b"[1]",
        None,
        b'{"id":1,"items":[{"sku":"s","n":1}],"at":"soon"}',
    ]
    headed = [None if each is None else b"\0\0\0\0\7" + each for each in values]
    rows = given(spark, *headed, values[0])
    found = from_json_value(rows, SCHEMA, rescued="rest", has_head=True).orderBy("at")
    got = [(_plain(row["decoded"]), row["reason"], row["rest"]) for row in found.collect()]
    place = {"x": 1, "y": None}
    misfit = got[2][1]
    assert "malformed JSON" in misfit
    assert got == [
        ({"id": 1, "name": "a"}, None, None),
        (
            {"id": 1, "place": place},
            None,
            '{"amount":"x","new":[1.50],"place":{"y":"b"},"tags":[1,"b"]}',
        ),
        (None, misfit, None),
        (None, misfit, None),
        (None, "the field id is missing or null", None),
        (None, misfit, None),
        (None, None, None),
        (
            {"id": 1, "items": [{"sku": "s"}]},
            None,
            '{"items":[{"sku":"s","n":1}],"at":"soon"}',
        ),
        (None, "the value does not begin with a zero and a schema's number", None),
    ]
    with pytest.raises(ConfigurationError, match="rescued='value'"):
        from_json_value(rows, SCHEMA, rescued="value")
    with pytest.raises(ConfigurationError, match="VARIANT"):
        from_json_value(rows, "v VARIANT", rescued="rest")

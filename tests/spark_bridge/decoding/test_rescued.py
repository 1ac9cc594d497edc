"""What of a JSON value is in no column. Without Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_sdk.spark_bridge.decoding.rescued import rescue

KIND = pa.struct(
    [
        ("id", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("place", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
        ("tags", pa.list_(pa.int32())),
        ("items", pa.list_(pa.struct([("sku", pa.int32())]))),
        ("prices", pa.map_(pa.string(), pa.struct([("cents", pa.int32())]))),
    ]
)


def rest(text: str | None, row: Any) -> tuple[str | None, str | None]:
    """Of one value; the array is a slice, as Spark's may be."""
    texts, rows = pa.array(["{}", text]), pa.array([{}, row], KIND)
    found = rescue(texts[1:], rows[1:]).to_pylist()[0]
    return found["value"], found["reason"]


@pytest.mark.parametrize(
    "text,row,expected",
    [
        ('{"id":1}', {"id": 1}, None),
        ('{"id":null,"place":null}', {}, None),
        ('{"id":1,"new":{"a":[1]}}', {"id": 1}, '{"new":{"a":[1]}}'),
        ('{"ID":1}', {}, '{"ID":1}'),
        ('{"id":1.0}', {}, '{"id":1.0}'),
        ('{"n":1.50,"m":1e400}', {}, '{"n":1.50,"m":1e400}'),
        ('{"n":' + "9" * 5000 + "}", {}, '{"n":' + "9" * 5000 + "}"),
        ('{"at":5}', {"at": 2**60}, None),
        ('{"place":{"x":1,"y":"b","z":3}}', {"place": {"x": 1}}, '{"place":{"y":"b","z":3}}'),
        ('{"place":5}', {}, '{"place":5}'),
        ('{"place":{}}', {"place": {}}, None),
        ('{"tags":[]}', {"tags": []}, None),
        ('{"tags":[1,"b"]}', {}, '{"tags":[1,"b"]}'),
        ('{"tags":[1,null]}', {"tags": [1, None]}, None),
        (
            '{"items":[{"sku":1},{"sku":"s"}]}',
            {"items": [{"sku": 1}, {}]},
            '{"items":[{"sku":1},{"sku":"s"}]}',
        ),
        ('{"items":[{"sku":1}]}', {"items": [{"sku": 1}]}, None),
        (
            '{"prices":{"a":{"cents":1,"x":2}}}',
            {"prices": [("a", {"cents": 1})]},
            '{"prices":{"a":{"cents":1,"x":2}}}',
        ),
        ('{"prices":{"a":{"cents":1}}}', {"prices": [("a", {"cents": 1})]}, None),
        ('{"u":"\\ud800","\u00fc":"\u00fc\\n"}', {}, '{"u":"\\ud800","\u00fc":"\\u00fc\\n"}'),
        ("{}", None, None),
        (None, {"id": 1}, None),
    ],
)
def test_what_is_in_no_column_is_kept(text: str | None, row: Any, expected: str | None) -> None:
    """Other fields, other types, other cases; digits as they were written."""
    assert rest(text, row) == (expected, None)


@pytest.mark.parametrize("text", ['{"a":NaN}', "{'a':1}", '{"a":' + "[" * 100_000])
def test_what_this_parser_cannot_read_is_a_reason(text: str) -> None:
    """Spark's options may allow more."""
    found, reason = rest(text, {"id": 1})
    assert found is None
    assert str(reason).startswith("what does not fit the schema cannot be told")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from(["id", "place", "tags", "items", "prices", "x"]), VALUES))
def test_a_value_without_columns_is_its_own_rest(value: dict[str, Any]) -> None:
    """Nothing of it is lost but nulls of columns."""
    text, reason = rest(json.dumps(value), {})
    assert reason is None
    kept = {name: each for name, each in value.items() if each is not None or name == "x"}
    assert json.loads(text or "{}") == kept

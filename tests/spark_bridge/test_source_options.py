"""The options of the source, as Spark hands them over."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from consumer_sdk.errors import ConfigurationError
from consumer_sdk.spark_bridge.data_source import (
    ConsumerSdkDataSource,
    source_options,
    stored_options,
)

URL = "kafka://127.0.0.1:1/orders"
TABLE = {
    "provider": "consumer_sdk",
    "owner": "root",
    "comment": "c",
    "p": "a table's property",
    "url": URL,
    "option.url": URL,
    "columns": "offset",
    "option.columns": "offset",
}
"""What Spark gives where ``CREATE TABLE`` asks for the columns."""


@pytest.mark.parametrize(
    "options, found",
    [
        ({"URL": URL, "Tasks": "3"}, {"url": URL, "tasks": "3"}),
        ({"path": URL}, {"url": URL}),
        ({"path": URL, "url": URL}, {"url": URL}),
        (TABLE, {"url": URL, "columns": "offset"}),
        ({**TABLE, "option.path": URL}, {"url": URL, "columns": "offset"}),
    ],
)
def test_options_are_those_of_the_user(options: dict[str, str], found: dict[str, str]) -> None:
    """Whether ``option``, ``load`` or SQL has them."""
    assert source_options(options) == found


@pytest.mark.parametrize(
    "options, complaint",
    [({"path": URL, "url": URL + "2"}, "give one of them"), ({"paths": "[]"}, "give one URL")],
)
def test_two_urls_are_refused(options: dict[str, str], complaint: str) -> None:
    """With what to do."""
    with pytest.raises(ConfigurationError, match=complaint):
        source_options(options)


def test_the_columns_of_a_table_have_its_options() -> None:
    """Spark keeps a table's columns, and gives its readers nothing else."""
    schema = ConsumerSdkDataSource(TABLE).schema()
    assert isinstance(schema, StructType)
    assert schema.simpleString() == "struct<offset:bigint>"
    kept = StructType.fromJson(schema.jsonValue())
    assert stored_options(kept) == {"url": URL, "columns": "offset"}
    assert stored_options(StructType([])) == {}
    ConsumerSdkDataSource({}).reader(kept)
    ConsumerSdkDataSource({}).streamReader(kept)

"""The package itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from consumer_sdk import spark_bridge
from tests.spark_bridge.feeding import ROOT


def test_importing_the_package_imports_no_spark_and_no_arrow() -> None:
    """A service without Spark can import it."""
    program = (
        "import sys, consumer_sdk.spark_bridge\n"
        "assert not {'pyspark', 'pyarrow'} & set(sys.modules)\n"
        "consumer_sdk.spark_bridge.SparkFeed, consumer_sdk.spark_bridge.read_stream\n"
        "assert not {'pyspark', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_every_exported_name_is_there() -> None:
    """The lazy look-up finds what ``__all__`` names; other names are an AttributeError."""
    assert all(getattr(spark_bridge, name).__name__ == name for name in spark_bridge.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = spark_bridge.nonsense

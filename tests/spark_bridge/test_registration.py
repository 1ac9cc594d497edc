"""How Spark finds the source where nobody has registered it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pyspark_consumer_sdk

pytest.importorskip("pyspark")


def test_spark_finds_the_source_by_its_module() -> None:
    """Spark asks each module named ``pyspark_*`` for a ``DefaultSource``."""
    from consumer_sdk.spark_bridge.data_source import ConsumerSdkDataSource

    assert pyspark_consumer_sdk.DefaultSource is ConsumerSdkDataSource
    assert pyspark_consumer_sdk.DefaultSource.name() == "consumer_sdk"


def test_the_module_itself_imports_nothing() -> None:
    """Trap 17: Spark imports it in every session, whatever the session is for."""
    code = "import sys, pyspark_consumer_sdk; print('consumer_sdk' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"


def test_a_source_that_cannot_be_imported_breaks_no_look_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception here would take all other Python sources with it."""
    monkeypatch.setitem(sys.modules, "consumer_sdk.spark_bridge.data_source", None)
    assert not hasattr(pyspark_consumer_sdk, "DefaultSource")
    assert not hasattr(pyspark_consumer_sdk, "AnythingElse")

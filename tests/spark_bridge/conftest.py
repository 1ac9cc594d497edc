"""One Spark session for all tests of the bridge."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

# The tests' data is tiny: compiling queries well would take longer than running them.
_FAST_START = "-Dlog4j2.level=error -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A quiet local session with two cores, where a task may fail twice."""
    from pyspark.sql import SparkSession

    from tests.spark_bridge.spark_home import link_spark

    # Else workers are whatever `python3` is on the PATH, and fail with no word of why.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(link_spark(tmp_path_factory.mktemp("spark") / "home"))
    session = (
        SparkSession.builder.master("local[2,3]")
        .appName("consumer_sdk tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", _FAST_START)
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.python.daemon.module", "tests.spark_bridge.warm_daemon")
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    del os.environ["SPARK_HOME"]  # Spark has it; what tests start themselves have their own
    yield session
    session.stop()

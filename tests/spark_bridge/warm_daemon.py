"""Spark's parent of Python processes, which has imported what they need: each is a fork of it.

A process whose task fails is not used again. The next one would import for 0.7 s of a core what this one has.
"""

from __future__ import annotations

import pyarrow as pa  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import consumer_sdk.spark_bridge  # noqa: F401

if __name__ == "__main__":
    manager()

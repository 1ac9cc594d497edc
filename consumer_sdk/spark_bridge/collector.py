"""Python's garbage collector in Spark's processes.

Spark runs the collector after each call of a process that it uses again: after each task of a worker, and after
it has made or planned a source. The collector looks at whatever is alive: the modules that are imported, some
60 000 objects without pandas and 90 000 with it, take 35 and 55 ms of a processor. A micro-batch has a task
for each partition. In the source runner, which Spark starts for each query, importing a broker's client
makes the collector look at what is there by then.
"""

from __future__ import annotations

import gc
import os
import sys
from itertools import count

__all__ = ["begin_call", "begin_run", "is_runner"]

_RUNNER = "python_streaming_source_runner.py"
_IS_REUSED = "SPARK_REUSE_WORKER"
"""In the environment of processes that Spark uses again; it has the collector run by this too."""
_SECOND = 2

_calls = count(1)


def is_runner() -> bool:
    """This is the process that Spark starts for the source of one query."""
    return sys.argv[0].endswith(_RUNNER)


def begin_run() -> None:
    """In the source runner, the collector leaves out Spark's modules from now on."""
    if is_runner():
        gc.freeze()


def begin_call() -> None:
    """From the second call of a process on, the collector leaves out what was alive when that began.

    The first one has imported what a call needs, and Spark has run the collector after it: no garbage
    is kept. In other processes than those that Spark uses again this does nothing, since the collector is
    the program's.
    """
    if _IS_REUSED in os.environ and next(_calls) == _SECOND:
        gc.freeze()

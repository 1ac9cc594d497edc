"""Python's garbage collector in Spark's processes.

Spark runs the collector after each task of a worker. It looks at whatever is alive: the modules that are
imported, some 60 000 objects without pandas and 90 000 with it, take 35 and 55 ms of a processor. A
micro-batch has a task for each partition. In the source runner, which Spark starts for each query, importing
a broker's client makes it look at what is there by then.
"""

from __future__ import annotations

import gc
import sys
from itertools import count

__all__ = ["begin_run", "begin_task", "is_runner"]

_RUNNER = "python_streaming_source_runner.py"
_tasks = count(1)
_SECOND = 2


def is_runner() -> bool:
    """This is the process that Spark starts for the source of one query."""
    return sys.argv[0].endswith(_RUNNER)


def begin_run() -> None:
    """In the source runner, the collector leaves out Spark's modules from now on."""
    if is_runner():
        gc.freeze()


def begin_task() -> None:
    """From a worker's second task on, the collector leaves out what was alive when that began.

    The first one has imported what a task needs, and Spark has run the collector after it: no garbage
    is kept. Elsewhere than in a Spark worker this does nothing, since the collector is the program's.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None and next(_tasks) == _SECOND:
        gc.freeze()

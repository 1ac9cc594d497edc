"""Python's garbage collector in Spark's workers.

Spark runs the collector after each task of a worker. It looks at whatever is alive: the modules that are
imported, some 60 000 objects without pandas and 90 000 with it, take 35 and 55 ms of a processor. A
micro-batch has a task for each partition.
"""

from __future__ import annotations

import gc
from itertools import count

__all__ = ["begin_task"]

_tasks = count(1)
_SECOND = 2


def begin_task() -> None:
    """From a worker's second task on, the collector leaves out what was alive when that began.

    The first one has imported what a task needs, and Spark has run the collector after it: no garbage
    is kept. Elsewhere than in a Spark worker this does nothing, since the collector is the program's.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None and next(_tasks) == _SECOND:
        gc.freeze()

"""``python -m benchmarks.trackers.probe acks.by_window '{"rounds": 3, "shrink": 1}'``: one probe.

Each runs in an interpreter of its own, and prints what its function found, how long it took and
for what share of that time it had a processor, as a line of JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

__all__ = ["run"]


def run(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call the function ``module.function`` of this package."""
    module, _, function = name.partition(".")
    probe = getattr(importlib.import_module(f"benchmarks.trackers.{module}"), function)
    began, cpu_began = time.perf_counter(), time.process_time()
    found = probe(**arguments)
    seconds = time.perf_counter() - began
    cpu_share = (time.process_time() - cpu_began) / seconds
    return {"found": found, "seconds": seconds, "cpu_share": cpu_share}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], json.loads(sys.argv[2]))))

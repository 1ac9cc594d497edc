"""What the drivers print, in small."""

from __future__ import annotations

from typing import Any

from benchmarks.spark.kinds import KINDS

BOTH = {"runs": {"jvm": [2.0], "ours": [3.0]}, "failures": {}}


def found() -> dict[str, Any]:
    """A run in which nobody failed."""
    latency = {"runs": {"jvm": [100.0, 120.0], "ours": [110.0, 120.0]}, "failures": {}}
    return {
        "throughput": {
            "batch": {
                "runs": {
                    "jvm": [100.0, 200.0, 100.0],
                    "ours": [200.0, 200.0, 150.0],
                    "naive": [50.0, 50.0, 50.0],
                    "arrow_fixed": [400.0, 400.0, 300.0],
                    "arrow_lists": [300.0, 300.0, 300.0],
                },
                "failures": {},
            },
            "stream": {"runs": {"jvm": [50.0] * 3, "ours": [100.0] * 3}, "failures": {}},
            "steady": {"runs": {"jvm": [50.0] * 3, "ours": [150.0] * 3}, "failures": {}},
        },
        "kinds": {name: {"batch": BOTH} for name in KINDS},
        "short": {"alone": BOTH, "loaded": BOTH},
        "cpu": {
            "stream": {**BOTH, "kinds": {"jvm": {"jvm": 2.0}, "ours": {"jvm": 2.0, "runner": 1.0}}},
            "short": {**BOTH, "kinds": {}},
        },
        "mixed": {
            "batch": {"runs": {"jvm": [100.0] * 3, "ours": [150.0] * 3}, "failures": {}},
            "stream": {"runs": {"jvm": [50.0] * 3, "ours": [100.0] * 3}, "failures": {}},
        },
        "write": {"runs": {"jvm": [50.0] * 3, "ours": [45.0] * 3}, "failures": {}},
        "feed": {
            "runs": {"ours": [100.0] * 3, "feed": [80.0, 70.0, 90.0]},
            "failures": {},
            "feeder_mb": 90.0,
        },
        "lag": 0,
        "latency": {
            "default": {**latency, "stages_ms": {"ours": {"addBatch": 40}}},
            "filesystem": {**latency, "stages_ms": {}},
        },
        "memory": {"jvm": {"jvm": 900.0}, "ours": {"jvm": 800.0, "worker": 150.0, "runner": 99.0}},
        "idle": {"seconds": 10.0, "calls": {"ours": {"ListOffsets": 40, "Metadata": 2}}},
        "failures": {},
    }

"""For tests, ours and yours: simulated time, faults, an in-memory broker, conformance suites.

`consumer_sdk.testing.memory` holds the in-memory broker, store and dead letters;
`consumer_sdk.testing.servers` starts real brokers; `consumer_sdk.testing.conformance` holds
the suites that every adapter, tracker and store passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from consumer_sdk.testing.delivering import Delivered, deliver
    from consumer_sdk.testing.faults import FaultRates, Faults
    from consumer_sdk.testing.memory import (
        MemoryAdapter,
        MemoryBroker,
        MemoryDeadLetters,
        MemoryStore,
    )
    from consumer_sdk.testing.simulation import (
        Simulation,
        SimulationClock,
        SimulationDeadlockError,
        SimulationError,
        SimulationLeakError,
        SimulationLoop,
        SimulationTimeoutError,
        simulate,
    )

__all__ = [
    "Delivered",
    "FaultRates",
    "Faults",
    "MemoryAdapter",
    "MemoryBroker",
    "MemoryDeadLetters",
    "MemoryStore",
    "Simulation",
    "SimulationClock",
    "SimulationDeadlockError",
    "SimulationError",
    "SimulationLeakError",
    "SimulationLoop",
    "SimulationTimeoutError",
    "deliver",
    "simulate",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Delivered": "consumer_sdk.testing.delivering",
        "FaultRates": "consumer_sdk.testing.faults",
        "Faults": "consumer_sdk.testing.faults",
        "MemoryAdapter": "consumer_sdk.testing.memory",
        "MemoryBroker": "consumer_sdk.testing.memory",
        "MemoryDeadLetters": "consumer_sdk.testing.memory",
        "MemoryStore": "consumer_sdk.testing.memory",
        "Simulation": "consumer_sdk.testing.simulation",
        "SimulationClock": "consumer_sdk.testing.simulation",
        "SimulationDeadlockError": "consumer_sdk.testing.simulation",
        "SimulationError": "consumer_sdk.testing.simulation",
        "SimulationLeakError": "consumer_sdk.testing.simulation",
        "SimulationLoop": "consumer_sdk.testing.simulation",
        "SimulationTimeoutError": "consumer_sdk.testing.simulation",
        "deliver": "consumer_sdk.testing.delivering",
        "simulate": "consumer_sdk.testing.simulation",
    },
)

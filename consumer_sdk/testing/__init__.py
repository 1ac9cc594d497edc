"""For tests, ours and yours: simulated time, faults, an in-memory broker, conformance suites.

`consumer_sdk.testing.servers` starts real brokers; `consumer_sdk.testing.conformance` holds
the suites that every adapter, tracker and store passes.
"""

from consumer_sdk.adapters.memory import MemoryAdapter, MemoryBroker
from consumer_sdk.testing.delivering import Delivered, deliver
from consumer_sdk.testing.faults import FaultRates, Faults
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

"""The simulation of the runtime, on the in-memory broker."""

from __future__ import annotations

from tests.sim.runner import Runner
from tests.sim.world import World

__all__ = ["RUNNER"]

RUNNER = Runner("tests.sim", World)

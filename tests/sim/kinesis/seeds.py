"""The simulation of the Kinesis adapter."""

from __future__ import annotations

from tests.sim.kinesis.scene import KinesisScene
from tests.sim.runner import Runner

__all__ = ["RUNNER"]

RUNNER = Runner("tests.sim.kinesis", KinesisScene, time_limit=3000)

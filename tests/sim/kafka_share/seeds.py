"""The simulation of share groups."""

from __future__ import annotations

from tests.sim.kafka_share.scene import ShareScene
from tests.sim.runner import Runner

__all__ = ["RUNNER"]

RUNNER = Runner("tests.sim.kafka_share", ShareScene)

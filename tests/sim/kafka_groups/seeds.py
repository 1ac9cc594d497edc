"""The simulation of Kafka groups."""

from __future__ import annotations

from tests.sim.kafka_groups.scene import GroupScene
from tests.sim.runner import Runner

__all__ = ["RUNNER"]

RUNNER = Runner("tests.sim.kafka_groups", GroupScene)

"""``python -m tests.sim.kafka_groups``: replays a seed, or runs many."""

import sys

from tests.sim.command import main
from tests.sim.kafka_groups.seeds import RUNNER

if __name__ == "__main__":
    sys.exit(main(RUNNER))

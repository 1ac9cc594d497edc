"""What Java's kafka-clients writes and assigns: asked when it is there, recorded for the runs without it.

``python -m tests.adapters.kafka.groups.java_groups`` records it anew, in ``java_groups.json``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from consumer_sdk.adapters.kafka.groups.assignors import GroupMember
from consumer_sdk.adapters.kafka.groups.member import TopicPartition
from consumer_sdk.adapters.kafka.groups.subscriptions import (
    Claims,
    Subscription,
    write_claims,
    write_generation,
)
from consumer_sdk.testing.servers.ivy import Artifact, JarSet, resolve_jars
from consumer_sdk.testing.servers.java import find_java
from consumer_sdk.testing.servers.kafka import KAFKA_JARS

RECORDED = Path(__file__).with_suffix(".json")
SOURCE = Path(__file__).with_name("JavaGroups.java")
COMPILER = JarSet("ecj", (Artifact(org="org.eclipse.jdt", name="ecj", revision="3.37.0"),))
NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


def partitions(text: str) -> frozenset[TopicPartition]:
    """Reads ``topic:number,…``; "-" is none."""
    parts = [] if text == "-" else [each.rpartition(":") for each in text.split(",")]
    return frozenset(TopicPartition(topic, int(number)) for topic, _, number in parts)


def shown(tps: Iterable[TopicPartition]) -> str:
    """Writes ``topic:number,…``."""
    return ",".join(f"{tp.topic}:{tp.partition}" for tp in sorted(tps)) or "-"


@dataclass(frozen=True)
class Case:
    """One group before an assignment."""

    name: str
    counts: Mapping[str, int]
    members: Mapping[str, tuple[str | None, frozenset[str], Claims]]

    @staticmethod
    def read(line: str) -> Case:
        """As `line` writes it."""
        _, name, counts, *rest = line.split("\t")
        members = {
            member: (
                None if instance == "-" else instance,
                frozenset(topics.split(",")),
                Claims(partitions(owned), int(generation)),
            )
            for member, instance, topics, owned, generation in zip(
                *(rest[at::5] for at in range(5)), strict=True
            )
        }
        return Case(name, {tp.topic: tp.partition for tp in partitions(counts)}, members)

    def line(self) -> str:
        """What the Java program reads."""
        counts = (TopicPartition(topic, count) for topic, count in self.counts.items())
        fields = ["assign", self.name, shown(counts)]
        for member, (instance, topics, claims) in self.members.items():
            fields += [member, instance or "-", ",".join(sorted(topics)), shown(claims.partitions)]
            fields.append(str(claims.generation))
        return "\t".join(fields)

    def group(self) -> dict[str, GroupMember]:
        """The members as their leader sees them."""
        return {member: self._member(*each) for member, each in self.members.items()}

    def _member(self, instance: str | None, topics: frozenset[str], claims: Claims) -> GroupMember:
        sub = Subscription(topics, None, claims.partitions, claims.generation)
        if self.name == "sticky":
            sub = Subscription(topics, write_claims(claims), frozenset(), claims.generation)
        if self.name == "cooperative-sticky":
            data = write_generation(claims.generation)
            sub = Subscription(topics, data, claims.partitions, claims.generation)
        return GroupMember(sub, instance)


def random_case(dice: random.Random, name: str) -> Case:
    """A small group; its claims are what an earlier assignment of it could have left."""
    counts = {f"t{n}": dice.randint(1, 7) for n in range(dice.randint(1, 4))}
    names = [f"m{n}" for n in range(dice.randint(1, 6))]
    is_mixed, generation = dice.random() < 0.4, dice.randint(1, 9)
    owned = _random_claims(dice, counts, names)
    members = {}
    for member in dice.sample(names, len(names)):
        topics = frozenset(t for t in counts if not is_mixed or dice.random() < 0.6) or {"t0"}
        instance = f"i{dice.randint(0, 99)}-{member}" if dice.random() < 0.3 else None
        claims = Claims(frozenset(owned[member]), generation if owned[member] else -1)
        members[member] = (instance, frozenset(topics), claims)
    wanted = frozenset[str]().union(*(topics for _, topics, _ in members.values()))
    return Case(name, {topic: counts[topic] for topic in counts if topic in wanted}, members)


def _random_claims(
    dice: random.Random, counts: Mapping[str, int], names: list[str]
) -> dict[str, set[TopicPartition]]:
    owned: dict[str, set[TopicPartition]] = {name: set() for name in names}
    owners = dice.sample(names, dice.randint(0, len(names)))
    for topic, count in counts.items():
        for number in range(count):
            if owners and dice.random() < 0.8:
                owned[dice.choice(owners)].add(TopicPartition(topic, number))
    return owned


def ask_java(lines: Iterable[str], directory: Path) -> list[str]:
    """The answer to each line; compiles the program into the directory."""
    java, jars = str(find_java()), [str(jar) for jar in resolve_jars(KAFKA_JARS).glob("*.jar")]
    compiler = str(next(resolve_jars(COMPILER).glob("*.jar")))
    path = os.pathsep.join([str(directory), *jars])
    compile_it = [java, "-jar", compiler, "-17", "-nowarn", "-cp", path, "-d", str(directory)]
    subprocess.run([*compile_it, str(SOURCE)], check=True, capture_output=True)
    run = [java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", path, "JavaGroups"]
    lines = list(lines)
    done = subprocess.run(
        run, input="\n".join(lines), check=True, text=True, stdout=subprocess.PIPE, timeout=600
    )
    answers = [line for line in done.stdout.splitlines() if not line.startswith("20")]  # its log
    assert len(answers) == len(lines)
    return answers


BYTES = [
    *(f"subscription\t{version}\tb,a\t-\tb:1,a:2,a:0\t7\track-1" for version in range(4)),
    *(f"subscription\t{version}\tb,a\t0aff\t-\t-1\t-" for version in range(4)),
    "subscription\t3\t-\t-\t-\t-1\t-",
    *(f"assignment\t{version}\ta:0,a:2,b:1\t-" for version in range(4)),
    "assignment\t3\ta:0,a:2,b:1\t0aff",
    "assignment\t3\t-\t-",
    "claims\tsticky\ta:0,a:2,b:1\t5",
    "claims\tcooperative-sticky\ta:0\t5",
]


def recorded() -> dict[str, str]:
    """Each question, and Java's answer."""
    found: dict[str, str] = json.loads(RECORDED.read_text())
    return found


def main(directory: Path) -> None:
    """Records what Java answers."""
    dice = random.Random(22)
    lines = [*BYTES, *(random_case(dice, name).line() for name in NAMES for _ in range(20))]
    answers = dict(zip(lines, ask_java(lines, directory), strict=True))
    RECORDED.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The jars that make Spark's own Kafka source run: the wheel does not ship them."""

from __future__ import annotations

from consumer_sdk.testing.servers import Artifact, JarSet, resolve_jars

__all__ = ["SOURCE_JARS", "jar_list"]


def _alone(org: str, name: str, revision: str) -> Artifact:
    """Without what it depends on: Spark brings most of that, in versions of its own."""
    return Artifact(org=org, name=name, revision=revision, conf="default->master")


SOURCE_JARS = JarSet(
    "spark-kafka-source",
    (
        _alone("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        # Of another release than the source: the two fit, and not every release is published
        # everywhere.
        _alone("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        _alone("org.apache.kafka", "kafka-clients", "3.9.2"),
        _alone("org.apache.commons", "commons-pool2", "2.13.1"),
    ),
)


def jar_list() -> str:
    """The value of ``spark.jars``; fetches them the first time.

    Raises:
        JarResolutionError: something could not be fetched.
    """
    return ",".join(str(jar) for jar in sorted(resolve_jars(SOURCE_JARS).glob("*.jar")))

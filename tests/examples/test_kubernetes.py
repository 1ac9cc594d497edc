"""The example's manifest: what Kubernetes takes, and what the program that it starts does."""

from __future__ import annotations

import json
import os
import signal
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka import AIOKafkaProducer
from jsonschema import Draft202012Validator

from consumer_sdk.testing.servers import KafkaServer
from tests.admin.asking import ask
from tests.examples.running import EXAMPLES, held_port, lines, program

MANIFEST = EXAMPLES / "kubernetes" / "billing.yaml"
SCHEMA = Path(__file__).with_name("kubernetes-1.37.json")
KINDS = {"ConfigMap": "api.core.v1.ConfigMap", "Deployment": "api.apps.v1.Deployment"}
LAST_STEPS = 15.0
"""Seconds that a pod should have beyond its drain, for the last flush and for leaving the group."""


def manifest() -> dict[str, Any]:
    """The manifest's objects by their kinds."""
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text("utf-8"))}


def pod() -> Any:
    """What each pod is."""
    return manifest()["Deployment"]["spec"]["template"]["spec"]


def config() -> Any:
    """The program's configuration."""
    return tomllib.loads(manifest()["ConfigMap"]["data"]["consumer.toml"])


def complaints(thing: Any) -> list[str]:
    """What Kubernetes' own schema says of an object; it refuses fields that it does not know."""
    schema = json.loads(SCHEMA.read_text("utf-8"))
    schema["$ref"] = f"#/$defs/{KINDS[thing['kind']]}"
    return [f"{e.json_path}: {e.message}" for e in Draft202012Validator(schema).iter_errors(thing)]


@pytest.mark.parametrize("kind", KINDS)
def test_manifest_fits_the_schema_of_kubernetes(kind: str) -> None:
    """Each field is there, and of its type."""
    assert complaints(manifest()[kind]) == []


def test_manifest_with_a_wrong_field_does_not_fit() -> None:
    """The schema looks at what is deep inside."""
    wrong = manifest()["Deployment"]
    (container,) = wrong["spec"]["template"]["spec"]["containers"]
    container["livenessProbe"]["httpGet"]["pth"] = "/"
    container["livenessProbe"]["periodSeconds"] = "often"
    assert len(complaints(wrong)) == 2


def test_labels_volumes_and_ports_of_the_manifest_belong_together() -> None:
    """What no schema looks at: names that point at each other, and the time that a drain takes."""
    objects, (container,) = manifest(), pod()["containers"]
    deployment = objects["Deployment"]["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    (volume,), (mount,) = pod()["volumes"], container["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert volume["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert container["command"][-1] == f"{mount['mountPath']}/consumer.toml"
    (port,) = container["ports"]
    assert config()["admin"]["listen"] == f"0.0.0.0:{port['containerPort']}"
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
    drain = config()["consumer"]["drain_timeout"]
    assert pod()["terminationGracePeriodSeconds"] >= 2 * drain + LAST_STEPS


def test_pod_is_allowed_where_pods_are_restricted() -> None:
    """What the restricted Pod Security Standard asks for; and no secret but by reference."""
    (container,) = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"]
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod()["automountServiceAccountToken"] is False
    assert all(each["valueFrom"].keys() == {"secretKeyRef"} for each in container["env"])
    assert config()["consumer"]["url"].startswith("env:")
    assert config()["admin"]["token"].startswith("env:")


@pytest.mark.kafka
async def test_pods_program_answers_its_probes_and_drains_at_sigterm(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    """The manifest's command, configuration and environment, beside a real Kafka."""
    await kafka_server.create_topic("kubernetes-orders", partitions=1)
    async with AIOKafkaProducer(bootstrap_servers=kafka_server.bootstrap_servers) as producer:
        await producer.send_and_wait("kubernetes-orders", b'{"customer": "ann", "amount": 5}')
    (container,) = pod()["containers"]
    name, *arguments, _config = container["command"]
    assert name == "consumer-sdk"
    (tmp_path / "consumer.toml").write_text(manifest()["ConfigMap"]["data"]["consumer.toml"])
    secrets = {
        "KAFKA_URL": f"kafka://{kafka_server.bootstrap_servers}/kubernetes-orders?group=kubernetes",
        "ADMIN_TOKEN": "0123456789abcdef",
    }
    assert {each["name"] for each in container["env"]} == secrets.keys()
    command = [sys.executable, "-P", "-m", "consumer_sdk"]  # -P: as where it is installed
    command += [*arguments, str(tmp_path / "consumer.toml")]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), **secrets}
    with held_port() as port:
        command += ["--admin", f"127.0.0.1:{port}"]
        at, called = f"http://127.0.0.1:{port}/", {"host": f"10.0.0.7:{port}"}
        async with program(*command, cwd=EXAMPLES, env=environment) as process:
            assert await lines(process, 1) == ["charged ann 5"]
            for probe in ("livenessProbe", "readinessProbe"):
                path = container[probe]["httpGet"]["path"]
                assert (await ask(at, path, headers=called)).status == 200
            assert (await ask(at, "/metrics", headers=called)).status == 401
            bearer = {"authorization": f"Bearer {secrets['ADMIN_TOKEN']}", **called}
            assert (await ask(at, "/metrics", headers=bearer)).status == 200
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0

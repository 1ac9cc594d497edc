"""``doctor`` on a Kafka that grants rights one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest

from consumer_sdk.testing.servers import KafkaServer
from consumer_sdk.testing.servers.ports import HOST, free_ports
from tests.adapters.kafka.shared_kafka import _with_sasl
from tests.cli.doctor.test_doctor import findings

pytestmark = [pytest.mark.kafka, pytest.mark.campaign]

TOPIC, GROUP = 2, 3
READ, DESCRIBE = 3, 8
LITERAL, ALLOW = 3, 3


async def grant(admin: AIOKafkaAdminClient, kind: int, name: str, operation: int) -> None:
    """Lets Alice do it."""
    request = CreateAclsRequest(kind, name, LITERAL, "User:alice", "*", operation, ALLOW)
    controller = admin._client.cluster.controller
    response = await admin._client.send(controller.nodeId, request)
    assert response.creation_responses[0][0] == 0, response


async def until(
    capsys: pytest.CaptureFixture[str], url: str, what: str, level: str
) -> tuple[int, dict[str, Any]]:
    """What is found once a right has come about: brokers hear of it a little later."""
    async with asyncio.timeout(120):
        while True:
            code, found = await findings(capsys, url)
            if found.get(what, {}).get("level") == level:
                return code, found


async def test_missing_right_is_named_by_what_needs_it(capsys: pytest.CaptureFixture[str]) -> None:
    """To the topic, to look at the group, and to join it, which is asked without joining."""
    clients, sasl, controller = free_ports(3)
    properties = _with_sasl(clients, sasl, controller) | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    login = "security_protocol=SASL_PLAINTEXT&sasl_plain_username=alice&sasl_plain_password=secret"
    url = f"kafka://{HOST}:{sasl}/orders?group=billing&connect_timeout=5&{login}"
    async with KafkaServer(port=clients, properties=properties) as server:
        admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        await admin.start()
        try:
            await server.create_topic("orders")
            code, found = await findings(capsys, url)
            assert (code, found["broker"]["level"]) == (1, "FAIL"), found
            await grant(admin, TOPIC, "orders", READ)
            code, found = await until(capsys, url, "reading", "ok")
            assert (code, found["group"]["level"]) == (1, "FAIL")
            assert "GroupAuthorization" in found["group"]["found"]
            await grant(admin, GROUP, "billing", DESCRIBE)
            code, found = await findings(capsys, url)
            assert (code, found["group"]["level"]) == (1, "FAIL"), found
            await grant(admin, GROUP, "billing", READ)
            code, _found = await until(capsys, url, "group", "ok")
            assert code in {0, 3}
        finally:
            await admin.close()

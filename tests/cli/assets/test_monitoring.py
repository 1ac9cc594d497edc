"""The dashboard and the rules name metrics that there are; the real Prometheus takes both."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from consumer_sdk import admin
from consumer_sdk.cli.assets.monitoring import ASSETS, asset
from consumer_sdk.telemetry.model import METRICS
from consumer_sdk.telemetry.prometheus import SHARED, prometheus_name
from tests.admin.asking import ask
from tests.admin.busy import busy
from tests.cli.groups.test_checkpoints import run

SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
NAME = re.compile(r"\b(?:consumer_sdk|messaging)_\w+")
SELECTED = re.compile(r"\b((?:consumer_sdk|messaging)_\w+)(?:\{(.*?)\})?")
SCRAPED = {"job", "instance", "le"}
WITHOUT_SERIES = ("consumer_sdk_paused", "consumer_sdk_spark", "consumer_sdk_feed", 'query!=""')
"""Nothing is paused where a lone consumer is scraped, and Spark is not there."""


def _exported() -> dict[str, set[str]]:
    """A name in Prometheus → its labels."""
    return {
        prometheus_name(metric) + suffix: {*SHARED, *metric.labels, *SCRAPED}
        for metric in METRICS
        for suffix in SUFFIXES[metric.kind]
    }


def _dashboard_queries() -> list[str]:
    panels = json.loads(asset("grafana"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def _rules() -> dict[str, str]:
    """An alert → its expression."""
    found = re.findall(r"- alert: (\w+)\n    expr: (.+)\n", asset("prometheus"))
    return dict(found)


def _queries() -> Iterator[str]:
    yield from _dashboard_queries()
    yield from _rules().values()


@pytest.mark.parametrize(
    "words, name",
    [
        (["grafana"], None),
        (["schema"], None),
        (["prometheus"], "prometheus.yml"),
        (["completion", "fish"], "consumer-sdk.fish"),
    ],
)
def test_file_as_json_is_one_line(words: list[str], name: str | None) -> None:
    """A file that is JSON is the object; the text of any other stands in one, with a name."""
    text = run(*words, topic="assets").stdout
    (line,) = run(*words, "--json", topic="assets").stdout.splitlines()
    assert json.loads(line) == ({"name": name, "text": text} if name else json.loads(text))


def test_every_name_is_a_metric_with_these_labels() -> None:
    """A metric that is renamed, or loses a label, changes the files too."""
    known = _exported()
    for query in _queries():
        named = SELECTED.findall(query)
        assert named, query
        grouped = re.findall(r"by \((.*?)\)", query)
        for name, selector in named:
            used = set(re.findall(r"(\w+)[!=]~?\"", selector))
            for labels in grouped:
                used |= set(labels.split(", "))
            assert name in known, f"{name} in {query}"
            assert used <= known[name], f"{used - known[name]} of {name} in {query}"


def test_variables_of_the_dashboard_are_labels_that_there_are() -> None:
    """And its panels stand side by side."""
    dashboard = json.loads(asset("grafana"))
    for variable in dashboard["templating"]["list"][1:]:
        (name,) = NAME.findall(variable["query"])
        assert variable["name"] in _exported()[name]
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert len({(place["x"], place["y"]) for place in places}) == len(places)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)


def test_all_metrics_that_tell_of_trouble_have_a_panel_or_an_alert() -> None:
    """Counters of things that should not be, and ages."""
    used = set(NAME.findall(" ".join(_queries())))
    names = ["pinned_age_seconds", "dead_lettered_total", "failed_total", "paused", "lag"]
    names += ["spark_failures_total", "spark_report_age_seconds", "feed_full", "feed_backlog"]
    for name in names:
        assert f"consumer_sdk_{name}" in used


def test_rules_say_what_to_do() -> None:
    """Each has a severity, a summary and a description."""
    blocks = asset("prometheus").split("- alert: ")[1:]
    assert len(blocks) == len(_rules()) == 13
    for block in blocks:
        assert all(word in block for word in ("severity:", "summary:", "description:")), block


@pytest.mark.parametrize("name", ASSETS)
def test_command_writes_the_file(name: str) -> None:
    """As it is in the package."""
    done = run(name, topic="assets")
    assert (done.returncode, done.stdout, done.stderr) == (0, asset(name), "")


# -- the real tools -------------------------------------------------------------------------

CASES = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - series: consumer_sdk_pinned_age_seconds{system="kafka",group="g",stream="s",partition="3"}
    values: 0+60x20
  - series: consumer_sdk_holes{system="kafka",group="g",stream="s",partition="3"}
    values: 5x20
  - series: consumer_sdk_dead_lettered_total{system="kafka",group="g",error_type="KeyError"}
    values: _x5 1x15
  - series: consumer_sdk_settled_total{system="kafka",group="g",stream="s",partition="3",job="j"}
    values: 100x20
  - series: consumer_sdk_in_flight{system="kafka",group="g",stream="s",partition="3",job="j"}
    values: 7x20
  - series: consumer_sdk_paused{system="kafka",group="g",stream="s",partition="3",reason="full"}
    values: 1x20
  - series: consumer_sdk_spark_failures_total{query="q"}
    values: 0x5 1x15
  - series: consumer_sdk_spark_report_age_seconds{query="q"}
    values: 0+60x20
  - series: consumer_sdk_lag{system="kafka",stream="s",query="q",source="0",partition="0"}
    values: 20000+100x40
  - series: consumer_sdk_lag{system="kafka",stream="s",query="other",source="0",partition="0"}
    values: 90000-200x40
  - series: consumer_sdk_feed_full{system="feed",stream="/d"}
    values: 1x20
  alert_rule_test:
  - {alertname: SparkQueryFailed, eval_time: 4m, exp_alerts: []}
  - alertname: SparkQueryFailed
    eval_time: 8m
    exp_alerts:
    - exp_labels: {severity: critical, query: q}
      exp_annotations:
        summary: "the query q has ended with an error"
        description: "The driver's log has it. Started again with its checkpoint, the query goes on where it was."
  - {alertname: SparkQueryHangs, eval_time: 10m, exp_alerts: []}
  - alertname: SparkQueryHangs
    eval_time: 14m
    exp_alerts:
    - exp_labels: {severity: warning, query: q}
      exp_annotations:
        summary: "Spark has not told of the query q for 14m 0s"
        description: "A micro-batch takes long, or hangs: look at its tasks in Spark's page."
  - {alertname: ConsumerLagGrows, eval_time: 14m, exp_alerts: []}
  - alertname: ConsumerLagGrows
    eval_time: 35m
    exp_alerts:
    - exp_labels: {severity: warning, query: q, stream: s}
      exp_annotations:
        summary: "the query q falls behind on s"
        description: "More handlers, more processes, or a faster handler. consumer_sdk_handlers at its limit tells which. Of a query: more tasks."
  - {alertname: FeedFull, eval_time: 9m, exp_alerts: []}
  - alertname: FeedFull
    eval_time: 12m
    exp_alerts:
    - exp_labels: {severity: warning, system: feed, stream: /d}
      exp_annotations:
        summary: "the feed /d is full: its consumers wait for Spark"
        description: "A query does not keep up, or is gone: the feed's log says which reader is the last one."
  - {alertname: ConsumerStuckPartition, eval_time: 7m, exp_alerts: []}
  - alertname: ConsumerStuckPartition
    eval_time: 10m
    exp_alerts:
    - exp_labels: {severity: warning, system: kafka, group: g, stream: s, partition: "3"}
      exp_annotations:
        summary: "g: s/3 has been pinned for 10m 0s"
        description: "consumer-sdk top, or consumer-sdk explain, name the record and what it is doing."
  - {alertname: ConsumerDeadLetters, eval_time: 4m, exp_alerts: []}
  - alertname: ConsumerDeadLetters
    eval_time: 8m
    exp_alerts:
    - exp_labels: {severity: warning, group: g, error_type: KeyError}
      exp_annotations:
        summary: "g dead-letters records: KeyError"
        description: "consumer-sdk dead-letters list shows them; replay sends them again when the cause is fixed."
  - {alertname: ConsumerPaused, eval_time: 15m, exp_alerts: []}
  - alertname: ConsumerNoProgress
    eval_time: 15m
    exp_alerts:
    - exp_labels: {severity: critical, group: g, job: j}
      exp_annotations:
        summary: "g has settled nothing for ten minutes, and has records in flight"
        description: "Look at running handlers in consumer-sdk top, and at the requests to broker and store."
"""


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"needs {name}: apt-get install prometheus")
    return found


@pytest.mark.campaign
def test_promtool_takes_the_rules_and_they_fire(tmp_path: Path) -> None:
    """On made-up series: a pinned partition, a first dead letter, nothing settled; full is no alert."""
    (tmp_path / "rules.yml").write_text(asset("prometheus"), encoding="utf-8")
    (tmp_path / "cases.yml").write_text(CASES, encoding="utf-8")
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "cases.yml"]):
        done = subprocess.run(
            [_tool("promtool"), *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.campaign
async def test_queries_of_the_dashboard_have_answers_of_a_real_prometheus(tmp_path: Path) -> None:
    """It scrapes a running consumer; each query gives numbers, and the rules are loaded."""
    async with (
        busy() as consumer,
        admin.serve(consumer, address="127.0.0.1:0") as server,
        _prometheus(tmp_path, server.address) as at,
    ):
        for query in _dashboard_queries():
            asked = query.replace("$__rate_interval", "5s").replace('"$group"', '"billing"')
            asked = asked.replace('"$stream"', '"orders"')
            if any(name in query for name in WITHOUT_SERIES):
                assert (await _ask(at, asked))["status"] == "success"
                continue
            while not (await _ask(at, asked))["data"]["result"]:
                await asyncio.sleep(0.2)
        rules = (await ask(at, "/api/v1/rules", headers={"host": "localhost"})).json["data"]
        assert len(rules["groups"][0]["rules"]) == 13


@asynccontextmanager
async def _prometheus(folder: Path, target: str) -> AsyncIterator[str]:
    place = target.removeprefix("http://").rstrip("/")
    (folder / "rules.yml").write_text(asset("prometheus"), encoding="utf-8")
    config = (
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
        f"scrape_configs: [{{job_name: consumers, static_configs: [{{targets: ['{place}']}}]}}]\n"
    )
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = await asyncio.create_subprocess_exec(
        _tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _until_ready(f"http://127.0.0.1:{port}/", program)
        yield f"http://127.0.0.1:{port}/"
    finally:
        if program.returncode is None:
            program.terminate()
        await program.wait()


async def _until_ready(at: str, program: asyncio.subprocess.Process) -> None:
    while True:
        assert program.returncode is None, "prometheus has ended"
        try:
            if (await ask(at, "/-/ready")).status == 200:
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)


async def _ask(at: str, query: str) -> Any:
    found = (await ask(at, f"/api/v1/query?query={quote(query)}")).json
    assert found["status"] == "success", found
    return found

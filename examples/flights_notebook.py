# %% [markdown]
# # A year of delays, with Spark on Kafka
#
# Each `# %%` is a cell (Jupytext, VS Code, PyCharm); as a whole it is a program:
# `FLIGHTS_KAFKA=host:port python -m examples.flights_notebook`. It needs a Kafka
# (`make servers` starts one) and leaves a topic with flights behind.
"""Delays of a year: read as a batch, checked, summed up by a stream in windows, and plotted."""

# %%
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from pyspark.sql import functions as f

from consumer_sdk import spark_bridge
from consumer_sdk.spark_bridge import QueryStats
from examples.flights.data import ROWS, airlines
from examples.flights.spark_job import SCHEMA, aircraft_of, session

KAFKA = os.environ.get("FLIGHTS_KAFKA", "127.0.0.1:9092")
LIMIT = int(os.environ.get("FLIGHTS_LIMIT", ROWS))
PLOTS = Path(os.environ.get("FLIGHTS_PLOTS", "build/notebook"))
TOPIC = f"flights-{secrets.token_hex(4)}"
PLOTS.mkdir(parents=True, exist_ok=True)
spark = session()

# %% [markdown]
# ## Flights for Kafka
# In a process of its own, as they would come.

# %%
produce = [sys.executable, "-m", "examples.flights.produce", "--create", "--kafka", KAFKA]
subprocess.run([*produce, "--topic", TOPIC, "--limit", str(LIMIT)], check=True)  # noqa: S603 - our own

# %% [markdown]
# ## A look at the topic, as a batch
# All that is there, without a group. `from_json_value` decodes by a schema, and says why a value is none.

# %%
flights = spark_bridge.read(spark, f"kafka://{KAFKA}/{TOPIC}")
decoded = spark_bridge.from_json_value(flights, SCHEMA)
good, bad = spark_bridge.split_rejects(decoded)
reasons = {row["reason"]: row["count"] for row in bad.groupBy("reason").count().collect()}
print(f"{flights.count()} flights, {good.count()} of them flew")
for reason, count in reasons.items():
    print(f"{count:6}  {reason}")

# %% [markdown]
# ## Delays in windows, as a stream
# The same columns and the same functions. The window is Spark's own: by the flights' time, with a watermark. The
# group's position follows the query, and `watch` shows how far it is behind.

# %%
stream = spark_bridge.read_stream(
    spark,
    f"kafka://{KAFKA}/{TOPIC}?group={TOPIC}",
    startingOffsets="earliest",
    maxOffsetsPerTrigger=max(LIMIT // 8, 1),
)
accepted, _ = spark_bridge.split_rejects(spark_bridge.from_json_value(stream, SCHEMA))
delays = (
    accepted.select("decoded.*")
    .withWatermark("time_hour", "30 days")  # partitions are read at their own pace
    .join(f.broadcast(aircraft_of(spark)), "tailnum", "left")
    .groupBy(f.window("time_hour", "7 days"), "carrier", "built")
    .agg(f.count("*").alias("flights"), f.sum("dep_delay").alias("minutes"))
)
reports: list[QueryStats] = []
with spark_bridge.watch(spark, reports.append), tempfile.TemporaryDirectory() as checkpoint:
    query = (
        delays.writeStream.format("memory")
        .queryName("delays")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
table = spark.table("delays").cache()
counts = [row["flights"] for row in table.collect()]
print(f"{sum(counts)} flights in {len(counts)} cells of week, carrier and age")

# %% [markdown]
# ## Plots

# %%
by_week = table.groupBy(f.to_date("window.start").alias("week"), "carrier").agg(
    f.sum("flights").alias("flights"), (f.sum("minutes") / f.sum("flights")).alias("delay")
)
weeks = by_week.where("flights >= 20").orderBy("week").collect()
busiest = table.groupBy("carrier").agg(f.sum("flights").alias("flights")).orderBy("flights")
names = airlines()
figure = Figure(figsize=(10, 4), layout="constrained")
axes = figure.subplots()
for row in busiest.tail(4)[::-1]:
    mine = [week for week in weeks if week["carrier"] == row["carrier"]]
    days = np.array([week["week"] for week in mine], dtype="datetime64[D]")
    axes.plot(days, [week["delay"] for week in mine], marker=".", label=names[row["carrier"]])
axes.set(title="Departure delay by week: the busiest carriers", ylabel="minutes, mean")
axes.legend(frameon=False)
figure.savefig(PLOTS / "weeks.png")

# %%
by_age = table.groupBy("built").agg((f.sum("minutes") / f.sum("flights")).alias("delay"))
ages = by_age.orderBy("built").collect()
figure = Figure(figsize=(6, 3), layout="constrained")
axes = figure.subplots()
labels = ["unknown" if row["built"] is None else f"{row['built']}s" for row in ages]
axes.bar(labels, [row["delay"] for row in ages])
axes.set(title="Departure delay by the decade of the aircraft", ylabel="minutes, mean")
figure.savefig(PLOTS / "aircraft.png")

# %%
figure = Figure(figsize=(6, 3), layout="constrained")
axes = figure.subplots()
behind = [(report.batch, report.sources[0].lag.total) for report in reports if report.is_active]
axes.step(*zip(*behind, strict=True), where="post")
axes.set(title="How far the query was behind", xlabel="micro-batch", ylabel="records")
figure.savefig(PLOTS / "lag.png")
print(f"the last micro-batch left {behind[-1][1]} records; plots are in {PLOTS.resolve()}")

# %%
spark.stop()

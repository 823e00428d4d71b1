"""Events of queries on Spark: a run for each step of the watermark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.errors import InvalidArgument
from tests.lineage.receiver import receiver
from tests.spark.running import put_in_order


def test_without_a_transport_queries_cannot_send_lineage() -> None:
    with pytest.raises(InvalidArgument, match="OPENLINEAGE_URL"):
        sw.send_lineage(None)  # type: ignore[arg-type]  # it is not used


@pytest.mark.spark
@pytest.mark.proof
def test_each_step_of_the_watermark_is_a_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in (1, 3, 7):
        row = {"at": f"2024-01-01T00:0{minute}:00Z", "id": minute}
        path = tmp_path / f"{minute}.json"
        path.write_text(json.dumps(row), encoding="utf-8")
        put_in_order(path, minute)
    rows = (
        spark.readStream.schema("at timestamp, id long").option("maxFilesPerTrigger", 1).json(str(tmp_path))
    )
    counts = sw.stream(rows, event_time="at", watermark=sw.lag("0 seconds")).window(sw.tumbling("1 minute"))
    with receiver() as (url, events):
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        given = {"inputs": [str(tmp_path)], "outputs": ["postgresql://app:hunter-22@db.example/shop#counts"]}
        with sw.send_lineage(spark, name="counts", **given):
            writer = counts.agg(rows=sw.count()).to_df().writeStream.format("noop")
            query = (
                writer.option("checkpointLocation", str(tmp_path / "_c")).trigger(availableNow=True).start()
            )
            query.awaitTermination()
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    emitted = [(event["job"]["name"], event["eventType"]) for event in events]
    assert emitted[0] == ("counts", "START")
    assert emitted[-1] == ("counts", "COMPLETE")
    assert set(emitted[1:-1]) == {("counts.slice", "START"), ("counts.slice", "COMPLETE")}
    assert {event["run"]["facets"]["parent"]["run"]["runId"] for event in events[1:-1]} == {str(query.runId)}
    times = [
        (facet["nominalStartTime"], facet["nominalEndTime"])
        for event in events
        if event["eventType"] == "COMPLETE" and (facet := event["run"]["facets"].get("nominalTime"))
    ]
    assert times[0][0] == times[0][1]
    assert [start for start, _ in times[1:]] == [end for _, end in times[:-1]]
    assert times[-1][1] == "2024-01-01T00:07:00Z"
    assert events[0]["inputs"][0]["name"] == str(tmp_path)
    assert events[0]["outputs"][0]["namespace"] == "postgres://db.example:5432"
    assert "hunter-22" not in json.dumps(events)

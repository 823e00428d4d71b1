"""Dagster: load the orders as an asset, and compute the totals once the table is complete."""

import json
import os
import subprocess

import dagster as dg

TABLE = os.environ["ORDERS_TABLE"]  # such as delta:s3://lake/orders


@dg.asset(retry_policy=dg.RetryPolicy(max_retries=3, delay=300))
def orders() -> dg.MaterializeResult:
    ingest = ["slackwater", "ingest", "orders.yaml", "--json"]
    done = subprocess.run(ingest, stdout=subprocess.PIPE, check=False)
    report = json.loads(done.stdout or "{}")
    failed = [unit for unit in report.get("units", []) if unit["outcome"] != "succeeded"]
    if done.returncode != 0:
        raise dg.Failure("not all units were read", metadata={"failed": failed})
    rows = sum(unit["rows"] for unit in report["units"])
    return dg.MaterializeResult(metadata={"run": report["run"], "units": len(report["units"]), "rows": rows})


@dg.asset_check(asset=orders)
def complete(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    until = context.run.tags.get("until", "2024-01-03T00:00:00Z")
    wait = ["slackwater", "wait", TABLE, "--until", until, "--timeout", "0s", "--json"]
    done = subprocess.run(wait, stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, 3):
        raise dg.Failure(f"the wait ended with exit code {done.returncode}")
    return dg.AssetCheckResult(passed=done.returncode == 0, metadata=json.loads(done.stdout))


@dg.asset(deps=[orders])
def totals() -> None:
    program = ["python", "totals.py"]
    subprocess.run(program, check=True)


definitions = dg.Definitions(assets=[orders, totals], asset_checks=[complete])

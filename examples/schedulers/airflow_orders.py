"""Airflow: load the orders, and compute the totals once the table is complete."""

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.sensors.bash import BashSensor
from airflow.sdk import dag

TABLE = os.environ["ORDERS_TABLE"]  # such as delta:s3://lake/orders


@dag(
    schedule="@daily",
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
)
def orders():
    load = BashOperator(task_id="load", bash_command="slackwater ingest orders.yaml --json", cwd=".")
    complete = BashSensor(
        task_id="complete",
        bash_command=f"slackwater wait {TABLE} --until '{{{{ ds }}}}T00:00:00Z' --timeout 0s",
        retry_exit_code=3,
        mode="reschedule",
        timeout=timedelta(hours=6),
    )
    totals = BashOperator(task_id="totals", bash_command="python totals.py", cwd=".")
    load >> complete >> totals


orders()

"""An S3 server on loopback, in a process of its own: deltalake blocks the process that calls it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import boto3  # type: ignore[import-untyped]  # no stubs
from botocore.exceptions import EndpointConnectionError  # type: ignore[import-untyped]  # no stubs

_REGION = "us-east-1"
_CREDENTIALS = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "any")


@contextmanager
def s3_server(bucket: str) -> Iterator[dict[str, str]]:
    """Start a server with an empty bucket; yields the variables with which clients find it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        client = boto3.client("s3", endpoint_url=endpoint, region_name=_REGION, **_CREDENTIALS)
        for _ in range(300):
            assert process.poll() is None, "the S3 server has ended"
            try:
                client.create_bucket(Bucket=bucket)
                break
            except EndpointConnectionError:
                time.sleep(0.2)
        yield {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": _REGION,
            **{name.upper(): value for name, value in _CREDENTIALS.items()},
        }
    finally:
        process.kill()
        process.wait()

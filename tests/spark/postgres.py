"""A PostgreSQL server for a test run: in a temporary folder, on a free loopback port, removed at the end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg

PASSWORD: Final = "p4ss-phrase of the tests"  # noqa: S105 - of a server that exists only during the tests
_FOLDERS: Final = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
_ENCODED: Final = PASSWORD.replace(" ", "%20")


@dataclass
class Server:
    """A running server, in which every test creates its own database."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] = field(repr=False)

    def stop(self) -> None:
        """Stop the server as an administrator does; its clients lose their connections."""
        self.process.send_signal(signal.SIGINT)  # a fast shutdown
        self.process.wait(timeout=60)

    def start(self) -> None:
        """Start the server again on the same port, and return once it accepts connections."""
        self.process = _start(self.folder, self.port)
        _wait_until_ready(self)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://tester:{_ENCODED}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Create a database and return its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)


def programs() -> Path:
    """The folder with ``initdb`` and ``postgres``; the newest version if there are several."""
    given = os.environ.get("POSTGRES_PROGRAMS")
    if given:
        return Path(given)
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    folders = [folder for pattern in _FOLDERS for folder in Path("/").glob(pattern.lstrip("/"))]
    usable = sorted(folder for folder in folders if (folder / "initdb").exists())
    assert usable, "no PostgreSQL server on this machine: install the package postgresql"
    return usable[-1]


def account() -> str | None:
    """The account for the server if this process is root, as which PostgreSQL does not start."""
    if os.geteuid() != 0:
        return None
    names = Path("/etc/passwd").read_text(encoding="utf-8")
    return "postgres" if "\npostgres:" in names else "nobody"


@contextmanager
def running_server() -> Iterator[Server]:
    """Run a server that listens on loopback only and requires a password."""
    user, binaries = account(), programs()
    # not below pytest's folder, which another account cannot read
    folder = Path(tempfile.mkdtemp(prefix="slackwater-postgres-"))
    try:
        secret = folder / "password"
        secret.write_text(PASSWORD, encoding="utf-8")
        if user:
            for path in (folder, secret):
                shutil.chown(path, user)
        data = folder / "data"
        initdb: list[str | Path] = [
            binaries / "initdb",
            "-D",
            data,
            "-U",
            "tester",
            "-A",
            "scram-sha-256",
            "--pwfile",
            secret,
        ]
        options = ["--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        subprocess.run([*initdb, *options], user=user, cwd=folder, check=True, capture_output=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = Server(folder, port, _start(folder, port))
        try:
            _wait_until_ready(server)
            yield server
        finally:
            server.process.terminate()
            try:
                server.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                server.process.kill()
                server.process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    settings = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [programs() / "postgres", "-D", folder / "data", "-p", str(port), "-F", *settings],
            user=account(), cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip


def _wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(server.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            log = (server.folder / "log").read_text(encoding="utf-8", errors="replace")
            assert server.process.poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(0.1)
        else:
            return

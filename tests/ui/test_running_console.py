"""The console's server: where it binds, what it needs, and how it ends."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from slackwater.cli.app import app
from slackwater.errors import InvalidArgument
from slackwater.ui.running_console import RunningConsole
from slackwater.ui.views import Views
from tests.stores import new_store


@pytest.mark.search
def test_the_server_answers_pushes_its_status_and_stops(tmp_path: Path) -> None:
    with RunningConsole(Views(new_store(tmp_path)), port=0).start() as console:
        assert console.address.startswith("http://127.0.0.1:")
        with httpx.stream("GET", f"{console.address}api/events", timeout=10) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = response.iter_lines()
            assert next(lines) == "event: status"
            assert json.loads(next(lines).removeprefix("data: "))["problem"] is None
    with pytest.raises(httpx.ConnectError):
        httpx.get(console.address)


def test_a_connection_made_before_the_server_runs_waits_for_it(tmp_path: Path) -> None:
    console = RunningConsole(Views(new_store(tmp_path)), port=0)
    url = httpx.URL(console.address)
    with socket.create_connection((url.host, url.port or 0), timeout=10) as early, console:
        early.sendall(b"GET /api/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        console.start()
        assert early.recv(12) == b"HTTP/1.1 200"


def test_two_consoles_never_get_one_port(tmp_path: Path) -> None:
    in_use = pytest.raises(InvalidArgument, match="choose another port, or 0 for any free one")
    with RunningConsole(Views(new_store(tmp_path)), port=0) as first, in_use:
        RunningConsole(Views("sqlite:////no-such-store.db"), port=httpx.URL(first.address).port)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_out_of_range_is_an_error(port: int) -> None:
    with pytest.raises(InvalidArgument, match="is not between 0 and 65535; choose another port"):
        RunningConsole(Views("sqlite:////no-such-store.db"), port=port)


def test_a_port_in_use_is_an_error_only_if_it_was_chosen() -> None:
    views = Views("sqlite:////no-such-store.db")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidArgument, match="choose another port, or 0 for any free one"):
            RunningConsole(views, port=port)


def test_another_interface_needs_a_token() -> None:
    shown = CliRunner().invoke(app, ["ui", "--host", "0.0.0.0"])  # noqa: S104 - refused
    assert shown.exit_code == 2
    assert "set a token in SLACKWATER_UI_TOKEN, or use 127.0.0.1" in shown.output
    with pytest.raises(InvalidArgument, match="shorter than 16 characters"):
        RunningConsole(Views("sqlite:////no-such-store.db"), host="0.0.0.0", token="short")  # noqa: S104, S106


def test_a_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "slackwater.ui.server", raising=False)
    shown = CliRunner().invoke(app, ["ui", "--store", "sqlite:////no-such-store.db", "--port", "0"])
    assert shown.exit_code == 1
    assert 'error: fastapi is not installed; run: pip install "slackwater[ui]"' in shown.output

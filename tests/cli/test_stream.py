"""`slackwater stream` and `slackwater controller`, as a user types them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import slackwater as sw
from slackwater.cli.app import app
from slackwater.errors import EventsGone, InvalidArgument
from slackwater.streams import description
from slackwater.streams.log import ndjson
from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.reader_group import ReaderGroup
from slackwater.streams.segments.positions import Position
from slackwater.time import instant
from tests.stores import new_store

Command = Callable[..., Result]

EVENTS = "".join(
    json.dumps({"auction": number, "price": number / 2, "at": f"2024-01-01T00:00:0{number}Z"}) + "\n"
    for number in range(6)
)


def command_in(folder: Path) -> Command:
    environment = {"SLACKWATER_STORE": new_store(folder)}

    def command(*arguments: str, given: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=given, env=environment)

    return command


def with_bids(run: Command) -> Command:
    columns = "auction bigint, price double, at timestamp"
    assert run("stream", "create", "shop/bids", "--columns", columns, "--segments", "2").exit_code == 0
    return run


@pytest.fixture
def run(tmp_path: Path) -> Command:
    return command_in(tmp_path)


@pytest.fixture
def bids(run: Command) -> Command:
    return with_bids(run)


@pytest.fixture(scope="module")
def unchanged_bids(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """One store for all commands that fail."""
    return with_bids(command_in(tmp_path_factory.mktemp("unchanged")))


def lines(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_written_events_are_read(bids: Command) -> None:
    written = bids("stream", "write", "shop/bids", "--key", "auction", given=EVENTS)
    assert written.exit_code == 0, written.output
    assert written.stdout.startswith("6 events written by ")
    read = lines(bids("stream", "read", "shop/bids"))
    assert sorted(read, key=lambda event: str(event["at"])) == [
        json.loads(line) for line in EVENTS.splitlines()
    ]
    assert len(lines(bids("stream", "read", "shop/bids", "--limit", "2"))) == 2
    assert lines(bids("stream", "read", "shop/bids", "--from", "tail")) == []


def test_resume_skips_lines_that_were_written_before(bids: Command) -> None:
    start = "".join(EVENTS.splitlines(keepends=True)[:4])
    for given, written in ((start, 4), (EVENTS, 2), (EVENTS, 0)):
        result = bids("stream", "write", "shop/bids", "--writer", "me", "--resume", given=given)
        assert result.stdout == f"{written} events written by me\n"
    assert len(lines(bids("stream", "read", "shop/bids"))) == 6


def test_writers_and_describe_show_the_noted_times(bids: Command) -> None:
    bids(
        "stream", "write", "shop/bids", "--writer", "me", "--note-time", "2024-01-01T00:00:05Z", given=EVENTS
    )
    [writer] = json.loads(bids("stream", "writers", "shop/bids", "--json").stdout)
    assert (writer["writer"], writer["time"], writer["state"]) == ("me", "2024-01-01T00:00:05Z", "closed")
    assert json.loads(bids("stream", "marks", "shop/bids", "--json").stdout) == []
    described = json.loads(bids("stream", "describe", "shop/bids", "--json").stdout)
    assert sum(segment["length"] for segment in described["segments"]) == 6
    assert described["settings"]["marks"] == {
        "period": 10_000_000,
        "timeout": 60_000_000,
        "max_ahead": None,
    }
    assert json.loads(bids("stream", "cut-at", "shop/bids", "2024-01-01T00:00:05Z").stdout) == {
        "0": 0,
        "1": 0,
    }


def test_marks_and_cuts(run: Command, tmp_path: Path) -> None:
    run("stream", "create", "shop/quick", "--period", "1 microsecond")
    note = ("stream", "write", "shop/quick", "--writer", "me", "--note-time")
    assert run(*note, "1970-01-01T00:00:05Z", given='{"value": "a"}\n').exit_code == 0
    assert run("controller", "--once").stdout == "1 stream checked, 1 mark written\n"
    [mark] = json.loads(run("stream", "marks", "shop/quick", "--json").stdout)
    assert mark == {"lower": "1970-01-01T00:00:05Z", "upper": "1970-01-01T00:00:05Z", "cut": {"0": 1}}
    assert "1970-01-01T00:00:05Z" in run("stream", "list").stdout
    run("stream", "write", "shop/quick", given='{"value": "b"}\n')
    assert lines(run("stream", "read", "shop/quick", "--from", "1970-01-01T00:00:05Z")) == [{"value": "b"}]
    assert lines(run("stream", "read", "shop/quick", "--to", '{"0": 1}')) == [{"value": "a"}]
    assert json.loads(run("stream", "truncate", "shop/quick", "1970-01-01T00:00:05Z").stdout) == {"0": 1}
    assert lines(run("stream", "read", "shop/quick")) == [{"value": "b"}]
    refused = run(*note, "1970-01-01T00:00:04Z", given="")
    assert refused.exit_code == 2
    assert "invalid_time" in refused.stderr


def test_scaling_keeps_every_event(bids: Command) -> None:
    bids("stream", "write", "shop/bids", given=EVENTS)
    assert "3 segments, in epoch 1" in bids("stream", "scale", "shop/bids", "--split", "0").stdout
    described = json.loads(bids("stream", "describe", "shop/bids", "--json").stdout)
    active = [segment["id"] for segment in described["segments"] if not segment["sealed"]]
    merged = [word for identity in active[1:] for word in ("--merge", str(identity))]
    assert "2 segments, in epoch 2" in bids("stream", "scale", "shop/bids", *merged).stdout
    assert "5 segments, in epoch 3" in bids("stream", "scale", "shop/bids", "--segments", "5").stdout
    bids("stream", "write", "shop/bids", given=EVENTS)
    assert len(lines(bids("stream", "read", "shop/bids"))) == 12


@pytest.mark.parametrize(
    ("arguments", "given", "code", "said"),
    [
        (["read", "shop/nope"], None, 1, "stream 'shop/nope' does not exist"),
        (["create", "shop/bids"], None, 1, "stream 'shop/bids' exists already"),
        (["create", "bids"], None, 2, "write scope and name"),
        (["create", "shop/new", "--columns", "at instant"], None, 2, "unknown type 'instant'"),
        (["create", "shop/new", "--timeout", "0 seconds"], None, 2, "timeout = '0 seconds'"),
        (["create", "shop/new", "--segments", "0"], None, 2, "between 1 and 65,536"),
        (["write", "shop/bids"], '{"cost": 1}\n', 2, "line 1"),
        (["write", "shop/bids"], EVENTS + "{\n", 2, "line 7"),
        (["write", "shop/bids"], EVENTS + '{"auction": "x"}\n', 2, "column 'auction' of type int64"),
        (["write", "shop/bids"], '{"auction": 1.9}\n', 2, "int64: has a fractional part"),
        (["write", "shop/bids"], '{"at": 1704067200}\n', 2, "line 1 = "),
        (["write", "shop/bids"], '{"auction": 99999999999999999999}\n', 2, "the stream: auction int64"),
        (["write", "shop/bids"], "\n", 2, "write one JSON object per line"),
        (["write", "shop/bids"], b"\xff{}\n", 2, "line 1"),
        (["write", "shop/bids", "--note-time", "soon"], EVENTS, 2, "is not an ISO 8601 date and time"),
        (["write", "shop/bids", "--note-time", "2024-01-01T00:00:00Z", "--note-clock", "1 s"], EVENTS, 2,
         "give one of --note-time and --note-clock"),
        (["write", "shop/bids", "--resume"], "", 2, "add --writer ID"),
        (["write", "shop/bids", "--writer", "a b"], "", 2, "is not a valid writer id"),
        (["write", "shop/bids", "--key", "colour"], EVENTS, 2, "available: auction, price, at"),
        (["read", "shop/bids", "--from", "yesterday"], None, 2, "is not an ISO 8601 date and time"),
        (["read", "shop/bids", "--from", "{5}"], None, 2, "is not a valid cut"),
        (["read", "shop/bids", "--from", '{"0": 0}'], None, 2, "cover [0, 1) once"),
        (["read", "shop/bids", "--from", '{"0": -1, "1": 0}'], None, 2, "is not a valid cut"),
        (["read", "shop/bids", "--from", '{"0": 7, "1": 0}'], None, 2, "is beyond the end of segment 0"),
        (["read", "shop/bids", "--from", '{"0": 0, "1": 0, "2": 0}'], None, 2, "is not a segment of this"),
        (["read", "shop/bids", "--limit", "-1"], None, 2, "give 1 or more"),
        (["tail", "shop/bids", "--limit", "0"], None, 2, "give 1 or more"),
        (["scale", "shop/bids"], None, 2, "no scaling option is given; give --into N"),
        (["scale", "shop/bids", "--split", "0", "--into", "1"], None, 2, "give 2 or more"),
        (["scale", "shop/bids", "--segments", "99999999"], None, 2, "between 1 and 65,536"),
        (["create", "shop/new", "--data", "/dev/null/x"], None, 2, "give a folder that can be written to"),
        (["scale", "shop/bids", "--merge", "0", "--into", "2"], None, 2, "cannot be combined with --into"),
        (["delete", "shop/bids"], None, 2, "add --yes"),
        (["delete", "shop/nope", "--yes"], None, 1, "stream 'shop/nope' does not exist"),
        (["configure", "shop/bids", "--maximum", "3"], None, 2, "add --rate EVENTS"),
        (["configure", "shop/bids", "--no-scaling", "--rate", "3"], None, 2, "omit it, or --rate"),
        (["configure", "shop/bids", "--keep-everything", "--keep", "1 day"], None, 2, "give limits, or"),
        (["configure", "shop/bids", "--period", "0 seconds"], None, 2, "must be greater than zero"),
        (["write", "shop/bids", "--note-clock", "0 s"], EVENTS, 2, "must be greater than zero"),
        (["groups", "shop/nope"], None, 1, "stream 'shop/nope' does not exist"),
        (["scale", "shop/bids", "--split", "77"], None, 2, "is not a segment of this stream"),
        (["truncate", "shop/bids", '{"0": 9, "1": 0}'], None, 2, "give the tail, or a cut before it"),
        (["list", "--store", "mysql://u:secret@host/db"], None, 2, "is neither PostgreSQL nor SQLite"),
    ],
)  # fmt: skip
def test_an_error_is_one_line_with_the_fix(
    unchanged_bids: Command, arguments: list[str], given: str | bytes | None, code: int, said: str
) -> None:
    result = unchanged_bids("stream", *arguments, given=given)
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert "secret" not in result.output


def test_a_stream_with_an_invalid_name_creates_no_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/new.db"
    refused = CliRunner().invoke(app, ["stream", "create", "bids", "--store", store])
    assert (refused.exit_code, list(tmp_path.iterdir())) == (2, [])


def test_no_line_of_a_short_invalid_input_is_written(bids: Command) -> None:
    assert bids("stream", "write", "shop/bids", given=EVENTS + "nonsense\n").exit_code == 2
    assert lines(bids("stream", "read", "shop/bids")) == []


def test_the_error_for_a_long_invalid_input_says_how_many_lines_were_written(bids: Command) -> None:
    long = '{"auction": 1}\n' * 10_001
    broken = bids("stream", "write", "shop/bids", "--writer", "me", "--resume", given=long + "nonsense\n")
    assert broken.exit_code == 2
    assert "line 10002" in broken.stderr
    assert broken.stderr.endswith("; lines 1 to 10000 were written, the rest were not\n")
    again = bids("stream", "write", "shop/bids", "--writer", "me", "--resume", "--json", given=long)
    assert json.loads(again.stdout) == {
        "writer": "me", "events": 1, "last_event_number": 10_001, "noted": None,
    }  # fmt: skip


def test_json_output_of_commands_that_change_a_stream(run: Command) -> None:
    def as_json(*arguments: str) -> object:
        return json.loads(run("stream", *arguments, "--json").stdout)

    made = {"name": "a/b", "segments": 1, "events": 0, "bytes": 0, "watermark": None}
    assert as_json("create", "a/b") == made
    assert as_json("scale", "a/b", "--segments", "2") == {
        "name": "a/b", "epoch": 1, "segments": [2**32 + 1, 2**32 + 2],
    }  # fmt: skip
    assert as_json("truncate", "a/b", "tail") == {str(2**32 + 1): 0, str(2**32 + 2): 0}
    assert as_json("cut-at", "a/b", "2024-01-01T00:00:00Z") == {str(2**32 + 1): 0, str(2**32 + 2): 0}
    tail = next(line for line in run("stream", "describe", "a/b").stdout.splitlines() if "tail" in line)
    assert run("stream", "read", "a/b", "--from", tail.removeprefix("tail:").strip()).exit_code == 0


def process(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    store = f"sqlite:///{tmp_path}/store.db"
    command = [sys.executable, "-m", "slackwater.cli", *arguments, "--store", store]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.proof
def test_real_processes_write_follow_and_control(tmp_path: Path) -> None:
    """A controller and a tail run in parallel with a writer and stop on SIGTERM and on --limit."""
    with Streams.open(f"sqlite:///{tmp_path}/store.db", create=True) as streams:
        quick = {"marks": {"period": "1 microsecond"}}
        stream = streams.create("shop/bids", columns=None, settings=quick)
        controller = process(tmp_path, "controller", "--poll", "50 milliseconds")
        tail = process(tmp_path, "stream", "tail", "shop/bids", "--from", "head", "--limit", "2")
        writer = process(tmp_path, "stream", "write", "shop/bids", "--note-clock", "20 milliseconds")
        assert writer.stdin is not None
        writer.stdin.write('{"value": "YQ=="}\n{"value": "Yg=="}\n')
        writer.stdin.flush()
        output, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
        assert output.startswith("2 events written")
        assert tail.communicate(timeout=60)[0] == '{"value":"YQ=="}\n{"value":"Yg=="}\n'
        until = time.monotonic() + 60
        while not stream.marks() and time.monotonic() < until:
            time.sleep(0.05)
        controller.send_signal(signal.SIGTERM)
        said = controller.communicate(timeout=60)
        assert controller.returncode == 0, said
        assert stream.marks()


@pytest.mark.search
def test_events_are_utf8_in_a_locale_without_letters_beyond_ascii(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    with Streams.open(store, create=True) as streams:
        stream = streams.create("shop/names", columns=ndjson.parse_columns("name string"))
        with sw.Writer(stream, "w") as writer:
            writer.write("Jürgen")
    command = [sys.executable, "-m", "slackwater.cli", "stream", "read", "shop/names", "--store", store]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=True
    )
    assert done.stdout == '{"name":"Jürgen"}\n'.encode()


def test_a_line_that_is_nested_too_deeply_is_rejected() -> None:
    deep = '{"name":' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(InvalidArgument, match=r"line 7 = .*it is nested too deeply") as caught:
        ndjson.from_lines([deep], ndjson.parse_columns("name string"), first=7)
    assert len(str(caught.value)) < 300


def test_the_version_is_printed(run: Command) -> None:
    assert run("--version").stdout == f"slackwater {sw.__version__}\n"


def test_settings_change_one_by_one_and_describe_prints_them(run: Command) -> None:
    run("stream", "create", "shop/bids", "--timeout", "30 seconds", "--keep", "7 days")
    changed = run("stream", "configure", "shop/bids", "--period", "1 second", "--keep-bytes", "1000000")
    assert changed.exit_code == 0, changed.output
    printed = run("stream", "describe", "shop/bids").stdout
    assert "marks:     every 1 s, timeout 30 s\n" in printed
    assert "retention: events of the last 7 d, at most 1000000 bytes\n" in printed
    assert "scaling:   by hand\n" in printed
    assert "no writer has noted a time" in printed
    run("stream", "configure", "shop/bids", "--keep-everything", "--rate", "100", "--maximum", "4")
    printed = run("stream", "describe", "shop/bids").stdout
    assert "retention: everything is kept\n" in printed
    assert "scaling:   100 events per second and segment, 1 to 4 segments\n" in printed
    saved = json.loads(run("stream", "configure", "shop/bids", "--no-scaling", "--json").stdout)
    assert (saved["scaling"], saved["marks"]["period"]) == (None, 1_000_000)
    run("stream", "write", "shop/bids", "--writer", "me", "--note-time", "2024-01-01T00:00:05Z", given="")
    assert "2024-01-01T00:00:05Z" in run("stream", "describe", "shop/bids").stdout


def test_a_deleted_stream_is_gone(bids: Command) -> None:
    bids("stream", "write", "shop/bids", given=EVENTS.splitlines(keepends=True)[0])
    assert bids("stream", "delete", "shop/bids", "--yes").stdout == "stream shop/bids deleted with 1 event\n"
    assert bids("stream", "read", "shop/bids").exit_code == 1
    assert json.loads(bids("stream", "list", "--json").stdout) == []


def test_groups_show_how_far_behind_they_are(tmp_path: Path) -> None:
    store = new_store(tmp_path)

    def run(*arguments: str, given: str | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=given, env={"SLACKWATER_STORE": store})

    run("stream", "create", "shop/bids")
    run("stream", "write", "shop/bids", given='{"value": "a"}\n{"value": "b"}\n{"value": "c"}\n')
    with Streams.open(store) as streams:
        stream = streams.get("shop/bids")
        group = ReaderGroup(stream, "totals")
        stream.truncate(Position.of({0: 2}))
        [row] = json.loads(run("stream", "groups", "shop/bids", "--json").stdout)
        assert (row["group"], row["behind"], row["removed"], row["position"]) == ("totals", 3, 2, {"0": 0})
        with group.reader("r") as reader:
            [row] = json.loads(run("stream", "groups", "shop/bids", "--json").stdout)
            assert row["readers"] == ["r"]
            with pytest.raises(
                EventsGone, match=r"before group 'totals' read them; .*reset\(stream.head\(\)\)"
            ):
                reader.read()
        group.reset(stream.head())
        with group.reader("r") as reader:
            assert sum(batch.events.num_rows for batch in reader) == 1
    assert run("stream", "groups", "shop/bids").stdout.split()[:7] == [
        "group", "readers", "behind", "removed", "watermark", "position", "totals",
    ]  # fmt: skip


def test_scale_into_a_number_of_segments(bids: Command) -> None:
    assert "3 segments, in epoch 1" in bids("stream", "scale", "shop/bids", "--into", "3").stdout
    assert "1 segment, in epoch 2" in bids("stream", "scale", "shop/bids", "--into", "1").stdout


@pytest.mark.search
def test_lines_of_a_slow_pipe_are_written_as_they_arrive_and_the_clock_is_noted_after_them(
    tmp_path: Path,
) -> None:
    with Streams.open(f"sqlite:///{tmp_path}/store.db", create=True) as streams:
        stream = streams.create("shop/clicks", columns=ndjson.parse_columns("at bigint"))
        writer = process(
            tmp_path, "stream", "write", "shop/clicks", "--writer", "pipe", "--note-clock", "50 milliseconds"
        )
        assert writer.stdin is not None
        for number in range(2):
            line = json.dumps({"at": number}) + "\n"
            writer.stdin.write(line[:5])  # a line that is not complete yet holds the time back
            writer.stdin.flush()
            before = _settled(stream)
            writer.stdin.write(line[5:])
            writer.stdin.flush()
            _until(lambda number=number: sum(dict(stream.tail().items()).values()) > number)  # type: ignore[misc]
            _until(lambda before=before: (_noted(stream) or 0) > before)  # type: ignore[misc]
        assert writer.communicate(timeout=60) == ("2 events written by pipe\n", "")


def _noted(stream: Stream) -> int | None:
    rows = description.describe_writers(stream)
    return instant(rows[0]["time"]) if rows else None


def _settled(stream: Stream) -> int:
    """The noted time once it does not change any more."""
    noted = []

    def is_settled() -> bool:
        noted.append(_noted(stream))
        return len(noted) > 20 and noted[-1] == noted[-20]

    _until(is_settled)
    return noted[-1] or 0


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)

"""Which lines of Spark's standard error reach the console."""

from __future__ import annotations

import os

import pytest

from slackwater.spark.quiet_console import ConsoleFilter, filtered_pipe

CHATTER = (
    b"Starting Streaming TransformWithStateInPandas Python worker.\n\n"
    b"Streaming TransformWithStateInPandas Python worker finish init stage of Python runner. Received UDF\n\n"
    b"Streaming TransformWithStateInPandas Python worker Completed execution of UDF: <bound method>.\n\n"
)
BROKEN_PIPE = (
    b"Traceback (most recent call last):\n"
    b'  File "lib/pyspark.zip/pyspark/daemon.py", line 264, in manager\n'
    b'  File "lib/pyspark.zip/pyspark/daemon.py", line 95, in worker\n'
    b"BrokenPipeError: [Errno 32] Broken pipe\n"
)
OWN_ERROR = (
    b"Traceback (most recent call last):\n"
    b'  File "pipeline.py", line 3, in rated\n'
    b"    return 1 // 0\n"
    b"ZeroDivisionError: division by zero\n"
)
OWN_PIPE = BROKEN_PIPE.replace(b"pyspark/daemon.py", b"mine.py")
REAL = b"26/11/17 04:13:17 WARN NativeCodeLoader: Unable to load native-hadoop library\n\nsecond\n"
FLUSH = b"PySpark daemon failed to flush the output to the worker process:\n" + BROKEN_PIPE


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_only_chatter_and_broken_pipes_of_workers_are_removed(size: int) -> None:
    lines = ConsoleFilter()
    text = REAL + CHATTER + OWN_ERROR + BROKEN_PIPE + OWN_PIPE + FLUSH + CHATTER + REAL
    passed = b"".join(lines.feed(text[at : at + size]) for at in range(0, len(text), size)) + lines.end()
    assert passed == REAL + OWN_ERROR + OWN_PIPE + REAL


def test_broken_pipes_of_workers_that_end_together_are_removed() -> None:
    lines = ConsoleFilter()
    mixed = b"".join(line + line for line in BROKEN_PIPE.splitlines(keepends=True))
    assert lines.feed(mixed + b"[Stage 1:>   ") == b"[Stage 1:>   "
    assert lines.feed(b"]\n  an indented line\n") == b"]\n  an indented line\n"


def test_a_broken_pipe_after_a_progress_bar_is_removed() -> None:
    lines = ConsoleFilter()
    assert lines.feed(b"\r[Stage 2:>   (0 + 1) / 1]\r" + BROKEN_PIPE) == b"\r[Stage 2:>   (0 + 1) / 1]\r"
    assert lines.feed(b"[Stage 3:>   ") == b"[Stage 3:>   "


def test_a_line_without_an_end_does_not_wait_unless_it_may_be_removed() -> None:
    lines = ConsoleFilter()
    assert lines.feed(b"[Stage 1:>   ") == b"[Stage 1:>   "
    assert lines.feed(b"]\nStart") == b"]\n"
    assert lines.feed(b"ed a job\n") == b"Started a job\n"


def test_what_is_held_back_passes_at_the_end() -> None:
    lines = ConsoleFilter()
    assert lines.feed(BROKEN_PIPE[:60]) == b""
    assert lines.end() == BROKEN_PIPE[:60]


def test_a_long_traceback_is_not_held_back_forever() -> None:
    lines = ConsoleFilter()
    text = b"Traceback (most recent call last):\n" + b"  frame\n" * 300
    assert lines.feed(text) + lines.end() == text


def test_a_pipe_copies_to_the_descriptor_that_it_was_given_until_it_is_closed() -> None:
    shown, target = os.pipe()
    writer = filtered_pipe(target)
    os.close(target)
    os.write(writer, CHATTER + REAL)
    os.close(writer)
    with os.fdopen(shown, "rb") as output:
        assert output.read() == REAL


def test_a_console_that_is_gone_does_not_block_the_process() -> None:
    shown, target = os.pipe()
    writer = filtered_pipe(target)
    os.close(target)
    os.close(shown)
    for _ in range(50):
        os.write(writer, b"x" * 65_536)  # more than a pipe holds
    os.close(writer)

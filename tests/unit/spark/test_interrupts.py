"""Ctrl-C interrupts a call that waits, although Polars was imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, socket, threading, time
import polars
from slackwater.spark.api.query_interrupts import restore_interrupts

restore_interrupts()
waiting, other = socket.socketpair()
answered = threading.Event()

def interrupt_and_answer():
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
    answered.set()
    other.send(b"x")

threading.Thread(target=interrupt_and_answer, daemon=True).start()
try:
    waiting.recv(1)
except KeyboardInterrupt:
    print("interrupted after the answer" if answered.is_set() else "interrupted")
"""


@pytest.mark.search
def test_a_call_that_waits_is_interrupted() -> None:
    finished = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert finished.stdout == "interrupted\n"

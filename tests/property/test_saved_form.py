"""Saved state loads completely or not at all: truncated, modified or foreign bytes are rejected."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slackwater.errors import CorruptState, ProgressError, StateError, UnsupportedStateVersion
from slackwater.progress.coalescer import Coalescer, OperatorCoalescer
from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.numbering import OutputNumbering, Rechunker
from slackwater.progress.tracker import ProgressTracker
from slackwater.progress.values import BufferHeader, Watermark
from slackwater.progress.watermark_policies import Lag, LagThenClock


def _coalescer() -> Coalescer:
    coalescer = Coalescer(["orders", "clicks"], now=1)
    coalescer.watermark(0, Watermark(1_700_000_000_000_000), now=2)
    coalescer.watermark(0, Watermark(-5, "order_time"), now=3)
    coalescer.idle(1, now=4)
    return coalescer


def _operator() -> OperatorCoalescer:
    operator = OperatorCoalescer([2, 1], now=1)
    operator.watermark(0, 1, Watermark(7), now=2)
    operator.done(1, 0, now=3)
    return operator


def _tracker() -> ProgressTracker:
    tracker = ProgressTracker(["a", 7], now=1)
    tracker.observe(BufferHeader("a", 1, watermarks={"default": 10}), now=2)
    tracker.observe(BufferHeader("a", 3, 2, True, {"default": 30}), now=3)
    tracker.observe(BufferHeader("a", 3, 1, False), now=3)
    tracker.observe(BufferHeader("a", 5, 2, False, {"order_time": 50}), now=4)
    tracker.observe(BufferHeader("a", 1), now=5)
    tracker.idle(7, now=6)
    return tracker


def _generator() -> WatermarkGenerator:
    generator = WatermarkGenerator(Lag(3), partitions=["p0", "p1", "p2"], now=0, idle_after=10, max_ahead=50)
    generator.observe("p0", 20, now=1)
    generator.observe("p1", 900, now=2)
    generator.remove("p2", now=3)
    generator.tick(now=11)
    return generator


def _rechunker() -> Rechunker:
    rechunker = Rechunker("a")
    rechunker.rechunk(BufferHeader("a", 4, 2), 3)
    rechunker.rechunk(BufferHeader("a", 1), 2)
    return rechunker


def _numbering() -> OutputNumbering:
    numbering = OutputNumbering("window-1")
    numbering.number(2)
    return numbering


def _load_generator(data: bytes) -> WatermarkGenerator:
    return WatermarkGenerator(Lag(3), now=0, idle_after=10, max_ahead=50).load(data)


SUBJECTS: dict[str, tuple[Callable[[], Any], Callable[[bytes], Any]]] = {
    "coalescer": (_coalescer, Coalescer.load),
    "operator": (_operator, OperatorCoalescer.load),
    "tracker": (_tracker, ProgressTracker.load),
    "generator": (_generator, _load_generator),
    "rechunker": (_rechunker, Rechunker.load),
    "numbering": (_numbering, OutputNumbering.load),
}
ALL = pytest.mark.parametrize("subject", SUBJECTS)

VERSION_1 = {
    "coalescer": (
        "01439292a66f7264657273a6636c69636b7394920001920104c29295a764656661756c74cf00060a24181e40"
        "00cf00060a24181e400092cf00060a24181e4000c09202c095aa6f726465725f74696d65fbfb92fbc09203c0"
        "7686de52"
    ),
    "operator": (
        "014f92c41f01439292a6656467652030a665646765203194920002920103c2903ea4ae1392c422014392c094"
        "920000920101c29195a764656661756c7407c092c00792c002bab93003c40f014392c09491029103c290f845"
        "25b9c624318e"
    ),
    "tracker": (
        "015493c39292a1619601010393910391039181a764656661756c741e810302919305c093910291029181aa6f"
        "726465725f74696d65329207960000c093909090809094920001920106c29195a764656661756c740a0a920a"
        "c09202c0942237b8"
    ),
    "generator": (
        "0147959293a27030000193a2703101029493010003930b0003c29195a764656661756c7411c09311c0c09301"
        "c0c00b01c2c2b4e9f3"
    ),
    "rechunker": ("015293a161960100c09390909080919304029391029102918081040331a41c04"),
    "numbering": ("014e92a877696e646f772d31014f8b0c0f"),
}
"""The bytes of version 1 for the subjects above. Never change them: state stores contain such bytes."""


def _with_checksum(body: bytes) -> bytes:
    return body + zlib.crc32(body).to_bytes(4, "big")


@ALL
def test_loading_and_saving_gives_the_same_bytes(subject: str) -> None:
    make, load = SUBJECTS[subject]
    saved = make().save()
    assert load(saved).save() == saved


@ALL
def test_bytes_of_version_1_are_loaded(subject: str) -> None:
    make, load = SUBJECTS[subject]
    loaded = load(bytes.fromhex(VERSION_1[subject]))
    assert loaded.save() == make().save()


def test_bytes_of_version_2_of_a_generator_are_loaded() -> None:
    version_2 = (
        "0247979293a161000193a162010294920000920000c29195a764656661756c7411c09211079201020200c292001e"
        "92930011019301070200cd88b2"
    )
    fresh = WatermarkGenerator(LagThenClock(3), partitions=["a", "b"], now=0, idle_after=10, discover=30)
    loaded = fresh.load(bytes.fromhex(version_2))
    fresh.observe("a", 20, now=1)
    fresh.observe("b", 10, now=2)
    assert loaded.save() == fresh.save()


@ALL
def test_every_truncation_is_rejected(subject: str) -> None:
    make, load = SUBJECTS[subject]
    saved = make().save()
    for length in range(len(saved)):
        with pytest.raises(CorruptState):
            load(saved[:length])
    with pytest.raises(CorruptState):
        load(saved + b"\0")


@ALL
def test_every_flipped_bit_is_rejected(subject: str) -> None:
    make, load = SUBJECTS[subject]
    saved = make().save()
    for index in range(len(saved)):
        for bit in range(8):
            flipped = bytearray(saved)
            flipped[index] ^= 1 << bit
            with pytest.raises(StateError):
                load(bytes(flipped))


@ALL
@given(changes=st.dictionaries(st.integers(0, 10_000), st.integers(1, 255), min_size=1, max_size=30))
def test_changed_bytes_are_rejected(subject: str, changes: dict[int, int]) -> None:
    make, load = SUBJECTS[subject]
    changed = bytearray(make().save())
    for index, difference in changes.items():
        changed[index % len(changed)] ^= difference
    if bytes(changed) != make().save():
        with pytest.raises(StateError):
            load(bytes(changed))


@ALL
@pytest.mark.parametrize("version", [0, "next", 255])
def test_another_version_is_rejected_and_named(subject: str, version: int | str) -> None:
    make, load = SUBJECTS[subject]
    body = bytearray(make().save()[:-4])
    body[0] = version = body[0] + 1 if isinstance(version, str) else version
    with pytest.raises(
        UnsupportedStateVersion, match=f"has format version {version}, but this release supports 1"
    ):
        load(_with_checksum(bytes(body)))


@ALL
def test_the_state_of_another_class_is_rejected(subject: str) -> None:
    _, load = SUBJECTS[subject]
    for other, (make, _) in SUBJECTS.items():
        if other != subject:
            with pytest.raises(CorruptState, match="its tag is"):
                load(make().save())


@ALL
@given(content=st.binary(max_size=80))
@example(content=b"\x93\xa1\x80")  # text that is not UTF-8
def test_other_content_with_a_valid_checksum_is_rejected_or_usable(subject: str, content: bytes) -> None:
    make, load = SUBJECTS[subject]
    head = make().save()[:2]
    try:
        loaded = load(_with_checksum(head + content))
    except StateError:
        return
    assert load(loaded.save()).save() == loaded.save()


@given(st.data())
def test_inconsistent_parts_of_a_tracker_are_rejected(data: st.DataObject) -> None:
    """Content with a valid checksum in which one number was replaced is rejected or usable."""
    saved = _tracker().save()
    content = msgspec.msgpack.decode(saved[2:-4])
    holder, index = data.draw(st.sampled_from(list(_numbers_in(content))))
    holder[index] = data.draw(st.integers(-3, 8))
    try:
        loaded = ProgressTracker.load(_with_checksum(saved[:2] + msgspec.msgpack.encode(content)))
    except StateError:
        return
    before = loaded.current()
    try:
        emitted = loaded.observe(BufferHeader("a", 2, watermarks={"default": 20})).emitted
    except ProgressError:
        return
    assert all(before is None or each.value > before for each in emitted if isinstance(each, Watermark))


def _numbers_in(content: Any) -> Any:
    if isinstance(content, (list, dict)):
        for index, part in enumerate(content) if isinstance(content, list) else content.items():
            if type(part) is int:
                yield content, index
            yield from _numbers_in(part)

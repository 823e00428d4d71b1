"""The event-time picture: contents, reproducible files, and rejected arguments."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import polars as pl
import pytest

from slackwater.errors import InvalidArgument
from slackwater.plot import MissingExtra, save_picture
from slackwater.plot.examples import example
from slackwater.plot.scene import Box, Corner, Dot, scene
from slackwater.testing import T, TestStream, WindowRun
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, SECOND
from slackwater.windows import Fixed, Global, Sum, WindowedOperator, every, repeatedly

IMAGES = Path(__file__).parents[3] / "docs" / "images"


def run(stream: TestStream, **options: Any) -> WindowRun:
    named: dict[str, Any] = {"window": Fixed(10), "accumulations": {"total": Sum("price")}} | options
    return stream.run(WindowedOperator(**named, key=("key",), event_time="ts"))


def element(ts: int, price: int, key: str = "a") -> pl.DataFrame:
    return pl.DataFrame({"key": [key], "ts": [ts], "price": [price]})


# ---- what is shown


def test_dots_are_on_time_late_or_dropped() -> None:
    stream = (
        TestStream()
        .advance_processing_time(1)
        .add(element(3, 5))
        .advance_watermark(10)
        .advance_processing_time(1)
        .add(element(9, 6))
        .add(element(10, 7))
        .advance_watermark(15)
        .add(element(14, 8))
    )
    shown = scene(run(stream), value="total", element="price")
    assert shown.dots == (
        Dot(3, 1, "5", "on time"),
        Dot(9, 2, "6", "dropped"),
        Dot(10, 2, "7", "on time"),
        Dot(14, 2, "8", "late"),
    )


def test_dropped_rows_of_a_batch_are_exact_if_the_operator_emits_them() -> None:
    batch = pl.concat([element(3, 5), element(12, 6), element(4, 7)])
    stream = TestStream().advance_watermark(10).add(batch)
    delivered = scene(run(stream, late="emit"), value="total", element="price")
    assert [dot.fate for dot in delivered.dots] == ["dropped", "on time", "dropped"]


def test_box_extends_from_the_previous_firing_or_first_arrival_to_its_own_firing() -> None:
    stream = (
        TestStream()
        .advance_processing_time(4)
        .add(element(3, 5))
        .advance_processing_time(2)
        .add(element(4, 6))
        .advance_processing_time(3)
        .advance_watermark(10)
    )
    shown = scene(run(stream, trigger=repeatedly(every(count=2)), allowed_lateness=5), value="total")
    assert shown.boxes == (Box(0, 10, 4, 6, "EARLY", "11", ()),)
    assert shown.finish == 9


def test_retractions_are_with_the_pane_that_replaces_them() -> None:
    stream = TestStream().add(element(3, 5)).advance_watermark(10).add(element(4, 6))
    shown = scene(run(stream, mode="accumulating_and_retracting", allowed_lateness=5), value="total")
    assert [(box.timing, box.text, box.retracted) for box in shown.boxes] == [
        ("ON_TIME", "5", ()),
        ("LATE", "11", ("5",)),
    ]


def test_watermark_has_a_corner_for_every_move_and_none_for_standing_still() -> None:
    stream = (
        TestStream().advance_processing_time(1).advance_watermark(5).advance_watermark(5).advance_watermark(7)
    )
    assert scene(run(stream), value="total").watermark == (Corner(1, 5), Corner(1, 7))


def test_steps_replace_a_clock_that_never_moved() -> None:
    shown = scene(run(TestStream().add(element(3, 5)).advance_watermark(10)), value="total")
    assert not shown.clocked
    assert (shown.dots[0].arrival, shown.boxes[0].fired) == (1, 2)


def test_ends_of_time_do_not_stretch_the_picture(tmp_path: Path) -> None:
    ended = run(TestStream().add(element(3, 5)).end(), window=Global())
    shown = scene(ended, value="total")
    assert (shown.boxes[0].start, shown.boxes[0].end) == (BEGINNING_OF_TIME, END_OF_TIME)
    assert list(shown.times()) == [3]
    assert save_picture(ended, tmp_path / "global.svg", value="total").stat().st_size > 0


def test_the_key_is_required_if_there_are_several() -> None:
    stream = TestStream().add(pl.concat([element(3, 5), element(4, 6, "b")])).end()
    with pytest.raises(InvalidArgument, match="is required: the run has 2 keys"):
        scene(run(stream), value="total")
    shown = scene(run(stream), value="total", key=("b",))
    assert [dot.event_time for dot in shown.dots] == [4]
    assert [box.text for box in shown.boxes] == ["6"]


def test_unknown_value_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match=r"value = 'sum'.*total"):
        scene(run(TestStream().add(element(3, 5))), value="sum")


# ---- the file


@pytest.mark.parametrize("name", ["panes", "sessions"])
def test_pictures_of_the_documentation_are_up_to_date(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "drawn.svg"
    monkeypatch.setattr(sys, "argv", ["slackwater.plot", name, str(target)])
    runpy.run_module("slackwater.plot", run_name="__main__")
    assert target.read_bytes() == (IMAGES / f"windows-{name}.svg").read_bytes(), (
        f"draw it again: python -m slackwater.plot {name} docs/images/windows-{name}.svg"
    )


@pytest.mark.search
def test_global_matplotlib_settings_are_ignored(tmp_path: Path) -> None:
    plain = save_picture(example("sessions"), tmp_path / "a.svg", value="total").read_bytes()
    with mpl.rc_context({"axes.facecolor": "black", "font.size": 30}):
        assert save_picture(example("sessions"), tmp_path / "b.svg", value="total").read_bytes() == plain


def test_svg_is_well_formed_and_has_no_date_or_creator(tmp_path: Path) -> None:
    drawn = save_picture(example("panes"), tmp_path / "a.svg", value="total", title="Panes")
    ET.parse(drawn)  # noqa: S314  # drawn by ourselves a line above
    text = drawn.read_text(encoding="utf-8")
    assert "dc:date" not in text
    assert "dc:creator" not in text


@pytest.mark.search
def test_png_is_drawn_too(tmp_path: Path) -> None:
    drawn = save_picture(example("sessions"), tmp_path / "a.png", value="total", element="price")
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_run_without_panes_is_drawn(tmp_path: Path) -> None:
    waiting = run(TestStream().add(element(3, 5)))
    assert save_picture(waiting, tmp_path / "a.svg", value="total").exists()


def test_unknown_format_and_unit_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"use one of \.svg, \.png"):
        save_picture(example("panes"), tmp_path / "a.gif", value="total")
    with pytest.raises(InvalidArgument, match="unit = 'fortnight'"):
        save_picture(example("panes"), tmp_path / "a.svg", value="total", unit="fortnight")


@pytest.mark.search
def test_missing_library_is_named_with_the_extra_to_install() -> None:
    # A real interpreter in which the library cannot be found; nothing else of the package needs it.
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from slackwater.plot import save_picture, MissingExtra\n"
        "from slackwater.plot.examples import example\n"
        "try:\n"
        "    save_picture(example('panes'), 'never.svg', value='total')\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == 'matplotlib is not installed; run: pip install "slackwater[plot]"\n'
    assert not Path("never.svg").exists()
    assert issubclass(MissingExtra, ImportError)


def test_the_sessions_example_has_these_panes() -> None:
    panes = example("sessions").panes
    expected = T("""
        window_start[s] | window_end[s] | total | retraction
        2               | 17            | 6     | false
        2               | 17            | 6     | true
        2               | 32            | 12    | false
    """)
    assert panes.select(expected.columns).rows() == expected.rows()
    assert panes["window_start"].min() == 2 * SECOND

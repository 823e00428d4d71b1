"""Static HTML for notebooks: sentences, tables, and pictures of time as SVG.

Everything is a fragment without scripts and style sheets. Text and lines have the colour of the notebook's
text, so that they are readable on a light and on a dark ground. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

from slackwater._time_text import HIGHEST, LOWEST, instant_text

MOST_ROWS: Final = 50
"""How many rows a table or a picture has; the others are counted."""
_LONGEST: Final = 120
_WIDTH: Final = 460
_ROW: Final = 20
_FONT: Final = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.45"
_CELL: Final = "text-align:left;padding:2px 14px 2px 0;vertical-align:top;white-space:nowrap"
_LINE: Final = "border-bottom:1px solid rgba(128,128,128,.35)"
COLOURS: Final = {
    "active": "#009e73", "idle": "#8a9ba8", "silent": "#d55e00", "gap": "#cc79a7", "done": "#8a9ba8",
    "new": "#e69f00", "again": "#56b4e9", "read": "#009e73", "waits": "#8a9ba8", "later": "#b9aeb5",
    "left out": "#b9aeb5", "EARLY": "#56b4e9", "ON_TIME": "#009e73", "LATE": "#e69f00",
    "watermark": "#d55e00",
}  # fmt: skip
"""Colours of Okabe and Ito, readable on light and dark ground."""


class Html(str):
    """A fragment of HTML, which is not escaped again.

    >>> Html("<b>x</b>")
    '<b>x</b>'
    """

    __slots__ = ()


class TimeSpan(NamedTuple):
    """A row of `timeline`: a range, or an instant if ``end`` is None."""

    label: str
    start: int | None
    end: int | None
    state: str


def text(value: object) -> str:
    """A value as escaped text, shortened if it is long.

    >>> text("<b>"), text(None), len(text("x" * 1000))
    ('&lt;b&gt;', '', 120)
    """
    if isinstance(value, Html):
        return value
    shown = "" if value is None else str(value)
    return escape(shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…")


def fragment(*parts: Html) -> Html:
    """Several parts as one fragment.

    >>> fragment(Html("<p>a</p>")).endswith("<p>a</p></div>")
    True
    """
    return Html(f'<div class="slackwater" style="{_FONT}">{"".join(parts)}</div>')


def sentence(value: str, *, strong: bool = False) -> Html:
    """A paragraph.

    >>> sentence("a < b")
    '<p style="margin:.3em 0">a &lt; b</p>'
    """
    weight = ";font-weight:600;font-size:1.1em" if strong else ""
    return Html(f'<p style="margin:.3em 0{weight}">{escape(value)}</p>')


def state_mark(state: str) -> Html:
    """A state with its colour.

    >>> "active" in state_mark("active")
    True
    """
    colour = COLOURS.get(state, "#8a9ba8")
    box = "display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:.4em"
    return Html(f'<span style="{box};background:{colour}"></span>{text(state)}')


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, more: int = 0) -> Html:
    """A table of at most `MOST_ROWS` rows; ``more`` is how many rows are not in ``rows`` at all.

    >>> "… and 2 more" in table(["a"], [[1]], more=2)
    True
    """
    found = list(rows)
    heads = "".join(f'<th style="{_CELL};{_LINE}">{text(name)}</th>' for name in header)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{text(cell)}</td>' for cell in row) + "</tr>"
        for row in found[:MOST_ROWS]
    )
    left = max(0, len(found) - MOST_ROWS) + more
    note = f'<p style="margin:.2em 0;opacity:.75">… and {left} more</p>' if left else ""
    style = "border-collapse:collapse;background:none;margin:.4em 0;font-size:inherit"
    content = f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody>"
    return Html(f'<div style="overflow-x:auto"><table style="{style}">{content}</table></div>{note}')


def timeline(rows: Sequence[TimeSpan], lines: Sequence[tuple[str, int | None]] = ()) -> Html:
    """Rows on one time axis: a mark or a bar for each, and vertical lines over all of them.

    >>> shown = timeline([TimeSpan("a", 0, None, "active")], [("watermark", 5_000_000)])
    >>> shown.count("<circle"), shown.count("<script")
    (1, 0)
    """
    rows = rows[:MOST_ROWS]
    times = [at for row in rows for at in (row.start, row.end)] + [at for _, at in lines]
    known = [at for at in times if at is not None and LOWEST < at < HIGHEST]
    if not known:
        return Html("")
    low, high = min(known), max(known)
    margin = max((high - low) * 0.04, 1)
    left, height = 170, 24 + _ROW * len(rows) + 18

    def x(at: int) -> float:
        share = (at - low + margin) / (high - low + 2 * margin)
        return round(left + _WIDTH * min(1.0, max(0.0, share)), 1)

    parts = []
    for index, row in enumerate(rows):
        y = 24 + _ROW * index + _ROW // 2
        label = row.label if len(row.label) <= 24 else f"{row.label[:23]}…"
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{escape(label)}</text>')
        parts.append(_mark(row, y, x))
    for index, (name, at) in enumerate(lines):
        if at is not None and LOWEST < at < HIGHEST:
            colour = COLOURS.get(name, "currentColor")
            anchor = "end" if x(at) > left + _WIDTH / 2 else "start"
            parts.append(
                f'<line x1="{x(at)}" x2="{x(at)}" y1="14" y2="{height - 18}" stroke="{colour}" '
                f'stroke-dasharray="{"" if index == 0 else "3 3"}"/>'
                f'<text x="{x(at)}" y="11" text-anchor="{anchor}" fill="{colour}">{escape(name)}</text>'
            )
    axis = height - 18
    parts.append(
        f'<line x1="{left}" x2="{left + _WIDTH}" y1="{axis}" y2="{axis}" stroke="currentColor" opacity=".4"/>'
    )
    parts.append(f'<text x="{left}" y="{height - 4}" opacity=".75">{escape(instant_text(low))}</text>')
    if high > low:
        end = escape(instant_text(high))
        parts.append(
            f'<text x="{left + _WIDTH}" y="{height - 4}" text-anchor="end" opacity=".75">{end}</text>'
        )
    return Html(
        f'<svg width="{left + _WIDTH + 10}" height="{height}" style="max-width:100%" role="img" '
        f'aria-label="{len(rows)} rows on a time axis" font-family="inherit" font-size="11" '
        f'fill="currentColor">{"".join(parts)}</svg>'
    )


def _mark(row: TimeSpan, y: int, x: Callable[[int], float]) -> str:
    colour = COLOURS.get(row.state, "#8a9ba8")
    title = f"<title>{escape(row.label)}: {escape(row.state)}</title>"
    if row.start is None:
        return f'<text x="{x(LOWEST) + 4}" y="{y + 4}" opacity=".75">no time yet</text>'
    if row.end is None:
        return f'<circle cx="{x(row.start)}" cy="{y}" r="5" fill="{colour}">{title}</circle>'
    start, end = x(row.start), x(row.end)
    width = round(max(2.0, end - start), 1)
    return f'<rect x="{start}" y="{y - 6}" width="{width}" height="12" rx="2" fill="{colour}">{title}</rect>'


def curve(values: Sequence[float], label: str) -> Html:
    """A small line chart of values at equal distances, the highest of which is the top.

    >>> "polyline" in curve([1.0, 3.0, 2.0], "lag")
    True
    >>> curve([1.0], "lag")
    ''
    """
    if len(values) < 2:
        return Html("")
    top = max(*values, 1e-9)
    step = 160 / (len(values) - 1)
    points = " ".join(
        f"{round(index * step, 1)},{round(26 - 24 * max(0.0, value) / top, 1)}"
        for index, value in enumerate(values)
    )
    return Html(
        f'<svg width="162" height="28" role="img" aria-label="{escape(label)}"><polyline points="{points}" '
        f'fill="none" stroke="{COLOURS["watermark"]}" stroke-width="1.5"/></svg>'
    )

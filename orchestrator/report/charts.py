"""Small pictures as inline SVG: pure functions from numbers to text.

Lengths along x are percentages, so a picture fills whatever width it gets while its letters keep
their size; curves stand in a nested drawing that is stretched. Colours are the page's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from orchestrator.report.wording import fit, number, printable


class Interval(NamedTuple):
    """One row of a forest: a value with its interval (nan where unknown), and both in words."""

    label: str
    text: str
    value: float
    lower: float
    upper: float


class Part(NamedTuple):
    """One piece of a bar: a CSS class and a size."""

    kind: str
    size: float


class Bar(NamedTuple):
    """One row of bars."""

    label: str
    text: str
    parts: tuple[Part, ...]


class Track(NamedTuple):
    """An interval at one look of a run: items and dollars by then."""

    items: int
    dollars: float
    value: float
    lower: float
    upper: float


_ROW = 38
_AXIS = 22
_PLOT = 180
_CELL = 28
_GUTTER = 20
_NAME = 18
_HEAD = 72
"""Height of a coloured cell; per cent of the width, and columns of text, for the names before them;
columns of text for all heads together."""


def forest(rows: Sequence[Interval], *, title: str, with_zero: bool = False) -> str:
    """Draw a value with its interval for each row, on one axis."""
    scale = _Scale.over((x for r in rows for x in r[2:]), with_zero=with_zero)
    height = _ROW * len(rows)
    parts = [_grid(scale, height)]
    if with_zero:
        parts.append(_line("zero", scale.at(0), scale.at(0), 0, height))
    for i, row in enumerate(rows):
        y = _ROW * i
        parts.append(_row_text(row.label, row.text, y))
        if math.isfinite(row.lower) and math.isfinite(row.upper):
            at = y + 27
            parts.append(_line("interval", scale.at(row.lower), scale.at(row.upper), at, at))
        if math.isfinite(row.value):
            parts.append(_dot(scale.at(row.value), y + 27))
    return _svg(title, height + _AXIS, parts)


def caterpillar(rows: Sequence[Interval], *, title: str) -> str:
    """Draw very many intervals side by side, lowest value first; at most some hundreds show."""
    known = sorted((r for r in rows if math.isfinite(r.value)), key=lambda r: r.value)
    shown = known[:: max(1, len(known) // 600)]
    scale = _Scale.over((x for r in shown for x in r[2:]), with_zero=False)
    sticks = "".join(
        f"M{i + 0.5:g} {100 - scale.at(r.lower):.2f}V{100 - scale.at(r.upper):.2f}"
        for i, r in enumerate(shown)
        if math.isfinite(r.lower) and math.isfinite(r.upper)
    )
    dots = "".join(f"M{i + 0.5:g} {100 - scale.at(r.value):.2f}h0" for i, r in enumerate(shown))
    drawing = f'<path class="stick" d="{sticks}"/><path class="speck" d="{dots}"/>'
    levels = _levels((100 - scale.at(t), t) for t in scale.ticks())
    return _svg(title, _PLOT, [levels, _stretched(drawing, max(1, len(shown)))])


def curve(points: Sequence[tuple[float, float]], *, title: str, target: float | None) -> str:
    """Draw half-widths (y) against dollars (x), from zero on both axes.

    The first twentieth of the money does not set the height: the first looks are far too wide.
    """
    right = max(x for x, _ in points) or 1.0
    wide = [y for x, y in points if x >= right / 20]
    top = 1.1 * max([*wide, target or 0.0]) or 1.0
    xs, ys = _Scale(0.0, right), _Scale(0.0, top)
    steps = " ".join(f"{100 * x / right:.2f},{100 - 100 * y / top:.2f}" for x, y in points)
    parts = [_levels((100 - 100 * t / top, t) for t in ys.ticks() if t > 0)]
    if target is not None:
        level = _PLOT * (1 - target / top)
        parts.append(_line("target", 0, 100, level, level))
    parts += [
        _stretched(f'<polyline class="curve" points="{steps}"/>', 100),
        _dot(100 * points[-1][0] / right, _PLOT * (1 - points[-1][1] / top)),
        _line("axis", 0, 100, _PLOT, _PLOT),
        *(_tick(100 * t / right, _PLOT + 16, f"${_short(t)}") for t in xs.ticks()),
    ]
    return _svg(title, _PLOT + _AXIS, parts)


def band(track: Sequence[Track], *, title: str, target: float | None) -> str:
    """Draw how an interval closed in, against items, with the dollars by then below.

    The first tenth of the items does not set the height. The target is a band about the last value.
    """
    right, last = float(track[-1].items), track[-1]
    kept = [t for t in track if t.items >= right / 10]
    ends = [x for t in kept for x in (t.lower, t.upper)]
    goal = [] if target is None else [last.value - target, last.value + target]
    ys = _Scale.over([*ends, *goal], with_zero=False)

    def height(y: float) -> float:
        return 100 - ys.at(min(max(y, ys.low), ys.high))

    across = [100 * t.items / right for t in track]
    lower, upper, middle = (
        [f"{x:.2f},{height(y):.2f}" for x, y in zip(across, column, strict=True)]
        for column in zip(*((t.lower, t.upper, t.value) for t in track), strict=True)
    )
    outline = " ".join(lower + upper[::-1])
    drawing = (
        f'<polygon class="band" points="{outline}"/>'
        f'<polyline class="curve" points="{" ".join(middle)}"/>'
    )
    ticks = [t for t in _Scale(0.0, right).ticks() if t > 0]
    dollars = _interpolated(ticks, track)
    parts = [
        _stretched(drawing, 100),
        _levels((100 - ys.at(t), t) for t in ys.ticks()),
        *(_line("target", 0, 100, *[_PLOT * height(y) / 100] * 2) for y in goal),
        _dot(100, _PLOT * height(last.value) / 100),
        _line("axis", 0, 100, _PLOT, _PLOT),
        *(_tick(100 * t / right, _PLOT + 16, f"{t:,.0f}") for t in ticks),
        *(
            _tick(100 * t / right, _PLOT + 32, f"${_short(d)}")
            for t, d in zip(ticks, dollars, strict=True)
        ),
    ]
    return _svg(title, _PLOT + _AXIS + 16, parts)


def _interpolated(items: Sequence[float], track: Sequence[Track]) -> list[float]:
    """Give the dollars at some numbers of items, to three digits."""
    known = [(0.0, 0.0), *((float(t.items), t.dollars) for t in track)]
    found = []
    for x in items:
        after = next(k for k, (n, _) in enumerate(known) if n >= x)
        (n0, d0), (n1, d1) = known[max(after - 1, 0)], known[after]
        dollars = d1 if n1 == n0 else d0 + (d1 - d0) * (x - n0) / (n1 - n0)
        found.append(float(f"{dollars:.3g}"))
    return found


def bars(rows: Sequence[Bar], *, title: str, total: float | None = None) -> str:
    """Draw one bar of stacked parts for each row, to the scale of the longest or of `total`."""
    longest = total or max((sum(p.size for p in row.parts) for row in rows), default=0) or 1.0
    drawn = []
    for i, row in enumerate(rows):
        y, x = _ROW * i, 0.0
        drawn.append(_row_text(row.label, row.text, y))
        drawn.append(f'<rect class="track" x="0" y="{y + 21}" width="100%" height="10" rx="2"/>')
        for part in row.parts:
            width = 100 * part.size / longest
            drawn.append(
                f'<rect class="{part.kind}" x="{x:.2f}%" y="{y + 21}" width="{width:.2f}%" '
                'height="10"/>'
            )
            x += width
    return _svg(title, _ROW * len(rows), drawn)


def heat(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    title: str,
) -> str:
    """Colour a table of numbers: the farther from 0, the fuller; one colour above it, one below."""
    known = [abs(x) for row in values for x in row if math.isfinite(x)]
    most = max(known, default=0.0) or 1.0
    width = (100 - _GUTTER) / len(columns)
    places = [_GUTTER + width * k for k in range(len(columns))]
    parts = [
        _centred("tick", x + width / 2, 14, fit(column, max(6, _HEAD // len(columns))))
        for x, column in zip(places, columns, strict=True)
    ]
    for i, (row, of_row) in enumerate(zip(rows, values, strict=True)):
        y = _AXIS + _CELL * i
        parts.append(
            f'<text class="label" x="0" y="{y + 18}">{escape(printable(fit(row, _NAME)))}</text>'
        )
        for x, value in zip(places, of_row, strict=True):
            if not math.isfinite(value):
                parts.append(_centred("tick", x + width / 2, y + 18, "\N{EN DASH}"))
                continue
            kind = "above" if value > 0 else "below"
            fullness = 0.6 * abs(value) / most
            parts.append(
                f'<rect class="{kind}" x="{x:.2f}%" y="{y}" width="{width:.2f}%" '
                f'height="{_CELL - 2}" fill-opacity="{fullness:.2f}"/>'
            )
            parts.append(_centred("cell", x + width / 2, y + 18, number(value, 2)))
    return _svg(title, _AXIS + _CELL * len(rows), parts)


def mosaic(names: Sequence[str], values: Sequence[Sequence[float]], *, title: str) -> str:
    """Colour a square table of many numbers between -1 and 1, without writing them."""
    tones: dict[tuple[str, int], list[str]] = {}
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if math.isfinite(value) and (tone := round(_TONES * abs(value))):
                kind = "above" if value > 0 else "below"
                tones.setdefault((kind, tone), []).append(f"M{x} {y}h1v1h-1z")
    drawing = "".join(
        f'<path class="{kind}" fill-opacity="{tone / _TONES:.1f}" d="{"".join(cells)}"/>'
        for (kind, tone), cells in sorted(tones.items())
    )
    n = len(names)
    side = 12 * n
    rows = "".join(
        f'<text class="tick" x="0" y="{12 * y + 10}">{escape(printable(fit(name, _NAME)))}</text>'
        for y, name in enumerate(names)
    )
    square = (
        f'<svg x="{_GUTTER}%" y="0" width="{100 - _GUTTER}%" height="{side}" viewBox="0 0 {n} {n}" '
        f'preserveAspectRatio="none">{drawing}</svg>'
    )
    return _svg(title, side, [rows, square])


_TONES = 10
"""Steps of colour between 0 and 1."""


# --- pieces ------------------------------------------------------------------------------------


class _Scale(NamedTuple):
    """A stretch of numbers laid over 1 % to 99 % of the width."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float], *, with_zero: bool) -> _Scale:
        known = [x for x in values if math.isfinite(x)] + [0.0] * with_zero
        low, high = min(known, default=0.0), max(known, default=1.0)
        return cls(low, high) if high > low else cls(low - 0.5, high + 0.5)

    def at(self, x: float) -> float:
        return 1 + 98 * (x - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Choose about four round numbers inside; none where the stretch is too short for any."""
        rough = (self.high - self.low) / 4
        if rough < 1e-12 * max(abs(self.low), abs(self.high), 1e-12):
            return []
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [i * step for i in range(first, last + 1)]


def _svg(title: str, height: float, parts: Iterable[str]) -> str:
    name = escape(printable(title))
    return (
        f'<svg class="chart" role="img" aria-label="{name}" width="100%" height="{height:g}">'
        f"<title>{name}</title>{''.join(parts)}</svg>"
    )


def _stretched(drawing: str, width: int) -> str:
    return (
        f'<svg x="0" y="0" width="100%" height="{_PLOT}" viewBox="0 0 {width} 100" '
        f'preserveAspectRatio="none">{drawing}</svg>'
    )


def _grid(scale: _Scale, height: float) -> str:
    marks = [(scale.at(t), t) for t in scale.ticks()]
    lines = "".join(_line("grid", x, x, 0, height) for x, _ in marks)
    return lines + "".join(_tick(x, height + 16, _short(t)) for x, t in marks)


def _levels(marks: Iterable[tuple[float, float]]) -> str:
    """Horizontal grid lines at percentages from the top, with their numbers."""
    return "".join(
        _line("grid", 0, 100, y * _PLOT / 100, y * _PLOT / 100)
        + f'<text class="tick" x="0" y="{y * _PLOT / 100 - 3:.1f}">{_short(t)}</text>'
        for y, t in marks
    )


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.2f}%" x2="{x2:.2f}%" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _dot(x: float, y: float) -> str:
    return f'<circle class="dot" cx="{x:.2f}%" cy="{y:.1f}" r="4"/>'


def _tick(x: float, y: float, text: str) -> str:
    anchor = "start" if x < 4 else "end" if x > 96 else "middle"
    return f'<text class="tick" x="{x:.2f}%" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _centred(kind: str, x: float, y: float, text: str) -> str:
    return (
        f'<text class="{kind}" x="{x:.2f}%" y="{y:.1f}" text-anchor="middle">'
        f"{escape(printable(text))}</text>"
    )


def _row_text(label: str, text: str, y: float) -> str:
    return (
        f'<text class="label" x="0" y="{y + 14}">{escape(printable(label))}</text>'
        f'<text class="value" x="100%" y="{y + 14}" text-anchor="end">{escape(printable(text))}'
        "</text>"
    )


def _short(x: float) -> str:
    return f"{x:.6g}" if x else "0"

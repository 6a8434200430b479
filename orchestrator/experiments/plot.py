"""Curves of several methods against the budget, one small picture a setting, as SVG or PNG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.core.errors import ConfigError

Curve = Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """One small picture: its title, and a curve of (x, y), above 0 on logarithmic axes, for each name."""

    title: str
    curves: Mapping[str, Curve]


_COLOURS = ("#1b5e9e", "#c2541b", "#2e7d4f", "#8a4f9e", "#9a7b12", "#b3305c", "#4f6f78", "#555555")
_WIDTH, _HEIGHT, _LEFT, _TOP, _COLUMNS, _LABEL = 300, 220, 46, 34, 3, 200


def write(
    path: Path, panels: Sequence[Panel], *, title: str, x: str, y: str, is_level: bool = False
) -> None:
    """Write the picture; both axes are logarithmic and the same in all panels.

    Parameters
    ----------
    is_level : the upright axis is linear instead, from 0 or below

    Raises
    ------
    ConfigError
        The name ends neither in .svg nor in .png, or a .png is wanted without vl-convert.
    """
    drawing = svg(panels, title=title, x=x, y=y, is_level=is_level)
    if path.suffix == ".svg":
        path.write_text(drawing, encoding="utf-8")
    else:
        path.write_bytes(_png(drawing))


def check_path(path: Path) -> None:
    """Refuse a picture that can't be written, before anything is computed for it.

    Raises
    ------
    ConfigError
        As `write`.
    """
    match path.suffix:
        case ".svg":
            pass
        case ".png":
            _converter()
        case _:
            raise ConfigError(f"{path.name}: a plot is .svg or .png")


def _converter() -> Any:
    try:
        import vl_convert  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise ConfigError(
            "a .png needs pip install 'sortition[report]'; a .svg needs nothing"
        ) from exc
    return vl_convert


def _png(drawing: str) -> bytes:
    picture: bytes = _converter().svg_to_png(drawing, scale=2)
    return picture


def svg(panels: Sequence[Panel], *, title: str, x: str, y: str, is_level: bool = False) -> str:
    """Draw the panels in rows of three, with one legend."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    points = [point for panel in panels for curve in panel.curves.values() for point in curve]
    across = _Scale.over([px for px, _ in points], _WIDTH - _LEFT - 12)
    scale = _Level if is_level else _Scale
    up = scale.over([py for _, py in points], _HEIGHT - _TOP - 40)
    columns = min(_COLUMNS, len(panels))
    n_rows = math.ceil(len(panels) / columns)
    beside = columns * _WIDTH // _LABEL
    legend_rows = math.ceil(len(names) / beside)
    width, height = columns * _WIDTH, 40 + n_rows * _HEIGHT + 20 * legend_rows
    parts = [f'<text class="title" x="12" y="24">{escape(title)}</text>']
    for i, panel in enumerate(panels):
        row, column = divmod(i, columns)
        body = "".join(_panel(panel, names, across, up, x, y))
        parts.append(f'<g transform="translate({column * _WIDTH},{36 + row * _HEIGHT})">{body}</g>')
    for i, name in enumerate(names):
        row, column = divmod(i, beside)
        at, base = 12 + column * _LABEL, 52 + n_rows * _HEIGHT + 20 * row
        parts.append(
            f'<path stroke="{_colour(i)}" d="M{at:g} {base - 4:g}h22"/>'
            f'<text x="{at + 28:g}" y="{base:g}">{escape(name)}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
        "<style>path{fill:none;stroke-width:2}.grid{stroke:#ddd;stroke-width:1}"
        ".tick{fill:#666}.title{font-size:14px;font-weight:bold}</style>"
        f'<rect width="100%" height="100%" fill="#fff"/><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg>\n"
    )


class _Scale(NamedTuple):
    """A stretch of positive numbers laid logarithmically over so many pixels."""

    low: float
    high: float
    length: float

    @classmethod
    def over(cls, values: Sequence[float], length: float) -> _Scale:
        low, high = min(values), max(values)
        return cls(low / 1.06, high * 1.06, length)

    def at(self, value: float) -> float:
        return self.length * math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[float]:
        """Choose round numbers inside: 1, 2 and 5 times powers of ten, finer where few fit."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for digits in ((1, 2, 5), (1, 1.2, 1.5, 2, 3, 5, 7)):
            found = [
                d * 10.0**k for k in powers for d in digits if self.low <= d * 10.0**k <= self.high
            ]
            if len(found) > 2:
                break
        return found


class _Level(_Scale):
    """A stretch of numbers laid evenly over so many pixels."""

    __slots__ = ()

    @classmethod
    def over(cls, values: Sequence[float], length: float) -> _Level:
        low, high = min(0.0, *values), max(0.0, *values)
        return cls(low, high + 0.06 * ((high - low) or 1.0), length)

    def at(self, value: float) -> float:
        return self.length * (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Choose multiples of 1, 2 or 5 times a power of ten, three to seven of them."""
        power = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
        step = max(d * power for d in (1, 2, 5) if d * power <= (self.high - self.low) / 2)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [k * step for k in range(first, last + 1)]


def _panel(
    panel: Panel, names: Sequence[str], across: _Scale, up: _Scale, x: str, y: str
) -> list[str]:
    bottom = _HEIGHT - 40
    right = _LEFT + across.length
    parts = [f'<text x="{_LEFT}" y="{_TOP - 18}">{escape(panel.title)}</text>']
    for tick in up.ticks():
        level = bottom - up.at(tick)
        parts.append(
            f'<path class="grid" d="M{_LEFT} {level:.1f}H{right:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 5}" y="{level + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for tick in across.ticks():
        place = _LEFT + across.at(tick)
        parts.append(
            f'<text class="tick" x="{place:.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g}</text>'
        )
    for name, curve in panel.curves.items():
        path = "L".join(f"{_LEFT + across.at(px):.1f} {bottom - up.at(py):.1f}" for px, py in curve)
        dots = "".join(
            f'<circle r="2.5" fill="{_colour(names.index(name))}" '
            f'cx="{_LEFT + across.at(px):.1f}" cy="{bottom - up.at(py):.1f}"/>'
            for px, py in curve
        )
        parts.append(f'<path stroke="{_colour(names.index(name))}" d="M{path}"/>{dots}')
    parts.append(
        f'<text class="tick" x="{right:.1f}" y="{bottom + 28}" text-anchor="end">{escape(x)}</text>'
        f'<text class="tick" x="{_LEFT}" y="{_TOP - 4}">{escape(y)}</text>'
    )
    return parts


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]

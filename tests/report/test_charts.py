"""Pictures: well-formed, inside their frame, and safe with any label."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.charts import Bar, Interval, Part, bars, caterpillar, curve, forest

finite = st.floats(-1e6, 1e6)
any_number = finite | st.just(math.nan)


@st.composite
def intervals(draw):
    value, half = draw(any_number), draw(st.floats(0, 1e3) | st.just(math.nan))
    return Interval(draw(st.text(max_size=20)), "text", value, value - half, value + half)


def percentages(svg):
    return [float(x) for x in re.findall(r'c?x[12]?="(-?[\d.]+)%"', svg)]


@given(st.lists(intervals(), min_size=1, max_size=12), st.booleans())
def test_a_forest_is_well_formed_and_inside_its_frame(rows, with_zero):
    svg = forest(rows, title="<&>", with_zero=with_zero)
    root = ET.fromstring(svg)
    assert root.find("title").text == "<&>"
    assert all(-0.01 <= x <= 100.01 for x in percentages(svg))
    known = [r for r in rows if math.isfinite(r.lower) and math.isfinite(r.upper)]
    assert len(root.findall("line[@class='interval']")) == len(known)


def test_an_intervals_place_is_its_value():
    rows = [Interval("a", "", 0.5, 0.0, 1.0), Interval("b", "", 1.5, 1.0, 2.0)]
    root = ET.fromstring(forest(rows, title="t"))
    first, second = (
        [float(line.get(k).rstrip("%")) for k in ("x1", "x2")]
        for line in root.findall("line[@class='interval']")
    )
    assert (first, second) == ([1.0, 50.0], [50.0, 99.0])
    assert [float(d.get("cx").rstrip("%")) for d in root.findall("circle")] == [25.5, 74.5]


@given(st.lists(intervals(), max_size=40))
def test_a_caterpillar_is_well_formed(rows):
    ET.fromstring(caterpillar(rows, title="t"))


def test_very_many_intervals_are_thinned():
    rows = [Interval(str(i), "", float(i), i - 1.0, i + 1.0) for i in range(100_000)]
    assert len(caterpillar(rows, title="t")) < 60_000


@given(
    st.lists(st.tuples(st.floats(0, 1e3), st.floats(1e-6, 1e3)), min_size=2),
    st.none() | st.floats(1e-3, 1e3),
)
def test_a_curve_is_well_formed(points, target):
    root = ET.fromstring(curve(sorted(points), title="t", target=target))
    assert len(root.findall("line[@class='target']")) == (target is not None)


def test_a_bar_is_as_long_as_its_share():
    row = Bar("a", "", (Part("settled", 30), Part("uncertain", 10)))
    root = ET.fromstring(bars([row], title="t", total=80))
    drawn = [(r.get("class"), r.get("x"), r.get("width")) for r in root.findall("rect")[1:]]
    assert drawn == [("settled", "0.00%", "37.50%"), ("uncertain", "37.50%", "12.50%")]

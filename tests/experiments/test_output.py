"""Tables, CSV and pictures of a study."""

import csv
import io
import math
import sys
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from orchestrator.core.errors import ConfigError
from orchestrator.experiments import est_ivwe, output, plot, replay
from orchestrator.experiments.fanout import InProcess
from orchestrator.experiments.plot import Panel

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def rows():
    study = est_ivwe.Study(
        prices=("unit", "inv_sd"),
        sweeps=(8, 12),
        norms=(2.0, math.inf),
        n_items=20,
        n_judges=3,
        n_reps=2,
    )
    return est_ivwe.run(study, InProcess())


def shown(*tables):
    console = Console(file=io.StringIO(), width=100)
    for table in tables:
        console.print(table)
    return console.file.getvalue()


def test_tables_hold_every_figure_with_its_error(rows):
    text = shown(*output.synthetic_tables(rows))
    assert text.count("judges, prices") == 2
    for row in rows:
        assert f"{row.to_oracle:.2f} ± {row.to_oracle_se:.2f}" in text
        assert output.LABELS[row.method] in text
    assert "closed form" in text
    assert "linf" in text


def test_losses_are_named_below_the_tables(rows):
    lost = [row._replace(error=1.0 if row.method == "shrink" else 0.9) for row in rows]
    lines = output.closing_lines(lost)
    assert len(lines) == 1 + 2 * 8  # two rivals in each of eight cells
    assert lines[1].endswith("rho 8, l2: uniform, equal weights errs 0.90 of it")
    won = [row._replace(error=0.5 if row.method == "shrink" else 0.9) for row in rows]
    assert len(output.closing_lines(won)) == 1


def test_csv_holds_every_row_in_full(rows, tmp_path):
    path = tmp_path / "figures.csv"
    output.write_csv(path, rows)
    with path.open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == len(rows)
    assert float(read[-1]["norm"]) == math.inf
    assert [float(line["error"]) for line in read] == [row.error for row in rows]


def test_the_replay_has_one_table_and_one_picture_without_common():
    found = [
        replay.Row(n, method, 0.1, 0.5, 0.01, 0.9, 0.02, 4)
        for n in (10, 20)
        for method in replay.METHOD_NAMES
    ]
    assert "0.50 ± 0.01" in shown(output.replay_table(found))
    (panel,) = output.replay_panels(found)
    assert len(panel.curves) == len(replay.METHOD_NAMES) - 1


def test_a_picture_is_whole_svg_with_a_curve_for_each_method(rows, tmp_path):
    """One small picture a setting and norm, every curve inside it, one legend."""
    path = tmp_path / "curves.svg"
    panels = output.synthetic_panels(rows)
    plot.write(path, panels, title="a < b", x="rho", y="error")
    root = ET.parse(path).getroot()
    assert len(root.findall(f"{SVG}g")) == len(panels) == 4
    assert "a < b" in "".join(root.itertext())
    assert len(root.findall(f"{SVG}g//{SVG}circle")) == len(rows)
    for circle in root.iter(f"{SVG}circle"):
        assert 0 <= float(circle.get("cx")) <= 300
        assert 0 <= float(circle.get("cy")) <= 220
    legend = [path for path in root.findall(f"{SVG}path") if path.get("stroke")]
    assert len(legend) == len(panels[0].curves)


def test_a_single_budget_can_be_drawn():
    drawing = plot.svg([Panel("one", {"a": [(10, 1.0)]})], title="t", x="x", y="y")
    assert "nan" not in drawing


def test_a_png_is_made_by_the_extra_or_refused_before_anything_is_computed(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ConfigError, match=r"pip install 'sortition\[report\]'"):
        plot.check_path(tmp_path / "curves.png")
    with pytest.raises(ConfigError, match=r"\.svg or \.png"):
        plot.check_path(tmp_path / "curves.pdf")
    plot.check_path(tmp_path / "curves.svg")
    converter = SimpleNamespace(svg_to_png=lambda svg, scale: b"png of " + svg[:4].encode())
    monkeypatch.setitem(sys.modules, "vl_convert", converter)
    plot.check_path(tmp_path / "curves.png")
    panels = [Panel("one", {"a": [(10, 1.0), (20, 0.5)]})]
    plot.write(tmp_path / "curves.png", panels, title="t", x="x", y="y")
    assert (tmp_path / "curves.png").read_bytes() == b"png of <svg"

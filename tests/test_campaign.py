"""Campaigns from Python."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from orchestrator import Campaign, resume
from orchestrator.core.errors import ConfigError, InvalidCampaign
from orchestrator.core.events import Asked, Stopped, Told

QUICKSTART = Path(__file__).parents[1] / "configs" / "quickstart.yaml"


def quickstart(**overrides):
    return Campaign.from_yaml(QUICKSTART, {"policy.max_repeats": 1, "stop": {}, **overrides})


def test_a_campaign_runs_and_gives_its_result(tmp_path):
    result = quickstart().run(tmp_path / "run")
    assert (result.state, result.stop_reason, result.exit_code) == ("finished", "finished", 0)
    assert result.spend["settled_nano_usd"] > 0
    assert (
        sum(result.missing.values())
        == result.document["counts"]["asked"] - (result.document["counts"]["answered"])
    )
    primary = result.estimates[0]
    assert primary.names == ("v2 - v1",)
    assert primary.lower[0] < primary.value[0] < primary.upper[0]


def test_overrides_are_kept_for_a_resume(tmp_path):
    """C53 from Python: what was set over the file still holds when the run goes on."""
    first = quickstart(**{"budget.usd": 0.05}).run(tmp_path / "run")
    assert first.stop_reason == "budget"
    again = resume(str(tmp_path / "run"), {"budget.usd": 0.08})
    assert again.document["seed"] == first.document["seed"]
    assert 50_000_000 < again.spend["settled_nano_usd"] <= 80_000_000


def test_a_campaign_runs_inside_a_running_loop(tmp_path):
    """A notebook has a loop of its own; `run` works there all the same."""

    async def notebook():
        return quickstart().run(tmp_path / "run")

    assert anyio.run(notebook).state == "finished"


def test_events_are_read_as_they_become_durable(tmp_path):
    async def main():
        seen = []
        async with quickstart().open(tmp_path / "run") as run:
            seen.extend([event async for event in run])
            assert run.progress.state == "finished"
        return seen, run.result

    seen, result = anyio.run(main)
    assert result.state == "finished"
    assert isinstance(seen[0], Asked)
    assert any(isinstance(event, Stopped) for event in seen)


def test_a_trio_program_can_run_a_campaign_too(tmp_path):
    """Deadlines are counted by the loop's own clock, whichever loop it is."""

    async def main():
        campaign = quickstart(
            **{"judges.small.mock.realtime": True, "judges.small.mock.latency": {"constant": 0.01}}
        )
        async with campaign.open(tmp_path / "run") as run:
            async for _ in run:
                pass
        return run.result

    result = anyio.run(main, backend="trio")
    assert result.state == "finished"
    assert "timeout" not in result.missing


def test_leaving_early_interrupts_and_can_be_resumed(tmp_path):
    async def main():
        async with quickstart().open(tmp_path / "run") as run:
            async for event in run:
                if isinstance(event, Told):
                    break
        return run.result

    result = anyio.run(main)
    assert result.state == "interrupted"
    whole = quickstart().run(tmp_path / "whole")
    again = resume(tmp_path / "run")
    assert again.document["fingerprint"] == whole.document["fingerprint"]


def test_an_error_inside_the_block_comes_out_as_it_is(tmp_path):
    async def main():
        async with quickstart().open(tmp_path / "run"):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        anyio.run(main)


def test_a_run_under_way_is_observed(tmp_path):
    told = []
    quickstart().run(
        tmp_path / "run", observe=lambda progress, events: told.append(progress.n_told)
    )
    assert told == sorted(told)
    assert told[-1] == 288


@pytest.mark.parametrize("value", [0, -3, 2.5, "3"])
def test_numbers_that_make_no_sense_are_refused(tmp_path, value):
    with pytest.raises(ConfigError, match="limit"):
        Campaign.from_yaml(QUICKSTART, limit=value)
    with pytest.raises(ConfigError, match="max_in_flight"):
        quickstart().run(tmp_path / "run", max_in_flight=value)


def test_bad_files_raise_with_all_problems(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("version: 1\nname: x\nbuget: 3\n", encoding="utf-8")
    with pytest.raises(InvalidCampaign) as error:
        Campaign.from_yaml(path)
    assert len(error.value.problems) >= 2


def test_answers_come_as_a_data_frame_where_pandas_is(tmp_path, monkeypatch):
    """pandas is no dependency; its absence is a plain ImportError."""
    result = quickstart().run(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError):
        result.to_pandas()


def test_judges_get_the_truth_they_were_given(tmp_path):
    """The estimate of a mock campaign covers the difference that was put in."""
    result = quickstart(**{"policy.max_repeats": 2, "budget.usd": 5}).run(tmp_path / "run")
    difference = result.estimates[0]
    assert difference.lower[0] < 1.64 < difference.upper[0]

"""Campaigns from Python."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from estimators import score_means
from judges.mock import MockJudge
from orchestrator import Campaign, resume, rundir
from orchestrator.build import part_of
from orchestrator.core.errors import ConfigError, InvalidCampaign, RunLocked
from orchestrator.core.events import Asked, Stopped, Told
from orchestrator.session import start
from orchestrator.store.sqlite import SqliteStore
from orchestrator.verification import check

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
    with pytest.raises(ImportError, match="pip install pandas"):
        result.to_pandas()


def test_judges_get_the_truth_they_were_given(tmp_path):
    """The estimate of a mock campaign covers the difference that was put in."""
    result = quickstart(**{"policy.max_repeats": 2, "budget.usd": 5}).run(tmp_path / "run")
    difference = result.estimates[0]
    assert difference.lower[0] < 1.64 < difference.upper[0]


class Closing:
    """Counts how often the connections of mock judges are closed."""

    def __init__(self, monkeypatch):
        self.n = 0
        real = MockJudge.aclose

        async def aclose(judge):
            self.n += 1
            await real(judge)

        monkeypatch.setattr(MockJudge, "aclose", aclose)


def test_judges_are_closed_where_the_run_is_in_use(tmp_path, monkeypatch):
    campaign = quickstart()
    run = campaign.run(tmp_path / "run").directory
    closing = Closing(monkeypatch)
    owner = SqliteStore.open(run)
    with pytest.raises(RunLocked):
        campaign.run(run)
    owner.close()
    assert closing.n == len(campaign.file.campaign.judges)


def test_judges_are_closed_where_the_place_is_taken(tmp_path, monkeypatch):
    campaign = quickstart()
    (tmp_path / "run").write_text("no folder")
    closing = Closing(monkeypatch)
    with pytest.raises(ConfigError, match="holds no run"):
        campaign.run(tmp_path / "run")
    assert closing.n == len(campaign.file.campaign.judges)


def test_a_change_before_the_first_question_names_who_made_it(tmp_path):
    """A run that was interrupted before it asked anything, and gets another cap."""

    async def only_open():
        campaign = quickstart()
        await start(tmp_path / "run", campaign.build(), campaign._about())

    anyio.run(only_open)
    resume(tmp_path / "run", {"budget.usd": 0.07})
    with rundir.reading(tmp_path / "run") as reader:
        kinds = [type(row.event).__name__ for row in reader.read()]
    assert kinds[:4] == ["Opened", "Started", "CapChanged", "Started"]
    assert list(check(tmp_path / "run")) == []


@pytest.mark.parametrize(
    ("cap", "share", "part"),
    [
        (100_000_000, 0.29, 29_000_000),
        (290_000_000, 0.69, 200_100_000),
        (10, 0.17, 1),
        (10**19 + 1, 0.1, 10**18),
        (None, 0.1, None),
    ],
)
def test_a_share_of_a_cap_is_exact(cap, share, part):
    """A product of floats gives 28,999,999 for the first."""
    assert part_of(cap, share) == part


def test_estimators_draw_from_seeds_of_their_own(monkeypatch):
    """An estimate may run in a thread while the policy draws."""
    given = []
    real = score_means.PLUGIN.build

    def build(config, study):
        given.append(study.seeds)
        return real(config, study)

    monkeypatch.setattr(score_means, "PLUGIN", replace(score_means.PLUGIN, build=build))
    blueprint = quickstart().build()
    assert given
    assert all(seeds is not blueprint.study.seeds for seeds in given)
    assert {seeds.seed for seeds in given} == {blueprint.study.seeds.seed}

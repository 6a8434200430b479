"""The replay of recorded repeats: what is read, what is drawn, and the figures on real judges."""

import math
from functools import cache

import numpy as np
import pytest

from orchestrator.core.errors import ConfigError, InvalidCampaign
from orchestrator.experiments.est_ivwe import mean_of
from orchestrator.experiments.fanout import InProcess
from orchestrator.experiments.replay import (
    RecordedJudges,
    disagreement,
    read_prices,
    read_recorded,
    run,
)

PRICES = {"a": 3_000_000, "b": 1_000_000}
ROWS = [(f"i{k}", j, r, k + r + (j == "b")) for k in range(3) for j in "ab" for r in range(2)]


def ratings(folder, rows=ROWS, header="item_id,judge,replicate,score"):
    path = folder / "ratings.csv"
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def made(rng, noise=0.5, views=0.0, n_items=60):
    """Make judges of unequal noise, offsets and own views, four repeats each."""
    means = rng.normal(5, 1, (n_items, 1)) + np.array([0.0, 0.5, -0.5])
    means = means + views * rng.normal(size=means.shape)
    scale = noise * np.array([0.5, 1, 2])
    repeats = means[..., None] + scale[:, None] * rng.normal(size=(n_items, 3, 4))
    return RecordedJudges(
        repeats=repeats, names=("a", "b", "c"), price=np.array([4_000, 1_000, 500])
    )


# --- reading -------------------------------------------------------------------------------------


def test_repeats_are_read_by_item_and_judge(tmp_path):
    found = read_recorded(ratings(tmp_path), PRICES)
    assert found.names == ("a", "b")
    assert found.price.tolist() == [3_000_000, 1_000_000]
    assert found.repeats.tolist() == [[[k, k + 1], [k + 1, k + 2]] for k in range(3)]
    assert (found.n_left_out, found.unpriced, found.span) == (0, (), 4)


def test_items_without_all_repeats_are_left_out_and_counted(tmp_path):
    """An item that a judge answered less often would weigh that judge less."""
    rows = [*ROWS[:-1], ("i9", "a", 0, 1), ("i9", "b", 0, "")]
    found = read_recorded(ratings(tmp_path, rows), PRICES)
    assert len(found.repeats) == 2
    assert found.n_left_out == 2


def test_judges_without_a_price_take_no_part(tmp_path):
    rows = [*ROWS, ("i0", "c", 0, 1)]
    assert read_recorded(ratings(tmp_path, rows), PRICES).unpriced == ("c",)
    with pytest.raises(ConfigError, match="holds: a, b, c"):
        read_recorded(ratings(tmp_path, rows), {"a": 1})


def test_one_of_several_criteria_is_named(tmp_path):
    rows = [(*row, d) for row in ROWS for d in ("tone", "truth")]
    path = ratings(tmp_path, rows, "item_id,judge,replicate,score,dimension")
    with pytest.raises(ConfigError, match="tone, truth; name one: --criterion"):
        read_recorded(path, PRICES)
    assert read_recorded(path, PRICES, "tone").repeats.shape == (3, 2, 2)


def test_what_can_not_be_replayed_is_refused(tmp_path):
    with pytest.raises(InvalidCampaign, match="row 2: wants a number, not 'good'"):
        read_recorded(ratings(tmp_path, [ROWS[0], ("i0", "a", 1, "good")]), PRICES)
    with pytest.raises(ConfigError, match="no two items"):
        read_recorded(ratings(tmp_path, [row for row in ROWS if row[2] == 0]), PRICES)
    with pytest.raises(InvalidCampaign, match="nowhere"):
        read_recorded(tmp_path / "nowhere.csv", PRICES)


def test_prices_come_from_a_table_and_from_the_command_line(tmp_path):
    """The command line wins; a judge without an amount in the table has no price."""
    path = tmp_path / "judges.csv"
    path.write_text("judge,usd_per_call\nbig,0.0033\nmid,\nsmall,0.0004\n", encoding="utf-8")
    assert read_prices(path, []) == {"big": 3_300_000, "small": 400_000}
    assert read_prices(path, ["mid=0.001", "big=0.004"])["mid"] == 1_000_000
    assert read_prices(path, ["big=0.004"])["big"] == 4_000_000
    for wrong in ("big", "big=", "big=cheap", "big=0", "big=-1"):
        with pytest.raises(ConfigError):
            read_prices(path, [wrong])
    with pytest.raises(InvalidCampaign):
        read_prices(tmp_path / "nowhere.csv", [])


# --- replaying -----------------------------------------------------------------------------------


def test_draws_are_recorded_scores_with_replacement():
    """Means and variances are those of the recorded scores, however often they are asked."""
    world = made(np.random.default_rng(0), n_items=400)
    mean, variance = world.draw(np.full((400, 3), 9), np.random.default_rng(1))
    z = (mean - world.means) / np.sqrt(world.variance / 9)
    assert z.std() == pytest.approx(1, abs=0.05)
    assert (variance / world.variance).mean() == pytest.approx(1, abs=0.05)
    mean, variance = world.draw(np.array([[0, 1, 2]] * 400), np.random.default_rng(1))
    assert np.isnan(mean[:, 0]).all()
    assert np.isnan(variance[:, :2]).all()
    assert np.isin(mean[:, 1], world.repeats[:, 1]).all()


def test_interaction_is_the_variance_of_judges_own_views():
    """Offsets and noise are no interaction; own views are, at the size they were drawn with."""
    rng = np.random.default_rng(3)
    assert made(rng, n_items=2000).interaction == pytest.approx(0, abs=0.03)
    assert made(rng, views=0.8, n_items=2000).interaction == pytest.approx(0.64, rel=0.1)


def test_disagreement_is_told_and_agreement_is_not():
    rng = np.random.default_rng(4)
    assert disagreement(made(rng, noise=1.0), 4) is None
    warning = disagreement(made(rng, noise=0.1, views=1.0), 4)
    assert "judges disagree on single items" in warning


def test_a_replay_compares_with_uniform_and_with_price_alone():
    """Without own views `common` is best for its money; with them it errs beyond all others."""
    rng = np.random.default_rng(5)
    agreeing = {row.method: row for row in run(made(rng, n_items=200), [20], InProcess(), n_reps=6)}
    assert agreeing["uniform"].to_uniform == agreeing["price"].to_price == 1
    assert agreeing["oracle"].to_uniform < agreeing["shrink"].to_uniform < 1
    disagreeing = run(made(rng, views=1.0, n_items=200), [20], InProcess(), n_reps=2)
    rmse = {row.method: row.rmse for row in disagreeing}
    assert rmse["common"] > 3 * max(value for name, value in rmse.items() if name != "common")


def test_fewer_than_four_sweeps_are_refused():
    with pytest.raises(ConfigError, match="4 sweeps"):
        run(made(np.random.default_rng(0)), [3], InProcess(), n_reps=2)


# --- real judges ---------------------------------------------------------------------------------

MORE = ("claude-sonnet-4.6=0.0045", "claude-haiku-4.5=0.0015")
"""What two judges without a usable token count are taken to cost, USD a call."""


@pytest.fixture(scope="module")
def recorded(shared_data):
    """Read the recorded judges, those without a price at the prices that are given."""
    folder = shared_data / "rb2_scores"

    @cache
    def read(extra):
        return read_recorded(folder / "ratings.csv.gz", read_prices(folder / "judges.csv", extra))

    return read


@pytest.mark.shared
@pytest.mark.parametrize(
    ("extra", "sweeps", "n_reps"),
    [
        (MORE, [10], 2),
        ((), [10], 2),
        pytest.param(MORE, [10, 20, 50], 20, marks=pytest.mark.slow),
        pytest.param((), [10, 20, 50], 20, marks=pytest.mark.slow),
    ],
)
def test_on_real_judges_the_panel_allocation_pays(recorded, measured, extra, sweeps, n_reps):
    """Noise at most .75 of uniform's and 1.05 of that by price alone; `common` loses by far.

    By price alone .64 of uniform with five judges and .57 with three, by an oracle .40 and .32.
    """
    world = recorded(extra)
    rows = run(world, sweeps, InProcess(), n_reps=n_reps)
    n_judges = len(world.names)
    for row in rows:
        measured(
            f"rb2_scores, {n_judges} judges, rho {row.sweeps}, {row.method}: MSE / uniform, / price"
            + (" (bars .75 and 1.05)" if row.method == "shrink" else ""),
            f"{row.to_uniform:.3f}, {row.to_price:.3f} ± {row.to_price_se:.3f}; RMSE {row.rmse:.3f}",
        )
        match row.method:
            case "price":
                assert row.to_uniform == pytest.approx(0.64 if extra else 0.57, abs=0.04)
            case "oracle":
                assert row.to_uniform == pytest.approx(0.40 if extra else 0.32, abs=0.03)
            case "shrink":
                assert row.to_uniform <= 0.75
                assert row.to_price <= 1.05 + 2 * row.to_price_se
            case "common":
                assert row.to_uniform > 20
    assert world.interaction == pytest.approx(0.89**2 if extra else 0.87**2, abs=0.03)
    assert "judges disagree" in disagreement(world, max(sweeps))


@pytest.mark.shared
def test_the_items_of_real_judges_are_those_of_the_statistics(recorded):
    """4,369 items with all 8 repeats of all 5 judges."""
    world = recorded(MORE)
    assert world.repeats.shape == (4369, 5, 8)
    assert world.span == 9
    assert recorded(()).unpriced == ("claude-haiku-4.5", "claude-sonnet-4.6")
    expected = float((world.variance / 10).mean() / 5)
    (row, *_) = run(world, [10], InProcess(), n_reps=2)
    assert row.rmse == pytest.approx(math.sqrt(expected), rel=0.03)
    assert mean_of(np.array([1.0]))[0] == 1

"""The audit of a board: each defect is found, sound boards are left alone, and figures hold."""

import csv
import gzip
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.board_audit import Kind, audit
from estimators.board_neighbours import MATERIAL_GAP
from estimators.comparisons import Comparisons
from orchestrator.experiments.board_worlds import DEFECTS, FINDS, SOUND, WORLDS, World

MODERATE = replace(World(), n_votes=2000)


def audited(world, seed, **more):
    rng = np.random.default_rng([seed, 3])
    votes = world.draw(rng)
    return audit(votes, n_models=world.n_models, rng=rng, **more)


def table(left, right, outcome, *, item=None, judge=None):
    n = len(left)
    zeros = np.zeros(n, dtype=np.int64)
    return Comparisons(
        left=np.asarray(left),
        right=np.asarray(right),
        outcome=np.asarray(outcome, dtype=np.float64),
        item=np.arange(n) if item is None else np.asarray(item),
        judge=zeros if judge is None else np.asarray(judge),
        replicate=zeros,
        propensity=np.full(n, np.nan),
    )


def both(first, second):
    """Votes of two tables in one."""
    names = ("left", "right", "outcome", "item", "judge", "replicate", "propensity")
    return Comparisons(
        **{k: np.concatenate((getattr(first, k), getattr(second, k))) for k in names}
    )


# --- defects ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found_and_a_sound_board_is_left_alone(defect):
    found = [audited(WORLDS[defect], seed) for seed in range(20)]
    if defect == "none":
        assert sum(not each.fired for each in found) >= 19
    else:
        assert sum(each.of(FINDS[defect]).fires for each in found) >= 19


@pytest.mark.slow
@pytest.mark.parametrize("defect", FINDS)
def test_a_defect_is_found_in_95_of_100_boards(defect, measured):
    """The matching finding fires in at least 95 % of 200 draws."""
    hits = sum(audited(WORLDS[defect], seed).of(FINDS[defect]).fires for seed in range(200))
    measured(f"board audit: {defect} is found, of 200 boards >= 190", str(hits))
    assert hits >= 190


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_board_shows_nothing_in_95_of_100(name, measured):
    quiet = sum(not audited(SOUND[name], seed).fired for seed in range(200))
    measured(f"board audit: nothing on a sound board, {name}, of 200 >= 190", str(quiet))
    assert quiet >= 190


@pytest.mark.parametrize("name", SOUND)
def test_other_sound_boards_are_left_alone_too(name):
    """Two equal models, many ties, few judges: none of it is a defect."""
    assert not any(audited(SOUND[name], seed).fired for seed in range(3))


def test_who_is_at_fault_is_named():
    slot = audited(WORLDS["slot"], 1).of("position")
    assert slot.subject == (1,)
    assert [1, 0] not in slot.detail["reversed_pairs"]
    assert slot.detail["first_share"] == pytest.approx(0.95, abs=0.02)
    assert slot.detail["advantage"] > 0.5
    drawer = audited(WORLDS["drawer"], 1).of("ties")
    assert drawer.subject == (4, 3)
    assert drawer.detail["drawer"] == 4
    circle = audited(WORLDS["circle"], 1).of("intransitive")
    assert circle.subject in {(1, 2, 3), (2, 3, 1), (3, 1, 2)}
    assert circle.detail["circle_lower"] < 0.8 < circle.detail["circle_upper"]
    halves = audited(WORLDS["halves"], 1).of("disconnected")
    assert set(halves.subject) in ({0, 1, 2}, {3, 4, 5})
    assert halves.effect == 3
    assert audited(WORLDS["top"], 1).of("coverage").subject == (5,)
    opinion = audited(WORLDS["opinion"], 1).of("judge_influence")
    assert opinion.subject == (0, 3)
    assert opinion.effect > 0
    assert audited(WORLDS["handful"], 1).of("clustered").detail["by"] == "judge"


# --- what is no defect -----------------------------------------------------------------------------


def test_an_advantage_of_the_first_place_moves_nothing_where_order_is_a_coins():
    found = audited(replace(World(), order=1.0), 1).of("position")
    assert found.detail["advantage_lower"] > 0.6
    assert not found.fires


def test_votes_on_the_same_answers_are_not_taken_for_a_circle():
    """Each pair has its own few items, and six votes on each: then pairs differ by their items."""
    world = World(n_voters=3, taste=0.0, n_items=2000, quality=1.0, together=6)
    found = [audited(world, seed).of("intransitive") for seed in range(5)]
    assert not any(each.fires for each in found)
    assert {each.detail["one_each_of"] for each in found} == {"item"}


def test_ties_and_careless_votes_between_unequal_models_are_no_circle():
    """Half wins and votes at random bend the curve of chances; that turns nobody around."""
    found = audited(replace(World(), tied=0.4, spread=2.0), 1).of("intransitive")
    assert not found.fires
    rng = np.random.default_rng(5)
    votes = replace(World(), tied=0.0, spread=2.5, n_votes=12_000).draw(rng)
    votes.outcome[rng.random(len(votes)) < 0.1] = 0.0
    votes.outcome[rng.random(len(votes)) < 0.1] = 1.0
    assert not audit(votes, n_models=6, rng=rng).of("intransitive").fires


def test_one_model_that_all_are_held_against_is_no_lack_of_coverage():
    rng = np.random.default_rng(2)
    n = 3000
    other = rng.integers(1, 5, n)
    turned = rng.random(n) < 0.5
    left, right = np.where(turned, other, 0), np.where(turned, 0, other)
    votes = table(left, right, rng.random(n) < 0.5)
    found = audit(votes, n_models=5, rng=rng)
    assert not found.of("coverage").fires
    assert "alone decides" in found.of("intransitive").reason


def test_a_list_sorted_by_name_says_nothing_about_the_first_place():
    votes = MODERATE.draw(np.random.default_rng(1))
    is_turned = votes.left > votes.right
    of_name = replace(
        votes,
        left=np.minimum(votes.left, votes.right),
        right=np.maximum(votes.left, votes.right),
        outcome=np.where(is_turned, 1 - votes.outcome, votes.outcome),
    )
    found = audit(of_name, n_models=6, rng=np.random.default_rng(1)).of("position")
    assert np.isnan(found.effect)
    assert not found.fires
    assert "order" in found.reason


# --- what a prior alone holds ----------------------------------------------------------------------


def joined(votes):
    """Add a seventh model that wins all of its 60 votes, before two judges."""
    turn = np.arange(60)
    return both(votes, table(np.full(60, 6), turn % 6, np.ones(60), judge=turn % 2))


def test_who_has_merely_won_all_is_no_lack_of_coverage():
    """A seventh that wins all of its votes changes nothing, up to what a weak prior shrinks."""
    rng = np.random.default_rng(1)
    votes = MODERATE.draw(rng)
    plain = audit(votes, n_models=6, rng=rng).of("coverage")
    found = audit(joined(votes), n_models=7, rng=rng).of("coverage")
    assert found.subject == plain.subject
    assert (found.effect, found.upper) == pytest.approx((plain.effect, plain.upper), rel=1e-3)
    assert (found.detail["left_out"], plain.detail["left_out"]) == (60, 0)
    assert {**found.detail, "left_out": 0} == plain.detail


def test_who_has_merely_won_all_hides_no_judge_and_is_moved_by_none():
    """A judge of another opinion is still found, by the models whose gaps are finite."""
    rng = np.random.default_rng([1, 3])
    votes = WORLDS["opinion"].draw(rng)
    plain = audit(votes, n_models=6, rng=rng).of("judge_influence")
    found = audit(joined(votes), n_models=7, rng=rng).of("judge_influence")
    assert found.fires
    assert found.subject == plain.subject
    assert found.effect == pytest.approx(plain.effect, rel=1e-2)


@pytest.mark.parametrize("n", [1, 40])
def test_of_one_separated_pair_no_cost_is_known(n):
    votes = table([0] * n, [1] * n, [1.0] * n, judge=np.arange(n) % 2)
    found = audit(votes, n_models=2, rng=np.random.default_rng(0))
    detail = found.of("neighbours_open").detail
    assert detail["open_together"] == detail["not_estimable"] == int(n == 1)
    if n == 1:
        assert detail["more_to_settle"] is None
        assert detail["more_to_prove"] is None
    for kind in ("coverage", "judge_influence"):
        assert "finite" in found.of(kind).reason


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_thin_boards_have_no_interval_of_no_width(seed):
    """Many models, few votes, one judge with nearly half: most gaps are a prior's."""
    rng = np.random.default_rng(seed)
    left = rng.integers(0, 30, 60)
    right = (left + rng.integers(1, 30, 60)) % 30
    votes = table(left, right, rng.integers(0, 2, 60), judge=rng.integers(0, 3, 60))
    found = audit(votes, n_models=30, rng=rng)
    for kind in ("coverage", "judge_influence"):
        one = found.of(kind)
        assert one.reason or one.upper > one.lower


def test_groups_that_nothing_connects_are_not_set_beside_each_other():
    """Each sure of its own order: one tier, and coverage against the own group alone."""
    rng = np.random.default_rng(3)
    few, many = (replace(World(), n_votes=n, tied=0.0).draw(rng) for n in (600, 9000))
    votes = both(few, replace(many, left=many.left + 6, right=many.right + 6))
    found = audit(votes, n_models=12, rng=rng)
    assert found.of("disconnected").fires
    assert set(found.of("neighbours_open").detail["tiers"]) == {1}
    assert not found.of("coverage").fires
    pairs = found.of("position").detail["reversed_pairs"]
    assert all((a < 6) == (b < 6) for a, b in pairs)


# --- figures ---------------------------------------------------------------------------------------


def test_so_many_more_comparisons_do_settle_the_neighbours():
    """The open pairs get what the audit says; then nothing material is open."""
    rng = np.random.default_rng(4)
    votes = WORLDS["scarce"].draw(rng)
    before = audit(votes, n_models=6, rng=rng, price=1_500_000).of("neighbours_open")
    more = before.detail["more_to_settle"]
    assert before.detail["price_to_settle"] == more * 1_500_000
    assert before.detail["settle_by"] == "pairs"
    pairs = np.array(before.detail["open_pairs"])
    own = pairs[rng.integers(0, len(pairs), more)]
    turned = rng.random(more) < 0.5
    theta = np.linspace(1.2, -1.2, 6)
    left, right = np.where(turned, own.T[::-1], own.T)
    won = rng.random(more) < 1 / (1 + np.exp(theta[right] - theta[left]))
    grown = both(votes, table(left, right, won, judge=rng.integers(0, 300, more)))
    after = audit(grown, n_models=6, rng=rng).of("neighbours_open")
    assert not after.fires
    assert after.effect < 1.2 * MATERIAL_GAP


def test_votes_that_hang_together_take_as_many_more():
    """Each vote six times over: six times as many are needed, up to rounding and ties of strengths."""
    rng = np.random.default_rng(4)
    votes = replace(World(), n_votes=300, tied=0.0).draw(rng)
    votes = replace(votes, item=np.arange(300), judge=np.zeros(300, dtype=np.int64))
    six = votes.take(np.repeat(np.arange(300), 6))
    once, often = (
        audit(each, n_models=6, rng=np.random.default_rng(1)).of("neighbours_open").detail
        for each in (votes, six)
    )
    assert once["open_together"] == often["open_together"]
    assert often["more_to_settle"] == pytest.approx(6 * once["more_to_settle"], rel=0.1)


def test_names_of_models_do_not_matter():
    votes = WORLDS["slot"].draw(np.random.default_rng(8))
    names = np.array([3, 5, 0, 1, 4, 2])
    renamed = replace(votes, left=names[votes.left], right=names[votes.right])
    one, other = (audit(v, n_models=6, rng=np.random.default_rng(1)) for v in (votes, renamed))
    for a, b in zip(one.findings, other.findings, strict=True):
        if a.kind is not Kind.INTRANSITIVE:  # simulated
            assert (a.effect, a.lower) == pytest.approx((b.effect, b.lower), rel=0.03, nan_ok=True)
    assert other.of("position").subject == (int(names[one.of("position").subject[0]]),)


def test_a_watched_board_has_wider_intervals():
    at_end, watched = (audited(MODERATE, 3, is_watched=w) for w in (False, True))
    for kind in ("position", "coverage", "clustered", "judge_influence"):
        a, b = at_end.of(kind), watched.of(kind)
        assert b.upper - b.lower > a.upper - a.lower
    assert (
        watched.of("neighbours_open").detail["rank_upper"]
        >= at_end.of("neighbours_open").detail["rank_upper"]
    )


def test_leaving_a_judge_out_is_exact():
    rng = np.random.default_rng(1)
    votes = WORLDS["opinion"].draw(rng)
    found = audit(votes, n_models=6, rng=rng).of("judge_influence")
    from estimators.bt_model import fit_bradley_terry  # noqa: PLC0415  # the reference alone

    def theta(of):
        return fit_bradley_terry(of.left, of.right, of.outcome, n_models=6, order_effect=True).theta

    moved = theta(votes) - theta(votes.take(votes.judge != 0))
    assert found.effect == pytest.approx(moved[3], abs=1e-6)
    assert found.detail["share"] == pytest.approx((votes.judge == 0).mean())


def test_without_votes_nothing_is_said():
    nothing = table([], [], [])
    nothing = replace(nothing, left=nothing.left.astype(int), right=nothing.right.astype(int))
    found = audit(nothing, n_models=3, rng=np.random.default_rng(0))
    assert [each.kind for each in found.findings] == list(Kind)
    assert not found.fired
    assert all(each.reason for each in found.findings)


def test_clusters_have_to_be_as_many_as_votes():
    with pytest.raises(ValueError, match="cluster"):
        audited(MODERATE, 1, cluster=np.zeros(3))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_board_of_any_few_votes_is_audited(data):
    """Separated, disconnected, tied throughout: there is always an answer, and intervals hold it."""
    m = data.draw(st.integers(2, 5))
    models = st.integers(0, m - 1)
    pair = st.tuples(models, models).filter(lambda p: p[0] != p[1])
    rows = data.draw(
        st.lists(
            st.tuples(pair, st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 2)),
            min_size=1,
            max_size=40,
        )
    )
    votes = table(
        [p[0] for p, _, _ in rows],
        [p[1] for p, _, _ in rows],
        [y for _, y, _ in rows],
        judge=[j for _, _, j in rows],
    )
    found = audit(votes, n_models=m, rng=np.random.default_rng(0))
    assert [each.kind for each in found.findings] == list(Kind)
    for each in found.findings:
        if each.reason:
            assert np.isnan(each.effect)
            assert not each.fires
        else:
            assert each.lower <= each.effect <= each.upper


# --- recorded votes --------------------------------------------------------------------------------


def recorded(path):
    with gzip.open(path / "pairwise.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    code = {
        k: np.unique([r[k] for r in rows], return_inverse=True)[1] for k in ("item_id", "judge")
    }
    names, models = np.unique(
        [r["left"] for r in rows] + [r["right"] for r in rows], return_inverse=True
    )
    outcome = [{"left": 1.0, "tie": 0.5, "right": 0.0}[r["winner"]] for r in rows]
    votes = table(
        models[: len(rows)],
        models[len(rows) :],
        outcome,
        item=code["item_id"],
        judge=code["judge"],
    )
    return votes, len(names)


@pytest.mark.shared
def test_llmfao_has_too_few_votes_for_seventy_models(shared_data):
    votes, m = recorded(shared_data / "llmfao")
    began = time.process_time()
    found = audit(votes, n_models=m, rng=np.random.default_rng(1))
    assert time.process_time() - began < 5
    assert {each.kind for each in found.fired} == {
        Kind.NEIGHBOURS_OPEN,
        Kind.COVERAGE,
        Kind.JUDGE_INFLUENCE,
    }
    assert found.of("neighbours_open").detail["open_together"] == 69


@pytest.mark.shared
def test_llmbar_has_a_strong_advantage_of_the_first_place_that_moves_nothing(shared_data):
    """All pairs were asked in both orders; 58 evaluators judged the same 419 items."""
    votes, m = recorded(shared_data / "llmbar")
    found = audit(votes, n_models=m, rng=np.random.default_rng(1))
    position = found.of("position")
    assert position.detail["advantage_lower"] > 0.4
    assert abs(position.effect) < 0.01
    assert [each.kind for each in found.fired] == [Kind.CLUSTERED]

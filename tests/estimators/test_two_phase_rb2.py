"""Two-phase means on recorded verdicts: whether helpers pay, and whether intervals hold."""

import csv
import gzip
from collections import Counter, defaultdict, deque

import numpy as np
import pytest
from scipy.special import stdtrit

from estimators.regression import two_phase_mean
from orchestrator.core.budget import BudgetView
from orchestrator.core.events import Asked, Declined
from orchestrator.core.frame import Frame
from orchestrator.core.ids import QNo
from orchestrator.core.money import FREE, Nano, parse_usd
from orchestrator.core.ports import FINISH
from orchestrator.core.query import Judged, Kind, Observation, Query
from orchestrator.core.records import Record
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from policies.two_phase import TwoPhase, TwoPhaseConfig

pytestmark = pytest.mark.shared

JUDGES = ("gpt-5.4", "gpt-5.4-mini", "gpt-5.4-nano")
LEVEL = 0.95
VIEW = BudgetView(
    cap=None, settled=Nano(0), uncertain=Nano(0), held=Nano(0), price=lambda _: Nano(0)
)


@pytest.fixture(scope="module")
def recorded(shared_data):
    """Scores (n_questions, 4 answers, 3 judges, 8 repeats), NaN where none was parsed."""
    places = {}
    with (shared_data / "rb2_scores/items.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            places[row["item_id"]] = (row["group_id"], int(row["response_index"]))
    groups = {group: k for k, group in enumerate(dict.fromkeys(g for g, _ in places.values()))}
    scores = np.full((len(groups), 4, len(JUDGES), 8), np.nan)
    with gzip.open(shared_data / "rb2_scores/ratings.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["judge"] in JUDGES:
                group, answer = places[row["item_id"]]
                at = (groups[group], answer, JUDGES.index(row["judge"]), int(row["replicate"]))
                scores[at] = float(row["score"])
    return scores


@pytest.fixture(scope="module")
def prices(shared_data):
    with (shared_data / "rb2_scores/judges.csv").open(encoding="utf-8") as file:
        listed = {row["judge"]: row["usd_per_call"] for row in csv.DictReader(file)}
    return [parse_usd(listed[name]) for name in JUDGES]


CONTRAST = {"arm": "first", "baseline": "second"}


class Replay:
    """Serves verdicts (n_items, n_arms, n_judges) to the policy until design or money end."""

    def __init__(self, verdicts, prices, *, cap=None, seed=0, policy=TwoPhase, **keys):
        n_items, self.n_arms, n_judges = verdicts.shape
        self.verdicts, self.prices, self.cap = verdicts, prices, cap
        study = Study(
            kind=Kind.RATE,
            frame=Frame.of([str(i) for i in range(n_items)], ("first", "second")[: self.n_arms]),
            panel=tuple(
                Panelist(name=name, card=FREE, planning=price)
                for name, price in zip(JUDGES, prices, strict=True)
            ),
            criteria=(
                Criterion(name="score", scale=Scale(type=ScaleType.INTEGER, low=1, high=10)),
            ),
            seeds=Seeds(seed),
            cap=None if cap is None else Nano(cap),
        )
        config = TwoPhaseConfig(kind="two_phase", anchor=JUDGES[0], **keys)
        self.policy = policy(config, study)
        self.seen = np.full((n_items, self.n_arms, n_judges), np.nan)
        self.counts = Counter()
        self._play()

    def _play(self):
        spent, q, open_ = 0, 0, deque()
        while (proposal := self.policy.ask(VIEW)) is not FINISH:
            if isinstance(proposal, Query) and len(open_) < 4:
                price = self.prices[proposal.judge]
                if self.cap is None or spent + price <= self.cap:
                    self.policy.tell(Asked(q=QNo(q), query=proposal, hold=price))
                    open_.append((QNo(q), proposal))
                    q, spent = q + 1, spent + price
                    continue
                if not open_:
                    declined = Declined(query=proposal, hold=price, account="campaign")
                    self.policy.tell(declined)
                    continue
            self._tell(*open_.popleft())
        while open_:
            self._tell(*open_.popleft())

    def _tell(self, q, query):
        item, arm = divmod(query.units[0], self.n_arms)
        value = self.verdicts[item, arm, query.judge]
        self.seen[item, arm, query.judge] = value
        self.counts[query.judge] += 1
        said = (Observation(unit=query.units[0], value=float(value)),)
        outcome = Judged(observations=said, cost=self.prices[query.judge], usage=None)
        self.policy.tell(Record(q=q, query=query, outcome=outcome))

    def quantity(self):
        """Give what is estimated, (n_items, n_judges): differences of arms, or the one arm."""
        return self.seen[:, 0] - self.seen[:, 1] if self.n_arms == 2 else self.seen[:, 0]


def complete(verdicts):
    """Keep the items that every judge has rated in every arm."""
    return verdicts[~np.isnan(verdicts).any(axis=(1, 2))]


def answers_as_arms(recorded, repeat):
    """Answers 1 and 2 of each question as the two arms."""
    return complete(recorded[:, 1:3, :, repeat])


def answers_as_items(recorded, repeat):
    """All four answers of each question as items of one arm."""
    return complete(recorded.reshape(-1, 1, *recorded.shape[2:])[..., repeat])


@pytest.mark.parametrize("repeats", [[0, 6], pytest.param(range(8), marks=pytest.mark.slow)])
def test_helpers_pay_for_one_arms_mean_and_not_for_the_difference(
    recorded, prices, repeats, measured
):
    """Single repeats, one after the other: differences of answers 1 and 2 correlate by .71 and .50,
    scores by .86 and .71, against .81 and .54 needed."""
    n, found = len(recorded) * 4, defaultdict(list)
    for repeat in repeats:
        for name, verdicts, keys in (
            ("difference", answers_as_arms(recorded, repeat), {"contrast": CONTRAST}),
            ("mean", answers_as_items(recorded, repeat), {}),
        ):
            said = Replay(verdicts, prices, pilot_items=n, **keys).policy.explain()
            assert [t["needed"] for t in said["tried"]] == pytest.approx([0.81, 0.54], abs=0.005)
            assert [t["pays"] for t in said["tried"]] == [name == "mean"] * 2
            found[name].append([t["correlation"] for t in said["tried"]])
    assert np.mean(found["difference"], axis=0) == pytest.approx([0.71, 0.50], abs=0.015)
    assert np.mean(found["mean"], axis=0) == pytest.approx([0.86, 0.71], abs=0.01)
    for name, correlations in found.items():
        mini, nano = np.mean(correlations, axis=0)
        measured(f"rb2_scores: correlation with the anchor, {name}", f"{mini:.2f} and {nano:.2f}")


SIZES = [40, pytest.param(1000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("n_runs", [15, pytest.param(300, marks=pytest.mark.slow)])
def test_a_pilot_of_sixty_mostly_decides_as_all_items_would(recorded, prices, n_runs, measured):
    """By chance a pilot finds a helper above the bar that is below it. What that costs is judged by
    the true correlations: the variance of a plan against the anchor's alone, for the same money."""
    truth = {}
    for name, verdicts in (
        ("difference", answers_as_arms(recorded, 0)),
        ("mean", answers_as_items(recorded, 0)),
    ):
        values = verdicts[:, 0] - verdicts[:, -1] if verdicts.shape[1] == 2 else verdicts[:, 0]
        truth[name] = (verdicts, np.corrcoef(values.T))
    for name, (verdicts, correlations) in truth.items():
        n_arms, share, ratios = verdicts.shape[1], 0, []
        cap = int(prices[0] * n_arms * len(verdicts) * 0.25)
        for seed in range(n_runs):
            keys = {"contrast": CONTRAST} if n_arms == 2 else {}
            rng = np.random.default_rng(seed)
            picked = verdicts[rng.permutation(len(verdicts))]
            replay = Replay(picked, prices, cap=cap, seed=seed, **keys)
            helpers = [JUDGES.index(h) for h in replay.policy.explain()["helpers"]]
            share += bool(helpers)
            n = replay.counts[0] / n_arms
            most = max((replay.counts[j] / n_arms for j in helpers), default=n)
            r2 = explained(correlations, helpers)
            pilot = 60 * sum(prices[1:]) / prices[0]
            alone = 1 / (cap / prices[0] / n_arms - pilot)
            ratios.append(((1 - r2) / n + r2 / max(n, most)) / alone)
        measured(
            f"rb2_scores, {name}: helpers taken, variance against the anchor's, {n_runs} runs",
            f"{share / n_runs:.2f}, {np.mean(ratios):.3f}",
        )
        if name == "mean":
            assert share >= 0.95 * n_runs
            assert np.mean(ratios) < 0.9
        else:
            assert np.mean(ratios) < 1.04


def explained(correlations, helpers):
    """Give R² of the anchor on these judges."""
    if not helpers:
        return 0.0
    with_anchor = correlations[0, helpers]
    return float(with_anchor @ np.linalg.solve(correlations[np.ix_(helpers, helpers)], with_anchor))


class Insists(TwoPhase):
    """Takes the helpers in any case, so that the interval is tried where they say little."""

    def _planned(self, live):
        plan = super()._planned(live)
        if plan.helpers:
            return plan
        helpers = tuple(seat.judge for seat in live)
        money = self._money()
        return type(plan)(
            helpers=helpers, why="it insists", split=self._split(helpers, 0.5, money), r2=0.5
        )


def drawn(scores, rng):
    """Draw, for each cell, one of the repeats that it has."""
    order = np.where(np.isnan(scores), np.inf, rng.random(scores.shape))
    picked: np.ndarray = np.take_along_axis(scores, order.argmin(axis=-1)[..., None], axis=-1)
    return picked[..., 0]


def covered(value, variance, df, truth):
    return abs(value - truth) <= stdtrit(df, (1 + LEVEL) / 2) * np.sqrt(variance)


@pytest.mark.parametrize("n_runs", SIZES)
@pytest.mark.parametrize("kind", ["mean", "difference", "difference with helpers"])
def test_intervals_hold_on_recorded_verdicts(recorded, prices, kind, n_runs, measured):
    """Questions drawn anew with replacement, one random repeat a verdict, the policy run to the end
    of its money: at least 95 % of the intervals hold what the anchor says of all questions."""
    is_known = ~np.isnan(recorded).all(axis=-1)
    scores = recorded[is_known.all(axis=(1, 2))]
    says = np.nanmean(scores[:, :, 0], axis=-1)
    if kind == "mean":
        n_groups, n_arms, answers, n_alone, keys = 150, 1, slice(None), 240, {}
        expected = says.mean()
    else:
        n_groups, n_arms, answers, n_alone, keys = 400, 2, slice(1, 3), 200, {"contrast": CONTRAST}
        expected = (says[:, 1] - says[:, 2]).mean()
    cap = prices[0] * n_arms * n_alone
    policy = Insists if kind.endswith("helpers") else TwoPhase
    rng = np.random.default_rng(0)
    hits, hits_alone, ratios, with_helpers = 0, 0, [], 0
    for seed in range(n_runs):
        verdicts = drawn(scores[rng.integers(0, len(scores), n_groups), answers], rng)
        replay = Replay(
            verdicts.reshape(-1, n_arms, len(JUDGES)),
            prices,
            cap=cap,
            seed=seed,
            policy=policy,
            **keys,
        )
        values = replay.quantity()
        cluster = np.repeat(np.arange(n_groups), len(values) // n_groups)
        found = two_phase_mean(values[:, 0], values[:, 1:], np.ones(len(values)), cluster)
        alone = found.alone
        assert not found.is_thin(9)
        with_helpers += found.uses_helpers
        hits += covered(found.value, found.variance, found.df, expected)
        hits_alone += covered(alone.mean, alone.variance, alone.df, expected)
        # Against the anchor alone for the same money, which would have reached more items.
        ratios.append(found.variance / (alone.variance * found.n_anchored / n_alone))
    error = np.sqrt(LEVEL * (1 - LEVEL) / n_runs)
    measured(
        f"rb2_scores: two-phase coverage {LEVEL}, {kind}, {n_runs} replays",
        f"{hits / n_runs:.3f}; anchor alone {hits_alone / n_runs:.3f}; variance against the "
        f"anchor's for the same money {np.mean(ratios):.2f}; helpers in {with_helpers / n_runs:.2f}",
    )
    assert hits / n_runs >= LEVEL - 3 * error
    assert hits_alone / n_runs >= LEVEL - 3 * error
    assert (np.mean(ratios) < 1) == (kind == "mean")

"""The composition root: from a campaign file to all that the engine is handed.

Everything that can be wrong is found here, before a run directory exists and before anything is
spent. Nothing below this floor knows concrete classes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from hashlib import blake2b, sha256
from importlib.util import find_spec
from itertools import combinations, islice
from typing import TYPE_CHECKING, TypeVar, assert_never

import anyio
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from estimators.benchmark_order import allocation_of, item_orders
from judges.bounds import input_bound
from judges.own_loop import OwnLoopJudge
from judges.rubrics.ids import MOST_UNITS
from orchestrator import covariates
from orchestrator.access import account, base_url, plain, signature
from orchestrator.campaign_file import LIVE, Campaign, Rates, System, Task
from orchestrator.campaign_file import Judge as JudgeEntry
from orchestrator.config import CampaignFile, in_order
from orchestrator.consistency import disagreements
from orchestrator.core.answers import Answers
from orchestrator.core.batches import batches_per_look, most_batches
from orchestrator.core.errors import (
    BudgetTooSmall,
    ConfigError,
    InvalidCampaign,
    Problem,
    UnpricedModel,
)
from orchestrator.core.estimate import Estimate
from orchestrator.core.events import Opened
from orchestrator.core.frame import CANDIDATE, Frame
from orchestrator.core.gate import Gate
from orchestrator.core.ids import JudgeIx, UnitIx
from orchestrator.core.judge import Judge, Limits, Timeouts
from orchestrator.core.money import Nano, PriceCard, ceiling_cost, cost, format_usd, parse_usd
from orchestrator.core.ports import Adapter, Decoding, Estimator, JudgeSetting, Policy, Rubric
from orchestrator.core.query import Kind, Query, Role
from orchestrator.core.records import Record
from orchestrator.core.scale import Criterion
from orchestrator.core.seeds import Seeds
from orchestrator.core.stopping import StopRule
from orchestrator.core.study import Panelist, Study
from orchestrator.core.wire import FIRST_ATTEMPT, Chat, Json, Route, Usage
from orchestrator.data import Dataset, read_data, sample
from orchestrator.engine.crew import Crew, Memory
from orchestrator.engine.decide import Decline, decide
from orchestrator.engine.fold import State
from orchestrator.engine.scheduler import Operation
from orchestrator.engine.sequencer import Delivery
from orchestrator.gates import Comparison, misfits, resolved
from orchestrator.keys import key_of
from orchestrator.labels import HumanLabels, digest_of, read_labels
from orchestrator.planned import refused
from orchestrator.prices import Price, per_call, resolve
from orchestrator.prior import Into, Prior, read_prior
from orchestrator.registry import check_packages, find
from orchestrator.task import (
    KEY,
    CheckTask,
    ColumnStep,
    CompareTask,
    JudgeStep,
    MatchStep,
    RateBatchTask,
    RateTask,
)
from orchestrator.wording import seen
from policies.batch_design import BatchDesignConfig, length_of_block
from policies.generating import Generating
from policies.subsample import SubsampleConfig

if TYPE_CHECKING:
    from orchestrator.recordings import Source

COMPANY_S = 0.005
"""How long a busy turn waits for more arrivals to share its commit."""

WINDOW_PER_CALL = 4
"""The default window, in multiples of the calls that the file allows at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A campaign that can be run.

    `frame` is the blob that names items, arms and groups, so that a report needs only the log.
    `truth` (n_units,) float64 is the known truth of mock campaigns, None where the data hold none.
    `memory` makes the cache of a run that was opened at a time (POSIX seconds), None without one.
    `asked` are all who can be asked, as in `crew.judges`, with their prices. `estimators_without` makes
    the estimators for a run, by its cap, in which a judge tells nothing.
    """

    file: CampaignFile
    crew: Crew
    study: Study
    asked: tuple[Panelist, ...]
    prices: tuple[Price, ...]
    frame: bytes
    warnings: tuple[Problem, ...]
    is_mock: bool
    estimators_without: Callable[[Nano | None, int], tuple[Estimator, ...]]
    truth: NDArray[np.float64] | None = None
    memory: Callable[[float], Memory] | None = None

    @property
    def name(self) -> str:
        """The campaign's name."""
        return self.file.campaign.name

    @property
    def entries(self) -> tuple[JudgeEntry, ...]:
        """The entries of all who can be asked, judges and then systems, as in `crew.judges`."""
        return self.file.campaign.asked

    def manifest(self) -> dict[str, Json]:
        """Say what the run is made from: the identity, prices and where they come from."""
        opened = self.crew.opened
        return {
            "identity": dict(opened.identity),
            "digest": opened.digest,
            "window": opened.window,
            "prices": {
                judge.name: {
                    "pico_usd_per_token": dict(
                        zip(PriceCard.__slots__, price.card.rates, strict=True)
                    ),
                    "source": price.source,
                    "notes": list(price.notes),
                }
                for judge, price in zip(self.crew.judges, self.prices, strict=True)
            },
        }

    def resolved(self) -> str:
        """Write the campaign file with all defaults and overrides in place."""
        return self.file.resolved_yaml()

    def operation(self, max_in_flight: int | None = None) -> Operation:
        """Give how the campaign is carried out; `-j` bounds the calls at a time.

        Raises
        ------
        ConfigError
            `max_in_flight` is no positive whole number.
        """
        if max_in_flight is not None and not (isinstance(max_in_flight, int) and max_in_flight > 0):
            raise ConfigError(f"max_in_flight: wants a whole number above 0, not {max_in_flight!r}")
        campaign = self.file.campaign
        return Operation(
            max_in_flight=max_in_flight,
            grace_s=campaign.shutdown.grace,
            company_s=COMPANY_S,
            wall_clock_s=campaign.budget.wall_clock,
            may_thread=True,
            takes_signals=True,
            clock=_loop_clock(),
        )


def _loop_clock() -> Callable[[], float]:
    """Take the clock that the running loop counts deadlines by; asyncio's is the cheap one."""
    before, now, after = time.monotonic(), anyio.current_time(), time.monotonic()
    return time.monotonic if before <= now <= after else anyio.current_time


def build(
    file: CampaignFile,
    *,
    mock: bool = False,
    limit: int | None = None,
    own_loop: bool = False,
    is_to_start: bool = True,
) -> Blueprint:
    """Make a campaign ready to run.

    `mock` puts a mock judge in the place of every judge; `limit` takes a random sample of the
    items. With `own_loop` the user's own loop calls the judges, so any adapter will do. What is not
    to start may have too little money for its policy.

    Raises
    ------
    InvalidCampaign
        Data, rubric, judges or plug-ins do not fit; or the file asks for what is not built yet.
    UnpricedModel, BudgetTooSmall, ShadowedPackage
    """
    check_packages()
    campaign, is_built = file.campaign, not refused(file)
    problems = _Problems([*refused(file), *_absent(file)])
    read = problems.of(
        lambda: read_data(
            campaign.data,
            base=file.path.parent,
            truth=campaign.truth_column,
            numbers=covariates.columns(campaign.estimate, campaign.policy),
            systems=[system.name for system in campaign.systems],
            locate=file.locate,
        )
    )
    if read is None:
        raise problems.refusal(file)
    seeds, criteria = Seeds(campaign.seed), campaign.task.criteria_values()
    labels = problems.of(lambda: _labels(file, read, criteria))
    data = read if limit is None else sample(read, limit, seeds=seeds)
    if not campaign.is_generating:
        problems += _disagreements(file, data)
    prior = problems.of(lambda: _prior(file, data, criteria)) or Prior()
    measured = covariates.measured(campaign.estimate, campaign.policy, data)
    routes = problems.of(lambda: _routes(file))
    if routes is None or not is_built:
        raise problems.refusal(file)
    answers = _answers(campaign, data)
    fields = data.fields if answers is None else answers
    rubrics = problems.of(lambda: _rubrics(file, routes, criteria, seeds, data.frame, fields))
    if rubrics is None:
        raise problems.refusal(file)
    prices = problems.of(lambda: _prices(file, rubrics, data.frame, mock=mock))
    if prices is None:
        raise problems.refusal(file)
    kinds = {_adapter_of(entry, mock=mock) for entry in campaign.asked}
    is_mock = "mock" in kinds and kinds <= MADE_UP
    panel = problems.of(lambda: _panel(file, prices, rubrics, data, answers, mock=mock))
    if panel is None:
        raise problems.refusal(file)
    study = Study(
        kind=kind_of(campaign, 0),
        frame=data.frame,
        panel=panel if campaign.is_generating else panel[: len(campaign.judges)],
        criteria=criteria,
        seeds=seeds,
        labels=None if labels is None else labels.of(data.frame),
        orders=getattr(campaign.task, "order", "both"),
        prior=prior.records,
        covariates=measured,
    )
    made = problems.of(lambda: _adapters(file, routes, study, data, mock=mock, own_loop=own_loop))
    analysis = problems.of(lambda: _analysis(file, study))
    if problems and analysis is not None:
        problems += [*_unbuildable(file, study, analysis, known=problems)]
    if problems or made is None or analysis is None:
        raise problems.refusal(file)
    adapters, dropped = made
    judges = tuple(
        _judge(*parts, mock=mock)
        for parts in zip(campaign.asked, rubrics, adapters, routes, strict=True)
    )
    frame = _frame_document(data)
    opened = _opened(
        file,
        study,
        prices,
        routes,
        data,
        frame,
        analysis.gates,
        prior,
        mock=mock,
        is_mock=is_mock,
    )
    if own_loop:
        opened = _told_by_loop(opened)
    crew = _crew(file, opened, judges, study, analysis, answers)
    if is_to_start:
        _check_start(file, crew, study, analysis)
    return Blueprint(
        file=file,
        crew=crew,
        study=study,
        asked=panel,
        prices=prices,
        frame=frame,
        warnings=(
            *file.warnings,
            *data.warnings,
            *(() if labels is None else labels.warnings),
            *prior.warnings,
            *_cautions(file, data, rubrics[: len(campaign.judges)]),
            *dropped,
        ),
        is_mock=is_mock,
        estimators_without=lambda cap, judge: tuple(
            make(replace(study, cap=cap), judge) for make in analysis.estimators
        ),
        truth=data.truth,
        memory=None
        if own_loop or campaign.cache is None
        else partial(_memory, file, judges, criteria, data),
    )


def _memory(
    file: CampaignFile,
    judges: Sequence[Judge],
    criteria: Sequence[Criterion],
    data: Dataset,
    opened_at: float,
) -> Memory:
    """Open the cache, for a run that was opened at a time (POSIX seconds)."""
    from orchestrator.caching import About, Cache, CachedVerdicts  # noqa: PLC0415  # if wanted

    campaign, wanted = file.campaign, file.campaign.cache
    assert wanted is not None
    return CachedVerdicts(
        Cache(wanted.dir, max_age_s=wanted.max_age, recheck=wanted.recheck),
        judges,
        [
            About(
                adapter=entry.adapter,
                model=entry.model,
                base_url=base_url(entry, os.environ) or "",
            )
            for entry in campaign.asked
        ],
        criteria,
        data.fields,
        systems=[system.name for system in campaign.systems],
        seed=campaign.seed,
        opened_at=opened_at,
        keeps_text=campaign.output.keep.replies == "full",
    )


def _prior(file: CampaignFile, data: Dataset, criteria: Sequence[Criterion]) -> Prior:
    """Read the judgments of earlier runs."""
    campaign = file.campaign
    into = Into(
        kind=Kind(campaign.task.kind),
        frame=data.frame,
        judges=[judge.name for judge in campaign.judges],
        criteria=[criterion.name for criterion in criteria],
    )
    return read_prior(campaign.data.prior_judgments, into, locate=file.locate)


def _labels(file: CampaignFile, data: Dataset, criteria: Sequence[Criterion]) -> HumanLabels | None:
    spec = file.campaign.labels
    if spec is None:
        return None
    return read_labels(spec, data.frame, criteria, base=file.path.parent, locate=file.locate)


T = TypeVar("T")


class _Problems(list[Problem]):
    """What is wrong so far, while all that does not hang on it is still looked at."""

    def of(self, make: Callable[[], T]) -> T | None:
        """Make something, or take in what is wrong with it."""
        try:
            return make()
        except InvalidCampaign as exc:
            self += exc.problems
            return None

    def refusal(self, file: CampaignFile) -> InvalidCampaign:
        """Make the error that names them all, in the order of the file."""
        return InvalidCampaign(in_order(self, str(file.path)))


def _disagreements(file: CampaignFile, data: Dataset) -> Iterator[Problem]:
    """Name the fields that don't go with the units that there are."""
    sections = {name: getattr(file.campaign, name) for name in type(file.campaign).model_fields}
    for at, message in disagreements(sections | {"frame": data.frame}):
        yield file.locate(at, message)


def _cautions(file: CampaignFile, data: Dataset, rubrics: Sequence[Rubric]) -> Iterator[Problem]:
    """Name what is allowed and probably not meant, now that the data are known."""
    if file.campaign.task.kind == "compare":
        yield from _cautions_of_comparisons(file, data, rubrics)
    stop, n_items = file.campaign.stop, data.frame.n_items
    reads_looks = stop.target_half_width is not None or stop.when != "target"
    if reads_looks and _fewest_items(file, n_items) > n_items:
        message = f"{stop.min_items} is more than the {n_items} items: no look can end the run"
        yield file.locate("stop.min_items", message)
    yield from _cautions_of_numbers(file, n_items)
    design, frame = file.campaign.policy.settings, data.frame
    if not isinstance(design, BatchDesignConfig):
        return
    size, n_groups = design.batch_size or frame.n_units, len(frame.groups or frame.arms)
    if design.balance == "group" and size < n_groups:
        message = f"batches of {size} can't hold each of {n_groups} groups, so some lack some"
        yield file.locate("policy.balance", message)
    for ix, judge in enumerate(file.campaign.judges):
        room = judge.params.max_output_tokens
        if judge.adapter in LIVE and room < FEWEST_PER_VERDICT * size:
            message = f"{room:,} are too few for {size} verdicts: answers would be cut"
            yield file.locate(f"judges[{ix}].params.max_output_tokens", message)


def _cautions_of_numbers(file: CampaignFile, n_items: int) -> Iterator[Problem]:
    """Name the numbers of items that are more than there are."""
    campaign = file.campaign
    given = {"policy.max_items": getattr(campaign.policy.settings, "max_items", None)}
    for index, entry in enumerate(campaign.estimate):
        look = getattr(entry.settings, "last_look", None)
        given[f"estimate[{index}].last_look.items"] = getattr(look, "items", None)
    for key, n in given.items():
        if n is not None and n > n_items:
            yield file.locate(key, f"{n:,} is more than the {n_items:,} items")


def _cautions_of_comparisons(
    file: CampaignFile, data: Dataset, rubrics: Sequence[Rubric]
) -> Iterator[Problem]:
    from judges.rubrics.compare import count_unlike  # noqa: PLC0415  # as the rubrics

    n_items, n_arms = data.frame.n_items, data.frame.n_arms
    entries = file.campaign.estimate
    models_order = any(getattr(entry.settings, "order_effect", False) for entry in entries)
    if getattr(file.campaign.task, "order", None) == "single" and n_arms == 2 and models_order:
        first = seen(data.frame.arms[0])
        message = (
            f"{first} is always shown first, so what the place does can't be told from what it is; "
            "wants both or balanced_random, or order_effect: false in estimates"
        )
        yield file.locate("task.order", message)
    for name in dict.fromkeys(name for r in rubrics for name in getattr(r, "shown_of_each", ())):
        n_unlike = count_unlike(data.fields, name, n_arms)
        if name != CANDIDATE and 0 < n_unlike <= FEW_UNLIKE * n_items:
            message = (
                f"{name} differs between arms in {n_unlike} of {n_items} items, so in all of them "
                "judges are shown it twice, once with each answer"
            )
            yield file.locate(f"data.fields.{name}", message)


FEW_UNLIKE = 0.1
"""Share of the items in which a field that arms hardly differ in does so by mistake, probably."""


def _absent(file: CampaignFile) -> Iterator[Problem]:
    """Name what an output needs and the environment lacks, before money is spent on it."""
    if "parquet" in file.campaign.output.formats and find_spec("pyarrow") is None:
        yield file.locate(
            "output.formats", "parquet needs pyarrow: pip install 'sortition[parquet]'"
        )


# --- judges ------------------------------------------------------------------------------------


def _routes(file: CampaignFile) -> tuple[Route, ...]:
    """Choose how each judge gives its verdict."""
    from judges.capabilities import resolve_route  # noqa: PLC0415  # as the adapters

    routes, problems = [], []
    campaign = file.campaign
    for ix, entry in enumerate(campaign.judges):
        wanted = campaign.task.output.route
        try:
            routes.append(resolve_route(entry.adapter, entry.model, wanted, decoding_of(entry)))
        except ValueError as exc:
            problems.append(file.locate(f"judges[{ix}].model", f"task.output.route: {exc}"))
    routes += [Route.TEXT] * len(campaign.systems)  # a system says what it likes
    if problems:
        raise InvalidCampaign(problems)
    return tuple(routes)


def decoding_of(entry: JudgeEntry) -> Decoding:
    """Say how a judge's model is to choose its words."""
    params = entry.params
    return Decoding(
        temperature=params.temperature,
        top_p=params.top_p,
        seed=params.seed,
        extra=params.extra,
        is_strict=entry.strict_params,
    )


def _prices(
    file: CampaignFile, rubrics: Sequence[Rubric], frame: Frame, *, mock: bool
) -> tuple[Price, ...]:
    now, campaign = datetime.now(UTC), file.campaign
    prices, problems = [], []
    for ix, entry in enumerate(campaign.asked):
        try:
            price = _price(entry, now, mock=mock)
            if price.by_length:
                longest = _longest(rubrics[ix], kind_of(campaign, ix), frame)
                price = _price(entry, now, mock=mock, max_input_tok=longest)
            prices.append(price)
        except UnpricedModel as exc:
            problems.append(file.locate(f"{campaign.place(ix)}.price_usd_per_1m", str(exc)))
    if problems:
        raise InvalidCampaign(problems)
    return tuple(prices)


def kind_of(campaign: Campaign, ix: int) -> Kind:
    """Say what a judge or system is asked for."""
    return Kind(campaign.task.kind) if ix < len(campaign.judges) else Kind.GENERATE


def _longest(rubric: Rubric, kind: Kind, frame: Frame) -> int:
    """Bound the input tokens of the longest question; a batch holds the whole pool at most."""
    return max(input_bound(rubric.render(query, FIRST_ATTEMPT)) for query in questions(kind, frame))


def questions(kind: Kind, frame: Frame, size: int | None = None) -> Iterator[Query]:
    """Give questions about all units, each once; comparisons of all pairs of an item's arms."""
    if kind is Kind.COMPARE:
        for item in range(frame.n_items):
            for arms in combinations(range(frame.n_arms), 2):
                pair = tuple(frame.unit(item, arm) for arm in arms)
                yield Query(kind=kind, judge=JudgeIx(0), units=pair)
        return
    n_units = frame.n_units
    size = min(size or n_units, MOST_UNITS) if kind is Kind.RATE_BATCH else 1
    for begin in range(0, n_units - size + 1, size):
        units = tuple(map(UnitIx, range(begin, begin + size)))
        yield Query(kind=kind, judge=JudgeIx(0), units=units)


def _price(
    entry: JudgeEntry, now: datetime, *, mock: bool, max_input_tok: int | None = None
) -> Price:
    if entry.is_by_call and not mock:
        return per_call(parse_usd(entry.own_settings.usd_per_call))
    given = entry.price_usd_per_1m
    return resolve(
        given if isinstance(given, str) else _card(given),
        judge=entry.name,
        adapter=entry.adapter,
        model=entry.model,
        base_url=base_url(entry, os.environ),
        at=now,
        max_input_tok=max_input_tok,
        mock=mock,
    )


def _card(rates: Rates) -> PriceCard:
    """Take a class without a price of its own at the price of plain input."""
    cached, write_5m = rates.cached_input, rates.cache_write_5m
    write_1h = rates.cache_write_1h
    return PriceCard(
        input=rates.input,
        cached_input=rates.input if cached is None else cached,
        cache_write_5m=rates.input if write_5m is None else write_5m,
        cache_write_1h=rates.input if write_1h is None else write_1h,
        output=rates.output,
    )


BYTES_PER_TOKEN = 4
"""Of prose in English, about; for what is expected of prompts, never for what is held."""

TOKENS_PER_VERDICT = 20
"""Of a unit in a batch: its id, its verdict and the marks around them."""

FEWEST_PER_VERDICT = 10
"""Tokens that these hardly ever go without."""


def _typical(
    file: CampaignFile,
    ix: int,
    rubrics: Sequence[Rubric],
    data: Dataset,
    answers: Answers | None,
    *,
    mock: bool,
) -> Usage | None:
    """Expect the tokens of a live judge's call, by the words of up to fifty questions."""
    if mock or not data.fields:
        return None
    kind = kind_of(file.campaign, ix)
    size = getattr(file.campaign.policy.settings, "batch_size", None)
    asked = [*islice(questions(kind, data.frame, size), 50)]
    if not asked:
        return None
    if answers is not None:
        for unit in {unit for query in asked for unit in query.units}:
            system = file.campaign.systems[data.frame.arm_of(unit)]
            answers.take(unit, "x" * BYTES_PER_TOKEN * _expected(system, None).output_tok)
    n_bytes = [input_bound(rubrics[ix].render(query, FIRST_ATTEMPT)) for query in asked]
    if answers is not None:
        answers.clear()
    n_out = TOKENS_PER_VERDICT * len(asked[0].units) if kind is Kind.RATE_BATCH else 0
    return Usage(input_tok=round(sum(n_bytes) / len(n_bytes) / BYTES_PER_TOKEN), output_tok=n_out)


def _panel(
    file: CampaignFile,
    prices: Sequence[Price],
    rubrics: Sequence[Rubric],
    data: Dataset,
    answers: Answers | None,
    *,
    mock: bool,
) -> tuple[Panelist, ...]:
    panel, problems = [], []
    for ix, (entry, price) in enumerate(zip(file.campaign.asked, prices, strict=True)):
        typical = _typical(file, ix, rubrics, data, answers, mock=mock)
        try:
            panel.append(_panelist(entry, price, typical, mock=mock))
        except InvalidCampaign as exc:
            problems += [_placed(file, ix, problem) for problem in exc.problems]
    if problems:
        raise InvalidCampaign(problems)
    return tuple(panel)


def _panelist(entry: JudgeEntry, price: Price, typical: Usage | None, *, mock: bool) -> Panelist:
    repeats = None
    if entry.adapter == "recorded" and not mock:
        from judges.recorded import repeats as recorded_repeats  # noqa: PLC0415  # only if named

        repeats = recorded_repeats(entry.recorded, _source(entry).recording)
    is_measured = entry.adapter in LIVE and entry.mock is None and not mock
    expected = _expected(entry, typical if is_measured else None)
    n_in = expected.input_tok * (BYTES_PER_TOKEN if is_measured else 1)
    return Panelist(
        name=entry.name,
        card=price.card,
        planning=Nano(entry.planning_usd_per_call or 0)
        if price.card.is_free
        else cost(expected, price.card),
        worst=ceiling_cost(n_in, entry.params.max_output_tokens, price.card),
        repeats=repeats,
        cap=None if entry.budget_usd is None else Nano(entry.budget_usd),
    )


def _expected(entry: JudgeEntry, typical: Usage | None) -> Usage:
    """Expect the tokens of one call: of a live judge by its prompts, of any other by its mock."""
    tokens = (entry.mock or find("judges", "mock").config()).tokens
    n_in, n_out = tokens.input, tokens.output
    if typical is not None:
        n_in, n_out = typical.input_tok, max(n_out, typical.output_tok)
    return Usage(input_tok=n_in, output_tok=entry.assume.output_tokens or n_out)


def _judge(
    entry: JudgeEntry, rubric: Rubric, adapter: Adapter, route: Route, *, mock: bool
) -> Judge:
    limits, timeouts = entry.limits, entry.timeouts
    is_mock = mock or entry.adapter == "mock"
    has_rates = not is_mock or (entry.mock is not None and entry.mock.realtime)
    return Judge(
        name=entry.name,
        rubric=rubric,
        adapter=adapter,
        limits=Limits(
            concurrency=limits.concurrency,
            rpm=limits.rpm if has_rates else None,
            input_tpm=limits.input_tpm if has_rates else None,
            output_tpm=limits.output_tpm if has_rates else None,
        ),
        timeouts=Timeouts(
            attempt_s=timeouts.attempt,
            answer_s=timeouts.answer,
            patience_s=timeouts.patience,
            max_wait_s=timeouts.max_wait,
        ),
        max_attempts=entry.max_attempts,
        account=account(entry, os.environ),
        model=entry.model,
        route=route,
        signature=signature(entry, route, os.environ, mock=mock),
    )


def _adapters(
    file: CampaignFile,
    routes: Sequence[Route],
    study: Study,
    data: Dataset,
    *,
    mock: bool,
    own_loop: bool,
) -> tuple[list[Adapter], list[Problem]]:
    """Make the adapters; name the parameters that models don't take, and that are left out."""
    adapters: list[Adapter] = []
    dropped, problems = [], []
    for ix, entry in enumerate(file.campaign.asked):
        if own_loop:
            adapters.append(OwnLoopJudge())
            continue
        place = file.campaign.place(ix)
        try:
            adapters.append(
                _adapter(file.campaign, JudgeIx(ix), routes[ix], study, data, mock=mock)
            )
        except InvalidCampaign as exc:
            problems += [_placed(file, ix, problem) for problem in exc.problems]
        except ConfigError as exc:
            problems.append(file.locate(f"{place}.params", str(exc)))
        else:
            flags = getattr(adapters[-1], "flags", ())
            if names := [flag.removeprefix("dropped:") for flag in flags]:
                message = f"{entry.model} does not take {', '.join(names)}: left out of its calls"
                dropped.append(file.locate(f"{place}.params", message))
    if problems:
        raise InvalidCampaign(problems)
    return adapters, dropped


def _placed(file: CampaignFile, ix: int, problem: Problem) -> Problem:
    """Put a judge's problem, which names the judge, at the judge's place in the file.

    One in a line of a recording stays there, and says which key names the recording.
    """
    campaign = file.campaign
    key = problem.path.removeprefix(f"judges.{campaign.asked[ix].name}.")
    whose = f"{problem.file}: " if problem.file and problem.line is None else ""
    at = file.locate(f"{campaign.place(ix)}.{key}", whose + problem.message)
    if problem.line is None:
        return at
    line = f" on line {at.line}" if at.line else ""
    message = f"{at.message}; {at.file} names the file{line}"
    return replace(problem, path=at.path, message=message)


def _adapter(
    campaign: Campaign, ix: JudgeIx, route: Route, study: Study, data: Dataset, *, mock: bool
) -> Adapter:
    entry = campaign.asked[ix]
    kind = _adapter_of(entry, mock=mock)
    plugin, is_system = find("judges", kind), ix >= len(campaign.judges)
    settings = entry.mock if kind == "mock" else entry.own_settings
    setting = JudgeSetting(
        name=entry.name,
        judge=ix,
        study=study,
        max_output_tok=entry.params.max_output_tokens,
        truth=None
        if data.truth is None
        else np.repeat(data.truth[:, np.newaxis], len(study.criteria), axis=1),
        model=entry.model,
        recording=_source(entry).recording if kind == "recorded" else None,
        keys=keys_of(campaign.task, data.fields) if is_system else None,
        role=Role.SYSTEM if is_system else Role.JUDGE,
        base_url=base_url(entry, os.environ),
        api_key=key_of(entry, os.environ),
        route=route,
        decoding=decoding_of(entry),
        input_bound=entry.input_bound,
        concurrency=entry.limits.concurrency,
        connect_s=entry.timeouts.connect,
        attempt_s=entry.timeouts.attempt,
    )
    adapter: Adapter = plugin.build(settings if settings is not None else plugin.config(), setting)
    return adapter


def _answers(campaign: Campaign, data: Dataset) -> Answers | None:
    """Make room for what systems will answer, and reckon how long that can be."""
    systems = campaign.systems
    if not systems:
        return None
    longest = [LONGEST_TOKEN * system.params.max_output_tokens for system in systems]
    return Answers(data.fields, CANDIDATE, longest * data.frame.n_items)


LONGEST_TOKEN = 16
"""Bytes of a token that the answers of systems are reckoned with: four times those of prose. Verdicts on
longer answers are held for this much; what they could cost on top is never spent (`too_long`)."""


def keys_of(task: Task, fields: Iterable[Mapping[str, str | Chat]]) -> list[str] | None:
    """Give what a right answer says, by unit, where a step of the task compares with it."""
    steps = task.free_steps if isinstance(task, CheckTask) else ()
    names = [step.match for step in steps if isinstance(step, MatchStep)]
    return [str(given[names[0]]) for given in fields] if names else None


def _rubrics(
    file: CampaignFile,
    routes: Sequence[Route],
    criteria: Sequence[Criterion],
    seeds: Seeds,
    frame: Frame,
    fields: Sequence[Mapping[str, str | Chat]],
) -> list[Rubric]:
    """Make the rubric of each who can be asked; what is wrong with the text all of them say."""
    problems, rubrics, campaign = _Problems(), [], file.campaign
    for ix, (entry, route) in enumerate(zip(campaign.asked, routes, strict=True)):
        own = _Problems()
        if isinstance(entry, System):
            rubrics.append(own.of(partial(_prompt, campaign.task, entry, fields)))
            place = f"{campaign.place(ix)}."
        else:
            rubrics.append(
                own.of(partial(_rubric, file, entry, route, criteria, seeds, frame, fields))
            )
            place = ""
        for problem in own:
            line = "" if problem.line is None else f" (line {problem.line} of the text)"
            path = _own_rubric(campaign.task, entry) if problem.path == RUBRIC else problem.path
            problems.append(file.locate(place + path, problem.message + line))
    if problems:
        raise InvalidCampaign([*dict.fromkeys(problems)])
    return [rubric for rubric in rubrics if rubric is not None]


RUBRIC = "task.rubric"


def _own_rubric(task: Task, entry: JudgeEntry) -> str:
    """Say where the text stands that a judge is asked with."""
    for index, step in enumerate(task.verdict if isinstance(task, CheckTask) else ()):
        if isinstance(step, JudgeStep) and step.judge == entry.name and step.rubric is not None:
            return f"task.verdict[{index}].rubric"
    return RUBRIC


def _prompt(task: Task, system: System, fields: Sequence[Mapping[str, str | Chat]]) -> Rubric:
    from judges.rubrics.generate import Generate  # noqa: PLC0415  # as the rubrics

    steps = task.free_steps if isinstance(task, CheckTask) else ()
    return Generate(
        system.prompt,
        fields,
        hidden={step.match if isinstance(step, MatchStep) else step.column for step in steps},
        max_output_tok=system.params.max_output_tokens,
        candidate=CANDIDATE,
    )


def _rubric(
    file: CampaignFile,
    entry: JudgeEntry,
    route: Route,
    criteria: Sequence[Criterion],
    seeds: Seeds,
    frame: Frame,
    fields: Sequence[Mapping[str, str | Chat]],
) -> Rubric:
    # jinja2 is imported only when needed.
    from judges.rubrics.check import Check, Column, Match  # noqa: PLC0415
    from judges.rubrics.compare import Compare  # noqa: PLC0415
    from judges.rubrics.rate import Rate  # noqa: PLC0415
    from judges.rubrics.rate_batch import RateBatch  # noqa: PLC0415

    task, max_output_tok = file.campaign.task, entry.params.max_output_tokens
    match task:
        case RateTask():
            return Rate(
                task.rubric,
                criteria,
                fields,
                seeds=seeds,
                max_output_tok=max_output_tok,
                criteria_order=task.criteria_order,
                allow_na=task.allow_na,
                reason=task.output.reason,
                route=route,
            )
        case CompareTask():
            return Compare(
                task.rubric,
                criteria,
                fields,
                n_arms=frame.n_arms,
                seeds=seeds,
                max_output_tok=max_output_tok,
                criteria_order=task.criteria_order,
                allow_na=task.allow_na,
                reason=task.output.reason,
                route=route,
            )
        case RateBatchTask():
            return RateBatch(
                task.rubric,
                criteria,
                fields,
                seeds=seeds,
                max_output_tok=max_output_tok,
                allow_na=task.allow_na,
                reason=task.output.reason,
                route=route,
            )
        case CheckTask():
            asked = task.asks.get(entry.name)
            return Check(
                task.rubric if asked is None or asked.rubric is None else asked.rubric,
                criteria,
                fields,
                seeds=seeds,
                max_output_tok=max_output_tok,
                steps=[
                    Column(step.column)
                    if isinstance(step, ColumnStep)
                    else Match(step.match, step.normalise)
                    for step in task.free_steps
                ],
                has_judge=bool(task.asks),
                candidate=CANDIDATE,
                called=lambda unit: seen(frame.unit_name(unit)),
                allow_na=task.allow_na,
                reason=task.output.reason,
                route=route,
            )
        case _:
            assert_never(task)


# --- the opening -------------------------------------------------------------------------------


def _opened(
    file: CampaignFile,
    study: Study,
    prices: Sequence[Price],
    routes: Sequence[Route],
    data: Dataset,
    frame: bytes,
    gates: Sequence[Gate],
    prior: Prior,
    *,
    mock: bool,
    is_mock: bool,
) -> Opened:
    campaign = file.campaign
    budget = campaign.budget
    cap = None if budget.usd is None else Nano(budget.usd)
    identity = file.identity_json()
    identity |= {
        "mock": is_mock,
        "is_swapped": mock,
        "money": "simulated" if all(_is_simulated(j, mock) for j in campaign.asked) else "real",
        "kind": str(study.kind),
        "criteria": [_criterion_document(c) for c in study.criteria],
        "arms": list(study.frame.arms),
        "gate": [gate.as_json() for gate in gates],
        "data": {
            **identity["data"],
            "digest": data.digest,
            "n_items": study.frame.n_items,
            "frame": blake2b(frame, digest_size=16).hexdigest(),
            **({"prior": list(prior.digests)} if prior.digests else {}),
        },
        "recordings": {} if mock else _recordings(campaign.asked),
        **_labels_document(identity, study),
        **_live_document(campaign.asked, routes),
        # Caps that no event can change; that of the campaign can.
        "budget": budget.model_dump(mode="json", exclude={"usd", "wall_clock"})
        | {"by_judge": [judge.budget_usd for judge in campaign.judges]}
        | ({"by_system": [s.budget_usd for s in campaign.systems]} if campaign.systems else {}),
    }
    return Opened(
        identity=identity,
        digest=identity_digest(identity),
        seed=campaign.seed,
        cap=cap,
        judge_caps=tuple(
            None if j.budget_usd is None else Nano(j.budget_usd) for j in campaign.asked
        ),
        role_caps={
            role: Nano(amount)
            for role in Role
            if (amount := getattr(budget.by_role, role)) is not None
        },
        cards=tuple(price.card for price in prices),
        max_requests=budget.max_requests,
        max_tok=budget.max_tokens,
        max_uncertain=part_of(cap, budget.max_uncertain),
        window=campaign.policy.window or WINDOW_PER_CALL * _concurrency(campaign.asked),
        looks=looks_of(file, study, cap),
    )


def _labels_document(identity: Mapping[str, Json], study: Study) -> dict[str, Json]:
    """Say which labels there are: their columns, number and digest."""
    if study.labels is None:
        return {}
    return {
        "labels": {
            **identity["labels"],
            "n": int((~np.isnan(study.labels)).any(axis=1).sum()),
            "digest": digest_of(study.labels),
        }
    }


def _live_document(judges: Sequence[JudgeEntry], routes: Sequence[Route]) -> dict[str, Json]:
    """Say how live judges give their verdicts, and of addresses that the file does not name."""
    live = [(j, route) for j, route in zip(judges, routes, strict=True) if j.adapter in LIVE]
    elsewhere = {
        judge.name: plain(url)
        for judge, _ in live
        if judge.base_url is None and (url := base_url(judge, os.environ))
    }
    return {
        **({"routes": {judge.name: str(route) for judge, route in live}} if live else {}),
        **({"base_urls": elsewhere} if elsewhere else {}),
    }


def part_of(cap: Nano | None, share: float) -> Nano | None:
    """Take a share of a cap, as it is written: exact, rounded down to nano-USD."""
    return None if cap is None else Nano(int(cap * Fraction(str(share))))


def _told_by_loop(opened: Opened) -> Opened:
    """Mark a run whose judges the user's own loop calls: its holds are other ones."""
    identity = {**opened.identity, "own_loop": True}
    return replace(opened, identity=identity, digest=identity_digest(identity))


def identity_digest(identity: Mapping[str, Json]) -> str:
    """Digest what must not change while a run goes on."""
    return sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _adapter_of(entry: JudgeEntry, *, mock: bool) -> str:
    """Say who is really asked: a mock may stand in for everyone but a key."""
    return "mock" if mock and entry.adapter != KEY else entry.adapter


def _is_simulated(entry: JudgeEntry, mock: bool) -> bool:  # noqa: FBT001  # one fact of two
    return mock or entry.adapter in {*MADE_UP, "recorded"}


MADE_UP = frozenset({"mock", KEY})
"""Adapters that ask no one."""


def _source(entry: JudgeEntry) -> Source:
    from orchestrator.recordings import source  # noqa: PLC0415  # only if a judge is recorded

    return source(entry.recorded.path, of_systems=isinstance(entry, System))


def _recordings(judges: Sequence[JudgeEntry]) -> dict[str, Json]:
    """Digest the files and runs that recorded judges answer from."""
    return {judge.name: _source(judge).digest for judge in judges if judge.adapter == "recorded"}


def _criterion_document(criterion: Criterion) -> dict[str, Json]:
    scale = criterion.scale
    return {
        "name": criterion.name,
        "type": str(scale.type),
        "low": scale.low,
        "high": scale.high,
        "labels": list(scale.labels),
        "weight": criterion.weight,
    }


def _frame_document(data: Dataset) -> bytes:
    frame = data.frame
    labels = {
        "items": list(frame.items),
        "arms": list(frame.arms),
        "cluster": [frame.clusters[c] for c in frame.cluster] if frame.clusters else None,
        "stratum": [frame.strata[s] for s in frame.stratum] if frame.strata else None,
        # Only where there are some: logs of ungrouped data from before keep their digest.
        **({"group": [frame.groups[g] for g in frame.group]} if frame.groups else {}),
    }
    return json.dumps(labels, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Analysis:
    """The policy's settings, makers of estimators, and gates, each completed by the others.

    Estimators stand with the primary one first; those that only gates read are the last. They are made
    of a study and, if one of its judges is to be left out, that one's number.
    """

    design: BaseModel
    estimators: tuple[Callable[..., Estimator], ...]
    gates: tuple[Gate, ...]
    entries: tuple[int, ...]
    """The place in the file of the entry that each estimator stands under."""


def _analysis(file: CampaignFile, study: Study) -> _Analysis:
    campaign = file.campaign
    if campaign.is_generating:
        return _Analysis(design=campaign.policy.settings, estimators=(), gates=(), entries=())
    entries = sorted(campaign.estimate, key=lambda entry: entry is not campaign.primary)
    stop = campaign.stop.model_copy(update={"check": campaign.stop.checking})
    design = _completed(campaign.policy.settings, campaign.primary.settings, stop)
    kinds = {entry.name: entry.kind for entry in entries}
    known = (stop, design, campaign.task, *_blocks(design, study))
    settings = {e.name: _completed(e.settings, *known) for e in entries}
    makers = {name: _maker(kinds[name], settings[name]) for name in settings}
    places = {entry.name: index for index, entry in enumerate(campaign.estimate)}
    gates, problems = [], []
    for index, entry in enumerate(campaign.gate):
        reads = (entry, settings[entry.estimate], study.criteria, study.frame.arms)
        found = list(misfits(*reads))
        if not found:
            gate, derived = resolved(*reads)
            found = [("estimate", f"{seen(n)} is its own name") for n in derived if n in settings]
            gates.append(gate)
            for name, (changed, family) in derived.items():
                makers[name] = _maker(kinds[entry.estimate], changed, family)
                places[name] = places[entry.estimate]
        problems += [file.locate(f"gate[{index}].{key}", message) for key, message in found]
    if problems:
        raise InvalidCampaign(problems)
    return _Analysis(
        design=design,
        estimators=tuple(makers.values()),
        gates=tuple(gates),
        entries=tuple(places[name] for name in makers),
    )


class _Block(BaseModel):
    """What an estimate follows of a design of batches besides its keys."""

    block_length: int


def _blocks(design: BaseModel, study: Study) -> Iterator[BaseModel]:
    if isinstance(design, BatchDesignConfig):
        yield _Block(block_length=length_of_block(design, study.frame))


def looks_of(file: CampaignFile, study: Study, cap: Nano | None) -> int:
    """Say after how many told questions there is a look, in a run that is opened with a cap.

    Batches are looked at in whole blocks of all judges, and with `group_sequential` as rarely as its
    error is spent.

    Raises
    ------
    InvalidCampaign
        The cap pays for no block.
    """
    stop, design = file.campaign.stop, file.campaign.policy.settings
    if not isinstance(design, BatchDesignConfig) or file.campaign.is_generating:
        return stop.every
    block, n_judges = length_of_block(design, study.frame), len(study.panel)
    if stop.checking != "group_sequential":
        return n_judges * block * max(1, round(stop.every / (n_judges * block)))
    try:
        n_batches = most_batches(replace(study, cap=cap), design.blocks, block)
    except ValueError as exc:
        message = str(exc).removeprefix("policy.blocks: ")
        raise InvalidCampaign([file.locate("policy.blocks", message)]) from exc
    return n_judges * batches_per_look(n_batches, block)


@dataclass(frozen=True, slots=True)
class _Renumbered:
    """Tells an estimator of judges by their places in a panel that lacks one."""

    estimator: Estimator
    left_out: int

    def update(self, record: Record) -> None:
        """Pass a told question on."""
        query = record.query
        if query.judge > self.left_out:
            record = replace(record, query=replace(query, judge=JudgeIx(query.judge - 1)))
        self.estimator.update(record)

    def estimate(self) -> tuple[Estimate, ...]:
        """Give what it estimates."""
        return self.estimator.estimate()


def _maker(kind: str, settings: BaseModel, family: str = "") -> Callable[..., Estimator]:
    plugin = find("estimators", kind)

    def make(study: Study, left_out: int | None = None) -> Estimator:
        if left_out is not None and plugin.wants_panel:
            others = study.panel[:left_out] + study.panel[left_out + 1 :]
            study = replace(study, panel=others)
        # A slow estimate leaves the event loop, where the policy and judges draw from the study's.
        own = replace(study, seeds=Seeds(study.seeds.seed))
        estimator: Estimator = plugin.build(settings, own)
        if left_out is not None and plugin.wants_panel:
            estimator = _Renumbered(estimator, left_out)
        return Comparison(estimator, family) if family else estimator

    return make


def _crew(
    file: CampaignFile,
    opened: Opened,
    judges: tuple[Judge, ...],
    study: Study,
    analysis: _Analysis,
    answers: Answers | None,
) -> Crew:
    campaign = file.campaign
    new_policy = _policy_of(campaign, analysis.design)
    return Crew(
        opened=opened,
        judges=judges,
        new_policy=lambda cap: new_policy(replace(study, cap=cap)),
        new_estimators=lambda cap: tuple(
            make(replace(study, cap=cap)) for make in analysis.estimators
        ),
        stop=StopRule(
            every=opened.looks,
            target_half_width=campaign.stop.target_half_width,
            of_every_arm=campaign.stop.of == "every_arm",
            min_items=_fewest_items(file, study.frame.n_items),
            gates=analysis.gates if campaign.stop.when == "gate_decided" else (),
            separates=campaign.stop.separates,
            max_answers=campaign.stop.max_answers,
        ),
        delivery=Delivery(campaign.policy.delivery),
        n_units=study.frame.n_units,
        n_systems=len(campaign.systems),
        answers=answers,
    )


def _policy_of(campaign: Campaign, design: BaseModel) -> Callable[[Study], Policy]:
    """Make policies of a design; where nothing is judged, those that ask for its answers."""
    if campaign.is_generating:
        return partial(_generating, design)
    return partial(find("policies", campaign.policy.kind).build, design)


def _generating(design: BaseModel, study: Study) -> Policy:
    """Ask systems about the items of a campaign, in the order in which it would."""
    if not isinstance(design, SubsampleConfig):
        return Generating(item_orders(study, "paired", None).tolist(), study)
    allocation = allocation_of(design.design, design.strata, study)
    orders = item_orders(study, design.design, allocation, design.draw_by)[:, : design.max_items]
    return Generating(orders.tolist(), study)


def _fewest_items(file: CampaignFile, n_items: int) -> int:
    """Say how many items a look needs: a panel of batches has as many as it has, and no more come."""
    stop = file.campaign.stop
    is_open = "min_items" not in stop.model_fields_set
    if is_open and isinstance(file.campaign.policy.settings, BatchDesignConfig):
        return min(stop.min_items, n_items)
    return stop.min_items


def crew_like(
    file: CampaignFile,
    opened: Opened,
    judges: tuple[Judge, ...],
    study: Study,
    answers: Answers | None = None,
) -> Crew:
    """Put together the crew of a campaign with other judges, items or seeds than the file's own."""
    return _crew(file, opened, judges, study, _analysis(file, study), answers)


def _completed(settings: BaseModel, *others: BaseModel) -> BaseModel:
    """Take what a plug-in's keys leave open (None) from others that have a key of the same name.

    So an estimate follows the policy's target, and a policy the contrast that is estimated.
    """
    found = {
        name: value
        for name in type(settings).model_fields
        if getattr(settings, name) is None
        for other in reversed(others)
        if (value := getattr(other, name, None)) is not None
    }
    return settings.model_copy(update=found)


def _unbuildable(
    file: CampaignFile, study: Study, analysis: _Analysis, *, known: Sequence[Problem] = ()
) -> Iterator[Problem]:
    """Build policy and estimates one by one, and name what they refuse of this study.

    What is known to have a problem is left out: it would say the same in other words.
    """
    campaign = file.campaign
    cap = None if campaign.budget.usd is None else Nano(campaign.budget.usd)
    study = replace(study, cap=cap)
    parts: list[tuple[str, BaseModel, Callable[[Study], object]]] = [
        ("policy", campaign.policy.settings, _policy_of(campaign, analysis.design))
    ]
    for index, maker in zip(analysis.entries, analysis.estimators, strict=True):
        parts.append((f"estimate[{index}]", campaign.estimate[index].settings, maker))
    wrong = {_owner(problem.path) for problem in known}
    for place, settings, make in parts:
        if place in wrong:
            continue
        try:
            make(study)
        except ValueError as exc:
            at, message = _addressed(str(exc), place, settings)
            if _owner(at) not in wrong:
                wrong.add(_owner(at))
                yield file.locate(at, message)


def _owner(path: str) -> str:
    """Give the part of a path that names a section, or an entry of one."""
    return path.partition(".")[0]


def _addressed(text: str, place: str, settings: BaseModel) -> tuple[str, str]:
    """Part what a plug-in says into a path and what is wrong there.

    It begins with one of the plug-in's own keys, or with the path of another field; what does not is
    about its kind.
    """
    key, _, message = text.partition(": ")
    first = _owner(key)
    if first in type(settings).model_fields:
        return f"{place}.{key}", message
    if first in Campaign.model_fields and "." in key:
        return key, message
    return f"{place}.kind", text


def _check_start(file: CampaignFile, crew: Crew, study: Study, analysis: _Analysis) -> None:
    """Build everything once and take the first decision, so that nothing of it can fail later."""
    try:
        state = State(crew)
    except ValueError as exc:
        unplaced = Problem(file=str(file.path), message=str(exc))
        problems = _Problems(_unbuildable(file, study, analysis)) or _Problems([unplaced])
        raise problems.refusal(file) from exc
    state.apply(crew.opened)
    first = decide(state)
    # What is kept from earlier runs needs no money, and only a run can tell.
    if isinstance(first, Decline) and file.campaign.cache is None:
        what = f"one call to {crew.judges[first.query.judge].name}"
        if answers := state.generations.lacking(first.query):
            names = [crew.judges[answer.judge].name for answer in answers]
            what = f"one answer of {' and '.join(names)} and {what} about it"
        enough = format_usd(first.hold)
        is_whole = first.account == state.ledger.campaign.name
        suffices = f": budget.usd wants {enough} or more" if is_whole else ""
        raise BudgetTooSmall(
            f"{what} can cost {enough}, and {first.account} has less{suffices}; nothing was sent",
            sufficient=first.hold,
        )


def _concurrency(judges: Sequence[JudgeEntry]) -> int:
    return sum(judge.limits.concurrency for judge in judges)

"""What is asked of a judge: scales, criteria, and the tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from orchestrator.core.scale import COMPOSITE, FARTHEST, Criterion, Scale, ScaleType
from orchestrator.core.study import Orders
from orchestrator.quantities import JudgeName, Lax, Loc, Model, Name, Some

KEY = "key"
"""The judge of a task in which no judge is asked, and its adapter."""

DEFAULT_CRITERION = "score"
"""The name of the one criterion that the shorthand `task.scale` makes."""


class BooleanScale(Model):
    """Yes or no; `labels` are the words for false and true."""

    type: Literal["boolean"]
    labels: Annotated[tuple[Name, Name], Lax] = ("no", "yes")

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Refuse one word for both verdicts."""
        if self.labels[0] == self.labels[1]:
            yield ("labels",), "wants two different words"

    def value(self) -> Scale:
        """Give the scale."""
        return Scale(type=ScaleType.BOOLEAN, labels=self.labels)


class NumberScale(Model):
    """Numbers from `min` to `max`, both admitted."""

    type: Literal["integer", "float"]
    low: float = Field(alias="min")
    high: float = Field(alias="max")

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Refuse an empty range, and broken ends of an integer scale."""
        if not self.low < self.high:
            yield ("max",), f"wants more than min, {self.low:g}, not {self.high:g}"
        for key, end in (("min", self.low), ("max", self.high)):
            if not abs(end) <= FARTHEST:
                yield (key,), f"wants at most {FARTHEST:g} in size, not {end:g}"
            elif self.type == "integer" and end != int(end):
                yield (key,), f"wants a whole number, not {end:g}"

    def value(self) -> Scale:
        """Give the scale."""
        return Scale(type=ScaleType(self.type), low=self.low, high=self.high)


class PreferenceScale(Model):
    """Which of two is better; with `ties`, neither is a verdict too."""

    type: Literal["preference"]
    ties: bool = False

    def value(self) -> Scale:
        """Give the scale."""
        return Scale(type=ScaleType.PREFERENCE, ties=self.ties)


AnyScale = Annotated[BooleanScale | NumberScale | PreferenceScale, Discriminator("type")]


class CriterionEntry(Model):
    """One thing to rate, with its weight in the composite."""

    name: Name
    scale: AnyScale
    weight: Annotated[float, Field(gt=0)] = 1.0
    description: str = ""

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Keep the reserved name free."""
        if self.name == COMPOSITE:
            yield ("name",), f'"{COMPOSITE}" is the weighted mean of all criteria; wants another'

    def value(self) -> Criterion:
        """Give the criterion."""
        return Criterion(
            name=self.name,
            scale=self.scale.value(),
            weight=self.weight,
            description=self.description,
        )


class OutputForm(Model):
    """How a verdict is given: by which route, and whether and where with a reason."""

    route: Literal["auto", "schema", "tool", "text", "logprob"] = "auto"
    reason: Literal["none", "before", "after"] = "none"


class Asking(Model):
    """What every task has: a rubric, one scale or several criteria, and the form of the answer.

    `rubric` holds the text; in the file it is inline or `file://PATH`, and absent it is the
    built-in text of the kind.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"boolean", "integer", "float"})
    """Types of scale that verdicts of this kind can have."""

    rubric: str | None = None
    scale: AnyScale | None = None
    criteria: Annotated[tuple[CriterionEntry, ...], Lax] = ()
    output: OutputForm = OutputForm()

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Want one way of naming criteria, each name once, on scales that fit the task."""
        if self.scale is None and not self.criteria:
            yield ("scale",), "missing; wants a scale, or several under criteria"
        if self.scale is not None and self.criteria:
            yield ("scale",), "wants scale or criteria, not both"
        if self.scale is not None and self.scale.type not in self.takes:
            yield ("scale", "type"), self._unfit(self.scale.type)
        for index, criterion in enumerate(self.criteria):
            if criterion.scale.type not in self.takes:
                yield ("criteria", index, "scale", "type"), self._unfit(criterion.scale.type)

    def criteria_values(self) -> tuple[Criterion, ...]:
        """Give the criteria in order; the shorthand `scale` is one of them, named `score`."""
        if self.scale is not None:
            return (Criterion(name=DEFAULT_CRITERION, scale=self.scale.value()),)
        return tuple(criterion.value() for criterion in self.criteria)

    def _unfit(self, scale: str) -> str:
        return f"wants {' or '.join(sorted(self.takes))} for this kind of task, not {scale}"


class RateBatchTask(Asking):
    """Several units rated one after another in one call, each named by random letters.

    `accept_from` is the lowest verdict on a number scale that counts as a yes.
    """

    kind: Literal["rate_batch"]
    item_ids: Literal["random_letters"] = "random_letters"
    accept_from: float | None = None
    allow_na: bool = False

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Want one criterion, and a line between no and yes on its scale."""
        yield from super().contradictions()
        if len(self.criteria) > 1:
            yield ("criteria",), "wants one criterion: a call that rates several units has one"
        scales = [self.scale] if self.scale is not None else [c.scale for c in self.criteria]
        if self.accept_from is not None and isinstance(scales[0], BooleanScale):
            yield ("accept_from",), "a boolean scale has its yes, so this is never read"


class CompareTask(Asking):
    """Two answers to one item, and which is better by one or several criteria.

    `order` says which of two answers is shown first: each once (`both`), one by a coin and turned
    in the next item (`balanced_random`), or the arm that stands first in the file (`single`).
    """

    takes: ClassVar[frozenset[str]] = frozenset({"preference"})

    kind: Literal["compare"]
    order: Orders = "both"
    criteria_order: Literal["fixed", "random"] = "fixed"
    allow_na: bool = False


class RateTask(Asking):
    """One unit a call, rated on one or several criteria."""

    kind: Literal["rate"]
    criteria_order: Literal["fixed", "random"] = "fixed"
    allow_na: bool = False


class MatchStep(Model):
    """Compares the answer with a field, at no cost: equal is right, and unequal wrong if nothing follows."""

    match: Name
    normalise: Annotated[tuple[Literal["case", "space"], ...], Lax] = ()


class ColumnStep(Model):
    """Reads a recorded verdict, at no cost, where there is one."""

    column: Name


class JudgeStep(Model):
    """Asks a judge about what is left; `rubric` is for this judge alone."""

    judge: JudgeName
    rubric: str | None = None


def _step_of(value: Any) -> str | None:
    keys = value if isinstance(value, dict) else vars(value) if isinstance(value, Model) else {}
    return next((f"by {key}" for key in ("match", "judge", "column") if key in keys), None)


Step = Annotated[
    Annotated[MatchStep, Tag("by match")]
    | Annotated[JudgeStep, Tag("by judge")]
    | Annotated[ColumnStep, Tag("by column")],
    Discriminator(
        _step_of,
        custom_error_type="wants",
        custom_error_message="wants {match: FIELD}, {judge: NAME} or {column: COLUMN}",
    ),
]


class CheckTask(Asking):
    """Right or wrong against a key, or a bounded score, by the first step that decides."""

    kind: Literal["check"]
    verdict: Annotated[tuple[Step, ...], Lax, Some]
    allow_na: bool = False

    @property
    def free_steps(self) -> tuple[MatchStep | ColumnStep, ...]:
        """The steps that need no judge."""
        return tuple(step for step in self.verdict if not isinstance(step, JudgeStep))

    @property
    def asks(self) -> dict[str, JudgeStep]:
        """The steps that ask a judge, by its name; several judges are a panel."""
        return {step.judge: step for step in self.verdict if isinstance(step, JudgeStep)}

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Take right or wrong as the scale unless one is given; judges come last, and each once."""
        if self.scale is not None or self.criteria:
            yield from super().contradictions()
        named: set[str] = set()
        for index, step in enumerate(self.verdict):
            if isinstance(step, JudgeStep):
                if step.judge in named:
                    yield ("verdict", index, "judge"), f"{step.judge} is asked already"
                named.add(step.judge)
            elif named:
                message = "it follows a judge, who decides all that is left; wants to stand before"
                yield ("verdict", index), message
        if not named and self.rubric is not None:
            yield ("rubric",), "no step asks a judge, so this is never read"

    def criteria_values(self) -> tuple[Criterion, ...]:
        """Give the criteria; without a scale, right or wrong."""
        if self.scale is not None or self.criteria:
            return super().criteria_values()
        right = Scale(type=ScaleType.BOOLEAN, labels=("wrong", "right"))
        return (Criterion(name=DEFAULT_CRITERION, scale=right),)

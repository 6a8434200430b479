"""The rubric `rate`: one unit a question, rated on one or several criteria."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from judges.rubrics.form import Reason
from judges.rubrics.material import Material, gaps, misnamed
from judges.rubrics.sheet import CriteriaOrder, Sheet, unfit
from judges.rubrics.template import named_fields
from orchestrator.core.errors import InvalidCampaign
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import Query
from orchestrator.core.scale import Criterion
from orchestrator.core.seeds import Seeds
from orchestrator.core.wire import Attempt, Chat, Json, Reply, Request, Route


class Rate:
    """Asks for a verdict on each criterion and reads it.

    By the routes `schema` and `tool` the judge answers with one JSON object and nothing else, by
    `text` with that object in tags; each criterion is read by its name. By `logprob` it answers a
    single criterion with the bare label, and the verdict is the mean over the labels' probabilities.

    The prompt is a stable prefix (rubric, criteria, scales, form of the answer), which providers
    can cache, and then the unit's fields, each inside the fence. A rubric text is a Jinja template
    in a sandbox. ``{{ candidate }}`` in it *names* a field, and is written ``[candidate]``: a
    field's text is never part of the template's output, so it is always fenced and never
    evaluated. Fields that the rubric names are shown, or all if it names none. Besides fields there
    is `criteria`, each with `name`, `description` and `range`.

    Parameters
    ----------
    text : the rubric; None takes the built-in one
    criteria : in the order of the study
    fields : one mapping a unit, all with the same names; empty where judges need no text (recorded)
    seeds : for the fence and the order of criteria
    max_output_tok : output limit of one attempt, > 0; a widened attempt gets twice as much
    criteria_order : `random` shuffles anew for each question, by `stream(LAYOUT, judge, unit,
        replicate)`, so that the order can be derived from the question alone
    allow_na : whether null is a verdict, "not applicable"
    reason : whether the judge says why, and on which side of the verdict
    route : by which the judge gives its verdict
    hidden : fields that no judge is shown
    context : what the text that frames the rubric takes besides

    Raises
    ------
    InvalidCampaign
        The rubric is no template, uses an unknown name, or does more with a field than name it; a
        unit lacks a field; criteria or fields are named ambiguously; the route is `logprob` and
        the answer is not surely one token.
    """

    kind: ClassVar[str] = "rate"
    """Whose built-in text frames the rubric."""

    def __init__(
        self,
        text: str | None,
        criteria: Sequence[Criterion],
        fields: Sequence[Mapping[str, str | Chat]],
        *,
        seeds: Seeds,
        max_output_tok: int,
        criteria_order: CriteriaOrder = "fixed",
        allow_na: bool = False,
        reason: Reason = "none",
        route: Route = Route.SCHEMA,
        hidden: Collection[str] = (),
        context: Mapping[str, Json] | None = None,
    ) -> None:
        names = tuple(fields[0]) if fields else ()
        problems = [
            *unfit(criteria, allow_na=allow_na, reason=reason, route=route),
            *misnamed(names),
        ]
        if not problems:
            visible = tuple(name for name in names if name not in hidden)
            shown, problems = named_fields(text or "", visible, hidden=hidden)
        if not problems:
            problems = [*gaps(fields, shown)]
        if problems:
            raise InvalidCampaign(problems)
        self._material = Material(fields, shown, (criterion.name for criterion in criteria))
        self._sheet = Sheet(
            self.kind,
            text,
            criteria,
            words={name: f"[{name}]" for name in shown},
            context={"fields": shown, **(context or {})},
            seeds=seeds,
            max_output_tok=max_output_tok,
            criteria_order=criteria_order,
            allow_na=allow_na,
            reason=reason,
            route=route,
        )

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Write the request: the stable prefix, then the unit's fields inside the fence."""
        (unit,) = query.units
        return self._sheet.request(query, attempt, self._material.of(unit))

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read the verdict on every criterion; one that can't be read spoils the answer.

        `flags` name what had to be understood, and `SUSPECTED` a unit that may deceive its judge.
        """
        (unit,) = query.units
        return self._sheet.read(query, reply, is_suspected=self.is_suspected(unit))

    def is_suspected(self, unit: int) -> bool:
        """Say whether a shown field of a unit holds what only a rubric or a judge should write."""
        return self._material.is_suspected(unit)

    def fingerprint(self, query: Query, attempt: Attempt) -> str:
        """Digest all that an answer depends on in the words, for the cache; see `Sheet`."""
        (unit,) = query.units
        return self._sheet.fingerprint(query, attempt, self._material.of(unit))

    def order(self, query: Query) -> tuple[int, ...]:
        """Give the order in which a question lists the criteria, as indices of the study's."""
        return self._sheet.order(query)

"""The rubric `compare`: two answers to one item, and which is better by each criterion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from judges.rubrics.form import Reason
from judges.rubrics.material import Material, gaps, misnamed
from judges.rubrics.sheet import CriteriaOrder, Sheet, unfit
from judges.rubrics.template import named_fields
from orchestrator.core.answers import Answers
from orchestrator.core.errors import InvalidCampaign
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import Preference, Query
from orchestrator.core.scale import Criterion
from orchestrator.core.seeds import Seeds
from orchestrator.core.wire import Attempt, Chat, Reply, Request, Route

PLACES = (Preference.FIRST, Preference.SECOND)
"""How the two answers are called; nothing in a prompt says which arm an answer is of."""


class Compare:
    """Asks which of two answers is better by each criterion, and reads it.

    The answers stand in the order of the question's units and are called first and second. A
    verdict is `first`, `second` or, where the scale has ties, `tie`; its observation names the
    first unit. With `logprob` a verdict is the label that was said, 1, 2 or 0.

    Prompt, template and routes are those of `Rate`. A field that is the same in all arms of every
    item is shown once, ahead of the answers, unless that is so of all fields; the others are shown
    of each answer, as `first NAME` and `second NAME`, and a rubric that names none of these shows
    all of them. Besides fields and `criteria` a template can name the answers, ``{{ first }}`` and
    ``{{ second }}``; it is one text for both orders.

    Parameters
    ----------
    fields : one mapping a unit, the arms of an item one after another; empty where judges need no
        text (recorded)
    n_arms : of each item, ≥ 2
    text, criteria, seeds, max_output_tok, criteria_order, allow_na, reason, route : as in `Rate`;
        criteria are preferences

    Raises
    ------
    InvalidCampaign
        As in `Rate`; or a field is called like an answer.
    """

    def __init__(
        self,
        text: str | None,
        criteria: Sequence[Criterion],
        fields: Sequence[Mapping[str, str | Chat]],
        *,
        n_arms: int,
        seeds: Seeds,
        max_output_tok: int,
        criteria_order: CriteriaOrder = "fixed",
        allow_na: bool = False,
        reason: Reason = "none",
        route: Route = Route.SCHEMA,
    ) -> None:
        names = tuple(fields[0]) if fields else ()
        problems = [
            *unfit(criteria, allow_na=allow_na, reason=reason, route=route),
            *misnamed(names, also_reserved=PLACES),
        ]
        if not problems:
            named, problems = named_fields(text or "", (*names, *PLACES))
        if not problems:
            wanted = tuple(name for name in named if name in names) or names
            unlike = _unlike(fields, n_arms)
            own = tuple(name for name in names if name in unlike) or names
            self._own = tuple(name for name in wanted if name in own) or own
            self._common = tuple(name for name in wanted if name not in own)
            shown = (*self._common, *self._own)
            problems = [*gaps(fields, shown)]
        if problems:
            raise InvalidCampaign(problems)
        self._material = Material(fields, shown, (criterion.name for criterion in criteria))
        self._sheet = Sheet(
            "compare",
            text,
            criteria,
            words={name: f"[{name}]" for name in (*shown, *PLACES)},
            context={
                "common": self._common,
                "own": self._own,
                "ties": any(criterion.scale.ties for criterion in criteria),
            },
            seeds=seeds,
            max_output_tok=max_output_tok,
            criteria_order=criteria_order,
            allow_na=allow_na,
            reason=reason,
            route=route,
        )

    @property
    def shown_of_each(self) -> tuple[str, ...]:
        """The fields that a question shows of each of its two answers."""
        return self._own

    def render(self, query: Query, attempt: Attempt) -> Request:
        """Write the request: the stable prefix, then both answers inside the fence."""
        return self._sheet.request(query, attempt, self._shown(query))

    def read(self, query: Query, reply: Reply) -> Reading | Unreadable:
        """Read the preference by every criterion; one that can't be read spoils the answer.

        `flags` name what had to be understood, and `SUSPECTED` answers that may deceive their judge.
        """
        is_suspected = any(map(self.is_suspected, query.units))
        return self._sheet.read(query, reply, is_suspected=is_suspected)

    def is_suspected(self, unit: int) -> bool:
        """Say whether a shown field of a unit holds what only a rubric or a judge should write."""
        return self._material.is_suspected(unit)

    def fingerprint(self, query: Query, attempt: Attempt) -> str:
        """Digest all that an answer depends on in the words, for the cache; see `Sheet`.

        The order of the answers is part of it.
        """
        return self._sheet.fingerprint(query, attempt, self._shown(query))

    def order(self, query: Query) -> tuple[int, ...]:
        """Give the order in which a question lists the criteria, as indices of the study's."""
        return self._sheet.order(query)

    def _shown(self, query: Query) -> dict[str, str | Chat]:
        first, second = (self._material.of(unit) for unit in query.units)
        shown = {name: first[name] for name in self._common}
        for place, given in zip(PLACES, (first, second), strict=True):
            shown |= {f"{place} {name}": given[name] for name in self._own}
        return shown


def _unlike(fields: Sequence[Mapping[str, str | Chat]], n_arms: int) -> set[str]:
    """Name the fields that are not the same in all arms of each item; the answers of systems are not."""
    unlike = {fields.name} if isinstance(fields, Answers) else set()
    for at in range(0, len(fields), n_arms):
        first, *others = fields[at : at + n_arms]
        for name, text in first.items():
            if name not in unlike and any(other.get(name) != text for other in others):
                unlike.add(name)
    return unlike


def count_unlike(fields: Sequence[Mapping[str, str | Chat]], name: str, n_arms: int) -> int:
    """Count the items in which a field is not the same in all arms."""
    items = (fields[at : at + n_arms] for at in range(0, len(fields), n_arms))
    return sum(any(arm.get(name) != arms[0].get(name) for arm in arms) for arms in items)

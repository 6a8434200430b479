"""Rubric texts: Jinja templates in a sandbox, which can name fields and never see what they say.

``{{ candidate }}`` *names* a field, and is written ``[candidate]``: a field's text is never part of
a template's output, so it is always fenced and never evaluated.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.resources import files

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.wire import Json

RESERVED = ("criteria", "end")
"""What no field can be named: the templates' own word, and that of the fence."""

FAILURES = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a template can raise while it is rendered."""


def parsed(text: str) -> tuple[nodes.Template, set[str]]:
    """Parse a template; give its tree, and the names that it takes from outside.

    Raises
    ------
    TemplateSyntaxError
        It is none.
    """
    tree = _ENVIRONMENT.parse(text)
    return tree, find_undeclared_variables(tree) - _ENVIRONMENT.globals.keys()


def compiled(text: str) -> Template:
    """Compile a template."""
    return _ENVIRONMENT.from_string(text)


def named_fields(
    text: str, names: tuple[str, ...], *, hidden: Collection[str] = ()
) -> tuple[tuple[str, ...], list[Problem]]:
    """Find which fields a rubric shows, all if it names none, and what is wrong with its template.

    `hidden` are fields besides `names`, which no rubric shows.
    """
    try:
        tree, outside = parsed(text)
    except TemplateSyntaxError as exc:
        return (), [Problem(path=_PATH, line=exc.lineno, message=str(exc.message))]
    bare = {id(node) for output in tree.find_all(nodes.Output) for node in output.nodes}
    unknown = outside - {*names, "criteria"}
    used: set[str] = set()
    problems = []
    for node in tree.find_all(nodes.Name):
        if node.name in hidden:
            message = f'"{node.name}" holds verdicts, which a judge is not shown'
            problems.append(Problem(path=_PATH, line=node.lineno, message=message))
        elif node.name in unknown:
            message = no_field(node.name, (*names, "criteria"))
            problems.append(Problem(path=_PATH, line=node.lineno, message=message))
        elif node.name in names and id(node) not in bare:
            message = (
                f"a field can only be named, as in {{{{ {node.name} }}}}: its text is not here"
            )
            problems.append(Problem(path=_PATH, line=node.lineno, message=message))
        elif node.name in names:
            used.add(node.name)
    return tuple(name for name in names if name in used) or names, problems


def no_field(name: str, known: Iterable[str]) -> str:
    """Say that a name is no field, and which known one may be meant."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f'"{name}" is no field of data.fields{hint}'


def rendered(text: str, context: Mapping[str, Json]) -> str:
    """Render a rubric of the user's own.

    Raises
    ------
    InvalidCampaign
        The template fails.
    """
    try:
        return compiled(text).render(context)
    except FAILURES as exc:
        raise InvalidCampaign([Problem(path=_PATH, message=str(exc))]) from exc


@cache
def frame(kind: str) -> Template:
    """Load the built-in text of a kind, which also frames a rubric of one's own."""
    source = files("judges.rubrics") / "templates" / f"{kind}.md.j2"
    return compiled(source.read_text(encoding="utf-8"))


_PATH = "task.rubric"
_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True
)

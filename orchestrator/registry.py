"""Plug-ins by name: `kind: foo` to the module that offers it, imported only when named."""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Literal, NamedTuple

from orchestrator.core.errors import ConfigError, ShadowedPackage, UnknownKind
from orchestrator.core.ports import Plugin
from orchestrator.wording import did_you_mean, seen

Group = Literal["judges", "policies", "estimators"]
"""A kind of plug-in: the in-tree package, and the entry points `sortition.<group>`."""

NOUNS: dict[Group, str] = {
    "judges": "adapter",
    "policies": "policy kind",
    "estimators": "estimate kind",
}


class Offer(NamedTuple):
    """Where a plug-in is, as `module:ATTRIBUTE`, and which distribution brings it; empty: ours."""

    place: str
    distribution: str


def offers(group: Group, kind: str) -> tuple[Offer, ...]:
    """List what a kind names, ours first; none of it is imported."""
    found = [Offer(f"{group}.{kind}:PLUGIN", "")] if _is_in_tree(group, kind) else []
    for entry in _entries(group):
        if entry.name == kind and entry.value not in {offer.place for offer in found}:
            bringer = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
            found.append(Offer(entry.value, bringer))
    return tuple(found)


def find(group: Group, kind: str) -> Plugin:
    """Find a plug-in: `pkg.mod:ATTR`, or else in-tree `<group>.<kind>` and the entry points.

    Raises
    ------
    UnknownKind
        Nothing has that name, or what has it can't be imported or is no plug-in.
    ConfigError
        Several have that name.
    """
    if ":" in kind:
        return _load(kind)
    match [offer.place for offer in offers(group, kind)]:
        case [place]:
            return _load(place)
        case []:
            hint = did_you_mean(kind, known(group))
            raise UnknownKind(f"no {NOUNS[group]} is named {seen(kind)}{hint}")
        case several:
            raise ConfigError(
                f"{seen(kind)} names several plug-ins: {', '.join(several)}; write one of these instead"
            )


def known(group: Group) -> tuple[str, ...]:
    """List the kinds that can be named without a colon, without importing any of them."""
    package = importlib.import_module(group)
    modules = [module.name for module in iter_modules(package.__path__)]
    in_tree = [name for name in modules if _is_in_tree(group, name)]
    return tuple(sorted({*in_tree, *(entry.name for entry in _entries(group))}))


def check_packages() -> None:
    """Check that the packages of plug-ins are ours and not another distribution's.

    Their import names are ordinary words, so another distribution, or a folder in the current
    directory, may stand before them.

    Raises
    ------
    ShadowedPackage
    """
    home = Path(__file__).resolve().parents[1]
    for name in NOUNS:
        spec = find_spec(name)
        place = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if place is None or place.parents[1] != home:
            raise ShadowedPackage(
                f"Sortition's package `{name}` stands in {home}, but Python finds "
                f"{place.parent if place else 'none'}; install Sortition into an environment of "
                f"its own, or run from a folder that has no `{name}`"
            )


def _load(place: str) -> Plugin:
    module, _, attribute = place.partition(":")
    try:
        plugin = getattr(importlib.import_module(module), attribute, None)
    except ImportError as exc:
        raise UnknownKind(f"{seen(place)} can't be imported: {exc}") from exc
    if not isinstance(plugin, Plugin):
        raise UnknownKind(f"{seen(place)} is no plug-in: a module offers PLUGIN = Plugin(...)")
    return plugin


def _is_in_tree(group: Group, kind: str) -> bool:
    """Say whether a module of our package offers a plug-in, by its source: nothing is imported."""
    if not kind.isidentifier() or kind.startswith("_"):
        return False
    spec = find_spec(f"{group}.{kind}")
    source = getattr(spec and spec.loader, "get_source", lambda _: None)(f"{group}.{kind}")
    return source is not None and "\nPLUGIN" in source


@cache
def _entries(group: Group) -> EntryPoints:
    return entry_points(group=f"sortition.{group}")

"""Plug-ins by name."""

import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import pytest

from orchestrator import registry
from orchestrator.core.errors import ConfigError, ShadowedPackage, UnknownKind
from orchestrator.core.ports import Plugin

FAKE = Plugin(config=object, build=object)


@pytest.fixture
def acme(monkeypatch):
    """A package of somebody else's."""
    module = ModuleType("acme")
    module.FANCY = FAKE
    module.NOT_ONE = object()
    monkeypatch.setitem(sys.modules, "acme", module)


@pytest.fixture
def advertised(monkeypatch):
    def advertise(*names, value="acme:FANCY"):
        entries = EntryPoints(EntryPoint(n, value, "sortition.policies") for n in names)
        monkeypatch.setattr(registry, "_entries", lambda group: entries)

    return advertise


@pytest.mark.parametrize(
    ("group", "kind"),
    [("policies", "uniform"), ("estimators", "score_means"), ("judges", "mock")],
)
def test_our_own_are_found_by_kind(group, kind):
    assert isinstance(registry.find(group, kind), Plugin)
    assert kind in registry.known(group)


def test_a_kind_with_a_colon_is_a_place(acme):
    assert registry.find("policies", "acme:FANCY") is FAKE


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("acme:NOT_ONE", "is no plug-in"),
        ("acme:ABSENT", "is no plug-in"),
        ("absent_package:PLUGIN", "can't be imported: No module named"),
    ],
)
def test_a_place_without_a_plug_in_is_said(acme, kind, said):
    with pytest.raises(UnknownKind, match=said):
        registry.find("policies", kind)


def test_installed_packages_may_offer_kinds(acme, advertised):
    advertised("fancy")
    assert registry.find("policies", "fancy") is FAKE
    assert "fancy" in registry.known("policies")


def test_a_name_found_twice_is_refused(acme, advertised):
    advertised("uniform")
    with pytest.raises(
        ConfigError, match=r"several plug-ins: policies\.uniform:PLUGIN, acme:FANCY"
    ):
        registry.find("policies", "uniform")


def test_one_distribution_listed_twice_is_one(acme, advertised):
    advertised("fancy", "fancy")
    assert registry.find("policies", "fancy") is FAKE


@pytest.mark.parametrize(
    ("group", "kind", "said"),
    [
        ("policies", "unifrom", r'no policy kind is named "unifrom"; did you mean "uniform"\?'),
        ("estimators", "zzz", r'no estimate kind is named "zzz"; known: .*score_means'),
        (
            "judges",
            "rubrics",
            'no adapter is named "rubrics"; known: .*mock, openai, python, recorded',
        ),
        ("policies", "../x", "no policy kind is named"),
        ("policies", "", "no policy kind is named"),
    ],
)
def test_an_unknown_kind_names_the_known(group, kind, said):
    with pytest.raises(UnknownKind, match=said):
        registry.find(group, kind)


def test_a_module_that_offers_no_plug_in_is_not_one():
    """Shared numerics stand beside the estimators."""
    assert "intervals" not in registry.known("estimators")
    with pytest.raises(UnknownKind):
        registry.find("estimators", "intervals")


def test_looking_for_a_kind_imports_no_other(monkeypatch):
    monkeypatch.delitem(sys.modules, "judges.recorded", raising=False)
    registry.find("judges", "mock")
    registry.known("judges")
    assert "judges.recorded" not in sys.modules


def test_our_packages_are_ours():
    registry.check_packages()


@pytest.mark.parametrize("origin", ["/elsewhere/judges/__init__.py", None])
def test_a_package_of_somebody_else_is_named_with_the_remedy(monkeypatch, origin):
    real = registry.find_spec

    def find_spec(name):
        return ModuleSpec("judges", None, origin=origin) if name == "judges" else real(name)

    monkeypatch.setattr(registry, "find_spec", find_spec)
    with pytest.raises(ShadowedPackage, match=r"package `judges` .* an environment of its own"):
        registry.check_packages()

"""The command `plugins`."""

import json
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from orchestrator import registry


@pytest.fixture
def advertised(monkeypatch):
    """Let another distribution offer policies."""

    def advertise(*names):
        entries = EntryPoints(EntryPoint(n, "acme:FANCY", "sortition.policies") for n in names)
        nothing = EntryPoints()
        monkeypatch.setattr(
            registry, "_entries", lambda group: entries if group == "policies" else nothing
        )

    return advertise


def listed(sortition):
    code, out, _ = sortition("plugins", "--json")
    assert code == 0
    return [tuple(row.values())[:4] for row in json.loads(out)]


def test_every_kind_is_listed_once_with_where_it_is(sortition, advertised):
    advertised()
    found = listed(sortition)
    assert ("judges", "mock", "built-in", "judges.mock:PLUGIN") in found
    assert ("policies", "uniform", "built-in", "policies.uniform:PLUGIN") in found
    assert ("estimators", "exchangeable", "built-in", "estimators.exchangeable:PLUGIN") in found
    kinds = [row[:2] for row in found]
    assert len(kinds) == len(set(kinds))


def test_what_is_listed_as_there_can_be_found(sortition, advertised):
    advertised()
    for group, kind, status, _ in listed(sortition):
        if status == "built-in":
            registry.find(group, kind)


def test_a_plugin_of_another_distribution_is_told_from_ours(sortition, advertised):
    advertised("fancy")
    assert ("policies", "fancy", "plug-in", "acme:FANCY") in listed(sortition)


def test_a_name_that_two_claim_is_said(sortition, advertised):
    advertised("uniform")
    code, out, err = sortition("plugins")
    assert code == 0
    assert out.count("uniform") == 3
    assert "uniform names several policies" in err


def test_the_table_is_one_line_a_kind(sortition, advertised):
    advertised()
    _, out, err = sortition("plugins")
    assert len(out.splitlines()) == 1 + len(listed(sortition))
    assert err == ""

"""The names that users and plug-in authors may rely on."""

import subprocess
import sys

import orchestrator


def test_the_package_offers_these_names():
    assert orchestrator.__all__ == ["Campaign", "OwnLoop", "Question", "Result", "Usage", "resume"]
    assert all(hasattr(orchestrator, name) for name in orchestrator.__all__)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(orchestrator, "Campagin")


def imported_by(code):
    """List the modules that a statement brings in, in a fresh process."""
    script = f"{code}\nimport sys\nprint(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_package_and_its_core_load_nothing_heavy():
    """A plug-in that imports core does not drag in the engine; no SDK is loaded unless named."""
    heavy = {"pydantic", "typer", "rich", "jinja2", "scipy", "msgspec", "genai_prices", "sqlite3"}
    assert not imported_by("import orchestrator") & (heavy | {"numpy"})
    core = imported_by("import orchestrator.core.ports, orchestrator.core.study")
    assert not core & heavy
    assert not any(name.startswith("orchestrator.engine") for name in core)


def test_a_campaign_loads_only_the_plug_ins_that_it_names():
    loaded = imported_by("from orchestrator import Campaign; import orchestrator.build")
    assert not {"judges.mock", "judges.recorded", "policies.uniform"} & loaded
    assert not {"openai", "anthropic", "google.genai", "genai_prices"} & loaded

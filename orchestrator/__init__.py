"""Adaptive, budget-capped evaluation with LLM judges."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.asking import OwnLoop, Question
    from orchestrator.campaign import Campaign, resume
    from orchestrator.core.wire import Usage
    from orchestrator.session import Result

__all__ = ["Campaign", "OwnLoop", "Question", "Result", "Usage", "resume"]

_HOMES = {
    "Campaign": "orchestrator.campaign",
    "OwnLoop": "orchestrator.asking",
    "Question": "orchestrator.asking",
    "Result": "orchestrator.session",
    "Usage": "orchestrator.core.wire",
    "resume": "orchestrator.campaign",
}


def __getattr__(name: str) -> object:
    """Load public names when they are used, so that a plug-in's import of core stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

"""Keys of judges: which environment variable holds each, and which are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from orchestrator.campaign_file import Judge
from orchestrator.config import CampaignFile
from orchestrator.core.errors import Problem

VARIABLES: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
}
"""Where each provider's own SDK looks, in its order; `api_key_env` names another variable."""


def variables_of(judge: Judge) -> tuple[str, ...]:
    """Name the variables that can hold a judge's key, none if it needs none.

    A user and password in `base_url` take the key's place.
    """
    if judge.api_key_env:
        return (judge.api_key_env,)
    if judge.base_url and urlsplit(judge.base_url).username is not None:
        return ()
    return VARIABLES.get(judge.adapter, ())


def key_of(judge: Judge, environ: Mapping[str, str]) -> str:
    """Find a judge's key; "" if there is none."""
    return next((key for name in variables_of(judge) if (key := environ.get(name))), "")


def missing(file: CampaignFile, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Name every judge whose key is not in the environment."""
    for index, judge in enumerate(file.campaign.asked):
        if (names := variables_of(judge)) and not key_of(judge, environ):
            message = (
                f"{' or '.join(names)} is not set; {judge.name} wants its key there: "
                "export it or put it into .env"
            )
            yield file.locate(f"{file.campaign.place(index)}.api_key_env", message)

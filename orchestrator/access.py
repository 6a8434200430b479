"""Whom a judge's calls go to, whose limits they count against, and what its answers depend on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from urllib.parse import urlsplit, urlunsplit

from orchestrator.campaign_file import LIVE, Judge
from orchestrator.core.wire import Route
from orchestrator.keys import variables_of

BASE_URLS: Mapping[str, str] = {"openai": "OPENAI_BASE_URL"}
"""Where an adapter's address stands if the campaign file gives none."""


def base_url(judge: Judge, environ: Mapping[str, str]) -> str | None:
    """Give a judge's address, None for its provider's own."""
    return judge.base_url or environ.get(BASE_URLS.get(judge.adapter, "")) or None


def account(judge: Judge, environ: Mapping[str, str]) -> str:
    """Name the key whose limits a judge's calls count against; empty where it shares none."""
    if judge.adapter not in LIVE:
        return ""
    return "|".join((judge.adapter, base_url(judge, environ) or "", *variables_of(judge)))


def signature(judge: Judge, route: Route, environ: Mapping[str, str], *, mock: bool) -> str:
    """Digest all of a judge, besides the words of a request, that its answers depend on.

    Empty for a recording, which has nothing to be remembered of.
    """
    if judge.adapter == "recorded" and not mock:
        return ""
    own = judge.mock if mock else judge.own_settings
    told = {
        "adapter": "mock" if mock else judge.adapter,
        "model": judge.model,
        "base_url": plain(base_url(judge, environ) or ""),
        "params": judge.params.model_dump(mode="json"),
        "own": None if own is None else own.model_dump(mode="json"),
        "route": str(route),
    }
    return blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).hexdigest()


def plain(url: str) -> str:
    """Leave user and password out of an address."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

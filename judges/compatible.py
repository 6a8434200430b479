"""Any server that speaks Chat Completions: vLLM, llama.cpp, Ollama, gateways; without an SDK."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import ClassVar

import httpx2
from pydantic import BaseModel, ConfigDict

from judges import chat_completions
from judges.capabilities import capability, decoding_for
from judges.live import LiveJudge, dropped, invalid, is_header, is_header_name, reserved
from orchestrator.core.ports import JudgeSetting, Plugin
from orchestrator.core.wire import Json, Reply, Request

ADDED_TOK = 1024
"""Input tokens allowed for what a server's chat template adds: a default system prompt and the
instructions for tools take some hundreds each. An allowance and no published bound: what a server
bills beyond a ceiling is booked in full, and its later holds are larger by as much."""


class CompatibleConfig(BaseModel):
    """The key `compatible` of a judge.

    `headers` and `query` go out with each request as they stand; `headers_env` maps a header to the
    environment variable that holds its value, for those that are secret.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    headers: dict[str, str] = {}
    headers_env: dict[str, str] = {}
    query: dict[str, str] = {}


class CompatibleJudge(LiveJudge[httpx2.AsyncClient]):
    """Asks a server that speaks Chat Completions, one attempt a call.

    Raises
    ------
    InvalidCampaign
        As `LiveJudge`; there is no `base_url`; a variable is not set; a header can't be sent;
        `params.extra` sets what is ours to set.
    ConfigError
        A parameter that the model refuses is set, under `strict_params`.
    """

    home: ClassVar[str] = ""

    def __init__(self, config: CompatibleConfig, setting: JudgeSetting) -> None:
        if not setting.base_url:
            raise invalid(setting.name, "base_url", "missing: where does the server listen?")
        secret = dict(_from_environment(config, setting.name))
        headers = {**config.headers, **secret}
        # What is written in the file may be a key all the same; a word or a number is none.
        plain = [v for v in (*config.headers.values(), *config.query.values()) if len(v) >= 8]
        for name, value in headers.items():
            if not is_header_name(name) or not is_header(value):
                # Only the name is quoted: a value may be secret wherever it stands.
                raise invalid(setting.name, "compatible.headers", f"{name!a} can't be sent")
        super().__init__(
            setting,
            secrets=(*secret.values(), *plain),
            added_tok=ADDED_TOK,
        )
        reserved(setting)
        key = {"Authorization": f"Bearer {setting.api_key}"} if setting.api_key else {}
        self._headers = {"Content-Type": "application/json", **key, **headers}
        # Parsed once, and not for each call.
        self._url = httpx2.URL(f"{self.base_url}/chat/completions", params=config.query or None)
        known = capability("compatible", setting.model)
        sampling, left_out = decoding_for("compatible", setting.model, setting.decoding)
        self.flags = dropped(left_out)
        self._max_logprobs = known.max_logprobs
        self._limit = known.renamed.get("max_tokens", "max_tokens")
        self._fixed = {**setting.decoding.extra, **sampling, "model": setting.model}

    def body(self, request: Request) -> dict[str, Json]:
        """Write the body of a request."""
        form = chat_completions.body(request, self._setting.route, max_logprobs=self._max_logprobs)
        return {**self._fixed, self._limit: request.max_output_tok, **form}

    def _connect(self, connections: httpx2.AsyncClient) -> httpx2.AsyncClient:
        connections.headers.update(self._headers)
        return connections

    async def _ask(self, client: httpx2.AsyncClient, request: Request) -> httpx2.Response:
        response = await client.post(
            self._url,
            content=json.dumps(self.body(request), ensure_ascii=False).encode(),
        )
        if response.status_code != httpx2.codes.OK:
            code, message = chat_completions.refusal(response.content)
            raise self._refusal(response.status_code, code, message, response.headers)
        return response

    def _read(self, answer: httpx2.Response) -> Reply:
        return chat_completions.read(answer, flags=self.flags)


def _from_environment(config: CompatibleConfig, judge: str) -> Iterator[tuple[str, str]]:
    environ: Mapping[str, str] = os.environ
    for header, variable in config.headers_env.items():
        if not variable.isidentifier():
            # Not shown: it may be the secret itself.
            message = f"{header!a} wants the name of an environment variable, never a secret"
            raise invalid(judge, "compatible.headers_env", message)
        if not environ.get(variable):
            raise invalid(judge, "compatible.headers_env", f"{variable} is not set")
        yield header, environ[variable]


PLUGIN = Plugin(config=CompatibleConfig, build=CompatibleJudge)

"""A judge that writes one line, on disk, for each attempt it makes: what was really sent."""

import os
from pathlib import Path

import anyio
from pydantic import BaseModel, ConfigDict

from orchestrator.core.money import ceiling_cost
from orchestrator.core.ports import Plugin
from orchestrator.core.wire import Finish, Reply, Usage


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    log: str
    latency_s: float = 0.02


class CountingJudge:
    def __init__(self, config, setting):
        self._log = Path(config.log)
        self._latency_s = config.latency_s
        self._max_output_tok = setting.max_output_tok

    def ceiling(self, request, card):
        return ceiling_cost(100, request.max_output_tok, card)

    async def send(self, request):
        unit = request.query.units[0]
        with self._log.open("a", encoding="ascii") as file:
            file.write(f"{unit}\n")
            file.flush()
            os.fsync(file.fileno())
        await anyio.sleep(self._latency_s * (1 + unit % 3))
        usage = Usage(input_tok=100, output_tok=10)
        return Reply(text=f'{{"score": {1 + unit * 7 % 5}}}', finish=Finish.STOP, usage=usage)

    async def aclose(self):
        pass


PLUGIN = Plugin(config=Config, build=CountingJudge)

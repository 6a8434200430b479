"""Stands where a judge would, in a task in which a key or recorded verdicts decide everything."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from orchestrator.core.errors import BadRequest
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.ports import JudgeSetting, Plugin
from orchestrator.core.wire import Reply, Request


class KeyConfig(BaseModel):
    """It has no keys of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Key:
    """Answers nothing, for nothing: what it is asked about is decided before it is called."""

    def __init__(self, config: KeyConfig, setting: JudgeSetting) -> None:
        del config
        self._name = setting.name

    def ceiling(self, request: Request, card: PriceCard) -> Nano:
        """Give the price of no call."""
        del request, card
        return Nano(0)

    async def send(self, request: Request) -> Reply:
        """Refuse to be asked.

        Raises
        ------
        BadRequest
            Always: the task leaves something to a judge, and this is none.
        """
        raise BadRequest(
            f"{self._name} is no judge, and unit {request.query.units[0]} is undecided"
        )

    async def aclose(self) -> None:
        """Close nothing."""


PLUGIN = Plugin(config=KeyConfig, build=Key)

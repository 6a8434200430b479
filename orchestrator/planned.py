"""What a campaign file may say already and Sortition can't do yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.core.errors import Problem

if TYPE_CHECKING:
    from orchestrator.campaign_file import Campaign
    from orchestrator.config import CampaignFile


def refused(file: CampaignFile) -> list[Problem]:
    """List what the campaign asks for and can't be run yet."""
    return [
        file.locate(path, f"{what} is planned and not built yet")
        for path, what in _unbuilt(file.campaign)
    ]


def _unbuilt(campaign: Campaign) -> Iterator[tuple[str, str]]:
    for index, one in enumerate(campaign.asked):
        if one.lane == "batch":
            yield f"{campaign.place(index)}.lane", "batch"
    stop = campaign.stop
    if stop.checking == "group_sequential" and campaign.policy.kind != "batch_design":
        yield "stop.check", stop.checking
    if "junit" in campaign.output.formats:
        yield "output.formats", "junit"

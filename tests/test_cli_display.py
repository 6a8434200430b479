"""What is shown while a run goes on: never silent about why nothing moves."""

from __future__ import annotations

import pytest

from orchestrator.cli.display import Display, watching
from orchestrator.report.screen import JudgeProgress, Progress

WAITING = "429: waiting 6.2 s (server asked 6)"


@pytest.mark.parametrize("display", [Display.PLAIN, Display.LOG, Display.JSON])
def test_every_plain_display_says_why_it_waits(display, capsys):
    progress = Progress(judges=(JudgeProgress(name="small", waiting=WAITING),))
    with watching(display) as observe:
        observe(progress, [])
        observe(progress, [])
    assert capsys.readouterr().err.count(WAITING) == 1

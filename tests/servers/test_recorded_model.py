"""What a real language model said of the quickstart's replies, as it was recorded."""

import json
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "real-model.md"


def test_the_report_says_plainly_that_a_judge_is_useless(sortition, tmp_path):
    """Its marks follow the place of the criterion, and agree with no one, itself included.

    The recording holds no order: it is drawn again, so the effect shows only while seed, items and
    the judge's place in the list are those of the recording.
    """
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    code, out, _ = sortition("run", "configs/useless-judge.yaml", "--run-dir", "run")
    assert code == 0
    shown = PAGE.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0].splitlines()
    assert len(shown) == 3
    assert out.splitlines()[:3] == shown

    result = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    effects = {effect["judge"]: effect for effect in result["diagnostics"]["places"]}
    assert effects["gemma-270m"]["spread"] > 3.5
    assert max(effects["large"]["spread"], effects["mid"]["spread"]) < 0.2
    for judge in result["judges"]:
        is_useless = judge["name"] == "gemma-270m"
        for scores in judge["scores"].values():
            assert (scores["signal"]["lower"] < 0) == is_useless
            assert (scores["with_others"]["lower"] < 0) == is_useless

"""Environment variables from files."""

import pytest

from orchestrator.core.errors import InvalidCampaign
from orchestrator.dotenv import load_dotenv


def env(tmp_path, text, environ=None, name=".env", files=()):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return load_dotenv(environ or {}, folder=tmp_path, files=files)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("KEY=plain", "plain"),
        ("export KEY = spaced out  ", "spaced out"),
        ("KEY='single # \\n'", "single # \\n"),
        ('KEY="double \\"quoted\\" # \\n"', 'double "quoted" # \n'),
        ("KEY=with#hash # a comment", "with#hash"),
        ("KEY=a=b", "a=b"),
        ("KEY=", ""),
        ("KEY=''", ""),
        ("\ufeffKEY=bom", "bom"),
        ("# KEY=x\n\nKEY=größe\r", "größe"),
    ],
)
def test_lines_are_read_as_a_shell_would(tmp_path, line, value):
    assert env(tmp_path, line) == {"KEY": value}


def test_the_shell_wins(tmp_path):
    assert env(tmp_path, "KEY=file\nMORE=1", {"KEY": "shell"}) == {"KEY": "shell", "MORE": "1"}


def test_a_later_file_wins(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("KEY=1\nA=1")
    second.write_text("KEY=2")
    found = env(tmp_path, "KEY=0\nE=0", files=[first, second])
    assert found == {"KEY": "2", "A": "1", "E": "0"}


def test_reading_of_itself_can_be_turned_off(tmp_path):
    off = {"SORTITION_DISABLE_DOTENV": "1"}
    named = tmp_path / "named"
    named.write_text("B=1")
    assert env(tmp_path, "A=1", off) == off
    assert env(tmp_path, "A=1", off, files=[named]) == {"B": "1", **off}


def test_unreadable_lines_are_problems_that_show_no_value(tmp_path):
    with pytest.raises(InvalidCampaign) as caught:
        env(tmp_path, "A=1\nsk-CANARY\nB='sk-CANARY\n2C=sk-CANARY\n", files=[tmp_path / "none"])
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4, None]
    assert "CANARY" not in str(caught.value)

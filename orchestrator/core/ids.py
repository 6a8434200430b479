"""Zero-based indices used everywhere inside; labels live in `Frame` and `Study` only."""

from typing import NewType

ItemIx = NewType("ItemIx", int)
ArmIx = NewType("ArmIx", int)
UnitIx = NewType("UnitIx", int)
"""A unit is one (item, arm); units are numbered by `Frame`."""
JudgeIx = NewType("JudgeIx", int)
QNo = NewType("QNo", int)
"""Question number: the order of asking, from 0, never reused."""
Seq = NewType("Seq", int)
"""Position of an event in the log, from 1."""

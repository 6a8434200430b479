"""Vocabulary: values, events, ports. Standard library and numpy only; no I/O, no async."""

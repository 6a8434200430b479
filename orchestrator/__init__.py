"""Adaptive, budget-capped evaluation with LLM judges."""

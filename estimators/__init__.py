"""Estimators: what the verdicts say."""

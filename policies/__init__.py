"""Policies: what to ask next."""

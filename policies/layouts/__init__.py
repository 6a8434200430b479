"""Layouts: which items share a batch, and in which order a judge sees them."""

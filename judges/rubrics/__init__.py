"""Rubrics: from a question to a request, from a reply to a verdict."""

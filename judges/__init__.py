"""Judges: one adapter a file, and the rubrics that put questions into words."""

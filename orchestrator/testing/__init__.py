"""Contract suites and fakes for authors of plug-ins. Imported by tests only."""

"""Where the log lives: SQLite, or memory for tests and dry runs."""

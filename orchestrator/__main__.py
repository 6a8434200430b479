"""``python -m orchestrator`` is the command `sortition`."""

from orchestrator.cli import main

if __name__ == "__main__":
    main()

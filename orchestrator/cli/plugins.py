"""The command that lists plug-ins: `plugins`."""

from __future__ import annotations

from orchestrator.cli.common import AsJson, app, print_json, print_table, say


@app.command()
def plugins(as_json: AsJson = False) -> None:
    """List the kinds of judges, policies and estimators, and where each comes from."""
    from orchestrator.registry import NOUNS, known, offers

    found = []
    for group in NOUNS:
        for kind in known(group):
            for offer in offers(group, kind):
                status = "plug-in" if offer.distribution else "built-in"
                found.append((group, kind, status, offer.place, offer.distribution))
    if as_json:
        keys = ("group", "kind", "status", "place", "distribution")
        print_json([dict(zip(keys, row, strict=True)) for row in found])
        return
    print_table(("group", "kind", "", "where", "from"), found)
    names = [row[:2] for row in found]
    for group, kind in sorted({name for name in names if names.count(name) > 1}):
        say(f"warning: {kind} names several {group}; a file has to name one as module:ATTRIBUTE")

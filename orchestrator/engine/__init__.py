"""The decider, its ledger and the workers around it. Imports core alone."""

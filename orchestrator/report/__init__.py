"""Pure summaries of a log: result, status, report, exports. Imports core alone."""

-- One run. The log is the truth; everything else in the run directory can be made again from it.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    link BLOB NOT NULL, -- hash over all rows up to this one
    at REAL NOT NULL    -- POSIX seconds, informational
) STRICT;
CREATE TABLE blobs (digest TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT, WITHOUT ROWID;
-- Rewritten in each commit: what `status` shows, and where the log is known to end.
CREATE TABLE progress (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL,
    link BLOB NOT NULL,
    body TEXT NOT NULL
) STRICT;

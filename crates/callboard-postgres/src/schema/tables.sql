-- The tables of version 1 of the schema. `to_N.sql` brings them to version N.

CREATE TABLE callboard.schema_version (version integer NOT NULL);

-- Revisions, and ids of sessions and lanes: the next number of the sequence above the base, see `callboard.base`. A sequence gives no
-- number out twice, also not after a crash.
CREATE SEQUENCE callboard.numbers;

-- One row: the timeline in which was written last.
CREATE TABLE callboard.server (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    timeline bigint NOT NULL,
    base bigint NOT NULL DEFAULT 0
);

-- One row for each stream. `last` changes with each append; no index has it, so that the change stays in the page.
CREATE TABLE callboard.streams (
    stream bytea PRIMARY KEY,
    last bigint NOT NULL,
    purged bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

CREATE TABLE callboard.journal (
    stream bytea NOT NULL,
    sequence bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (stream, sequence)
);

CREATE TABLE callboard.entries (
    key bytea PRIMARY KEY,
    revision bigint NOT NULL,
    expires bigint,
    value bytea NOT NULL
) WITH (fillfactor = 90);

CREATE INDEX entries_expires ON callboard.entries (expires) WHERE expires IS NOT NULL;

-- What was written under the prefix that is watched, for the watches of other handles. Rows are removed after ten minutes.
CREATE TABLE callboard.changes (
    revision bigint PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    lane bigint NOT NULL,
    key bytea NOT NULL,
    written timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX changes_xid ON callboard.changes (xid);

-- One row for each handle that writes: the batch that it committed last, and the answers to it.
CREATE TABLE callboard.lanes (
    lane bigint PRIMARY KEY,
    timeline bigint NOT NULL,
    base bigint NOT NULL,
    batch bigint NOT NULL DEFAULT 0,
    moment bigint NOT NULL DEFAULT 0,
    outcomes smallint[] NOT NULL DEFAULT '{}',
    numbers bigint[] NOT NULL DEFAULT '{}',
    seen timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- One row for each board that works, and those that have ended, until they are forgotten. One of an earlier timeline has ended, whatever
-- its lease says: what its board was told is written may be lost. Each batch of writes of a session locks its row
-- (FOR KEY SHARE); who ends the session waits for that.
CREATE TABLE callboard.sessions (
    id bigint PRIMARY KEY,
    name bytea NOT NULL,
    about bytea NOT NULL,
    lease bigint NOT NULL,
    until bigint,
    timeline bigint NOT NULL,
    token text NOT NULL
) WITH (fillfactor = 50);

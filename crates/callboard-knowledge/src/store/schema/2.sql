-- The results of changes get numbers in the order in which they were made: the oldest are forgotten.
ALTER TABLE kb_done RENAME TO kb_done_without_numbers;
CREATE TABLE kb_done (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    at INTEGER NOT NULL,
    result TEXT NOT NULL
) STRICT;
INSERT INTO kb_done (key, at, result) SELECT key, at, result FROM kb_done_without_numbers ORDER BY at, key;
DROP TABLE kb_done_without_numbers;

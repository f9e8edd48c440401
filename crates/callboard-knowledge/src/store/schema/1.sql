-- What was read: files, and what else has a name of its own.
CREATE TABLE kb_documents (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    path TEXT NOT NULL,
    title TEXT NOT NULL,
    hash BLOB NOT NULL,
    read_at INTEGER NOT NULL,
    is_untrusted INTEGER NOT NULL,
    UNIQUE (namespace, path)
) STRICT;

-- What is searched: passages of documents, and facts. A row is never deleted; it ends.
CREATE TABLE kb_items (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    document INTEGER REFERENCES kb_documents,
    ordinal INTEGER,
    anchor TEXT,
    first_line INTEGER,
    last_line INTEGER,
    title TEXT NOT NULL,
    -- The parts of the identifiers in title and body.
    names TEXT NOT NULL,
    body TEXT NOT NULL,
    since INTEGER NOT NULL,
    ended_at INTEGER
) STRICT;
CREATE INDEX kb_items_of_document ON kb_items (document, ordinal) WHERE document IS NOT NULL;

CREATE TABLE kb_facts (
    item INTEGER PRIMARY KEY REFERENCES kb_items,
    fact BLOB NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    subject TEXT,
    predicate TEXT,
    value TEXT,
    subject_form TEXT,
    predicate_form TEXT,
    value_form TEXT,
    state TEXT NOT NULL CHECK (state IN ('current', 'disputed', 'invalid')),
    valid_from INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    source_count INTEGER NOT NULL
) STRICT;
CREATE INDEX kb_facts_of_subject ON kb_facts (namespace, subject_form, predicate_form) WHERE subject_form IS NOT NULL;
CREATE INDEX kb_facts_of_state ON kb_facts (state) WHERE state <> 'current';

-- The ids of all normal forms in which a fact was stated.
CREATE TABLE kb_forms (
    form BLOB PRIMARY KEY,
    item INTEGER NOT NULL REFERENCES kb_facts
) STRICT, WITHOUT ROWID;

CREATE TABLE kb_sources (
    item INTEGER NOT NULL REFERENCES kb_facts,
    ordinal INTEGER NOT NULL,
    submitter TEXT NOT NULL,
    place TEXT,
    run TEXT,
    turn INTEGER,
    at INTEGER NOT NULL,
    is_untrusted INTEGER NOT NULL,
    PRIMARY KEY (item, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE kb_history (
    item INTEGER NOT NULL REFERENCES kb_facts,
    revision INTEGER NOT NULL,
    at INTEGER NOT NULL,
    change TEXT NOT NULL,
    state TEXT NOT NULL,
    changer TEXT NOT NULL,
    run TEXT,
    reason TEXT NOT NULL,
    PRIMARY KEY (item, revision)
) STRICT, WITHOUT ROWID;

CREATE TABLE kb_contradictions (
    item INTEGER NOT NULL REFERENCES kb_facts,
    other INTEGER NOT NULL REFERENCES kb_facts,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (item, other)
) STRICT, WITHOUT ROWID;
CREATE INDEX kb_contradictions_of_other ON kb_contradictions (other);

CREATE TABLE kb_predicates (
    namespace TEXT NOT NULL,
    form TEXT NOT NULL,
    is_single INTEGER NOT NULL,
    PRIMARY KEY (namespace, form)
) STRICT, WITHOUT ROWID;

-- The results of changes by the keys of those who asked for them: a change that is asked for again answers from here.
CREATE TABLE kb_done (
    key TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    result TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE kb_graph_entities (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    form TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    UNIQUE (namespace, form)
) STRICT;

-- Which item mentions, defines or links to which entity.
CREATE TABLE kb_graph_mentions (
    entity INTEGER NOT NULL REFERENCES kb_graph_entities,
    item INTEGER NOT NULL REFERENCES kb_items,
    relation TEXT NOT NULL CHECK (relation IN ('mentions', 'links', 'defines', 'part_of', 'supersedes')),
    deleted_at INTEGER,
    PRIMARY KEY (entity, item, relation)
) STRICT, WITHOUT ROWID;
CREATE INDEX kb_graph_mentions_of_item ON kb_graph_mentions (item);

CREATE TABLE kb_graph_edges (
    id INTEGER PRIMARY KEY,
    source INTEGER NOT NULL REFERENCES kb_graph_entities,
    target INTEGER NOT NULL REFERENCES kb_graph_entities,
    relation TEXT NOT NULL CHECK (relation IN ('mentions', 'links', 'defines', 'part_of', 'supersedes')),
    UNIQUE (source, target, relation)
) STRICT;
CREATE INDEX kb_graph_edges_of_target ON kb_graph_edges (target);

-- Which items support an edge. A row is marked when its item ends, and the edge goes with its last row that is not marked.
CREATE TABLE kb_graph_provenance (
    edge INTEGER NOT NULL,
    item INTEGER NOT NULL REFERENCES kb_items,
    deleted_at INTEGER,
    PRIMARY KEY (edge, item)
) STRICT, WITHOUT ROWID;
CREATE INDEX kb_graph_provenance_of_item ON kb_graph_provenance (item);

-- One index for what holds, one for what held: what has ended does not change the ranks of what holds.
CREATE VIEW kb_current AS SELECT id, title, names, body FROM kb_items WHERE ended_at IS NULL;
CREATE VIEW kb_past AS SELECT id, title, names, body FROM kb_items WHERE ended_at IS NOT NULL;
CREATE VIRTUAL TABLE kb_text USING fts5 (
    title, names, body,
    content = 'kb_current', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE kb_text_past USING fts5 (
    title, names, body,
    content = 'kb_past', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE kb_text_words USING fts5vocab ('kb_text', 'row');

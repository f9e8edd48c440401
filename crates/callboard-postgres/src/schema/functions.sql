-- Milliseconds since 1970: the given ones, which only tests give, or the server's.
CREATE OR REPLACE FUNCTION callboard.millis(at bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(at, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- The timeline of the server. It grows when a standby is promoted and when a backup was restored.
CREATE OR REPLACE FUNCTION callboard.timeline() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
$$;

-- What is added to numbers of the sequence. A new timeline may lack the last numbers that were given out, so it begins far above them.
CREATE OR REPLACE FUNCTION callboard.base(this_timeline bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    UPDATE callboard.server SET timeline = this_timeline, base = base + 4294967296 WHERE timeline <> this_timeline;
    RETURN (SELECT base FROM callboard.server);
END
$$;

-- A new lane; its id was never another's.
CREATE OR REPLACE FUNCTION callboard.register_lane() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    this_timeline bigint := callboard.timeline();
    this_base bigint := callboard.base(this_timeline);
    registered bigint;
BEGIN
    INSERT INTO callboard.lanes AS l (lane, timeline, base)
        VALUES (this_base + nextval('callboard.numbers'), this_timeline, this_base)
        RETURNING l.lane INTO registered;
    RETURN registered;
END
$$;

-- The steps of a batch as sets of rows, in two thirds of the time that one after the other takes. It makes the appends, then the puts,
-- then the deletes, and fails with CB003 where the order of the arrays could have made a difference: if it has a purge or a put with an
-- expected revision, if an append is refused, if a stream has several, if a key is put and deleted, or deleted after a delete that was refused.
-- Two puts of one key fail with 21000. Batches of two boards that have keys in common may wait for each other; then one is taken back, and sent again.
--
-- `= ANY (ARRAY[…])` can be neither merged nor hashed, so that no plan, also none for tables that are empty, reads a whole table.
CREATE OR REPLACE FUNCTION callboard.write_sets(
    this_lane bigint, this_base bigint, moment bigint,
    kinds smallint[], keys bytea[], firsts bigint[], seconds bigint[], feeds boolean[], bodies bytea[],
    OUT outcomes smallint[], OUT answers bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    begun bigint;
    continued bigint;
    others bigint;
    made bigint;
    put_keys bytea[];
    revisions bigint[];
    first_revision bigint;
    deleted_steps bigint[];
    deleted_keys bytea[];
    were_there boolean[];
    next_put integer := 1;
    next_deleted integer := 1;
    found_revision bigint;
    is_there boolean;
BEGIN
    SELECT count(*) FILTER (WHERE kind = 1 AND first = 0), count(*) FILTER (WHERE kind = 1 AND first > 0),
            count(*) FILTER (WHERE kind = 4 OR kind = 2 AND first >= 0)
        INTO begun, continued, others FROM unnest(kinds, firsts) AS step (kind, first);
    IF others > 0 THEN
        RAISE SQLSTATE 'CB003';
    END IF;
    -- First, so that several appends to one stream are found before anything is written.
    UPDATE callboard.streams AS s SET last = s.last + 1
        FROM unnest(kinds, keys, firsts) AS step (kind, key, first)
        WHERE step.kind = 1 AND step.first > 0 AND s.stream = ANY (ARRAY[step.key]) AND s.last = step.first;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made <> continued THEN
        RAISE SQLSTATE 'CB003';
    END IF;
    INSERT INTO callboard.streams (stream, last)
        SELECT key, 1 FROM unnest(kinds, keys, firsts) AS step (kind, key, first) WHERE kind = 1 AND first = 0
        ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made <> begun THEN
        RAISE SQLSTATE 'CB003';
    END IF;
    INSERT INTO callboard.journal (stream, sequence, body)
        SELECT key, first + 1, body FROM unnest(kinds, keys, firsts, bodies) AS step (kind, key, first, body) WHERE kind = 1;
    WITH put AS (
        INSERT INTO callboard.entries AS e (key, revision, expires, value)
            SELECT key, this_base + nextval('callboard.numbers'), CASE WHEN second >= 0 THEN moment + second END, body
            FROM unnest(kinds, keys, seconds, bodies) AS step (kind, key, second, body) WHERE kind IN (2, 5)
            ON CONFLICT (key) DO UPDATE
            SET revision = this_base + nextval('callboard.numbers'), expires = excluded.expires, value = excluded.value
            RETURNING e.key, e.revision)
        SELECT array_agg(key), array_agg(revision), min(revision) INTO put_keys, revisions, first_revision FROM put;
    WITH deleted AS (
        DELETE FROM callboard.entries AS e
            USING unnest(kinds, keys, firsts) WITH ORDINALITY AS step (kind, key, first, number)
            WHERE e.key = ANY (ARRAY[step.key]) AND (step.kind = 6
                OR step.kind = 3 AND e.revision = step.first AND (e.expires IS NULL OR e.expires > moment))
            RETURNING step.number, e.key, e.revision, e.expires IS NULL OR e.expires > moment AS was_there)
        SELECT array_agg(number), array_agg(key), array_agg(was_there), max(revision)
            INTO deleted_steps, deleted_keys, were_there, found_revision FROM deleted;
    IF found_revision >= first_revision THEN
        RAISE SQLSTATE 'CB003';
    END IF;
    outcomes := array_fill(0::smallint, ARRAY[cardinality(kinds)]);
    answers := array_fill(0::bigint, ARRAY[cardinality(kinds)]);
    FOR i IN 1..cardinality(kinds) LOOP
        IF kinds[i] = 1 THEN
            answers[i] := firsts[i] + 1;
        ELSIF kinds[i] IN (2, 5) THEN
            IF put_keys[next_put] IS DISTINCT FROM keys[i] THEN
                RAISE SQLSTATE 'CB003';
            END IF;
            answers[i] := revisions[next_put];
            next_put := next_put + 1;
        ELSIF deleted_steps[next_deleted] = i THEN
            IF were_there[next_deleted] THEN
                answers[i] := this_base + nextval('callboard.numbers');
            END IF;
            next_deleted := next_deleted + 1;
        ELSIF kinds[i] = 3 THEN
            SELECT revision, expires IS NULL OR expires > moment INTO found_revision, is_there FROM callboard.entries
                WHERE key = keys[i];
            IF found_revision >= first_revision OR keys[i] = ANY (deleted_keys[next_deleted:]) THEN
                RAISE SQLSTATE 'CB003';
            END IF;
            outcomes[i] := 3;
            answers[i] := CASE WHEN is_there THEN found_revision ELSE 0 END;
        END IF;
    END LOOP;
    IF next_deleted <= cardinality(deleted_steps) THEN
        RAISE SQLSTATE 'CB003';
    END IF;
    INSERT INTO callboard.changes (revision, lane, key)
        SELECT answer, this_lane, key
            FROM unnest(kinds, feeds, outcomes, answers, keys) AS step (kind, is_fed, outcome, answer, key)
            WHERE kind <> 1 AND is_fed AND outcome = 0 AND answer > 0;
END
$$;

-- One batch of writes, in the order of the arrays. A write that is refused has an outcome and changes nothing; it is no error, so
-- that the others of the batch are made. A batch that was committed already has its answers returned, and is not made again.
--
-- kinds:    1 append, 2 put, 3 delete, 4 purge; after an append its riders: 5 put, 6 delete
-- sessions: the session of the write, 0 for none
-- firsts:   of an append the expected sequence, of a put the expected revision (-1 any, 0 absent), of a delete the revision (-1 any),
--           of a purge the last sequence
-- seconds:  of a put the milliseconds until it expires (-1 never)
-- feeds:    whether watches of other handles are to see it
-- outcomes: 0 made, 1 another sequence, 3 another revision, 4 the session has ended, 5 a rider of a refused append
-- answers:  the sequence or revision; of a refusal the actual sequence or revision (0 none)
CREATE OR REPLACE FUNCTION callboard.write(
    this_lane bigint, this_batch bigint, at bigint,
    kinds smallint[], keys bytea[], sessions bigint[], firsts bigint[], seconds bigint[], feeds boolean[], bodies bytea[],
    OUT moment bigint, OUT outcomes smallint[], OUT answers bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    count integer := cardinality(kinds);
    setting text;
    committed bigint;
    this_timeline bigint;
    lane_timeline bigint;
    this_base bigint;
    kind smallint;
    this_key bytea;
    this_session bigint := 0;
    is_alive boolean := true;
    is_admitted boolean := false;
    expected bigint;
    ends bigint;
    outcome smallint;
    answer bigint;
    found_last bigint;
    was_there boolean;
BEGIN
    -- Plans are kept for the life of the connection, also those that were made while a table was small.
    setting := set_config('enable_seqscan', 'off', true);
    -- A batch that is acknowledged is on disk, whatever the database has as its default.
    IF current_setting('synchronous_commit') = 'off' THEN
        setting := set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT l.batch, l.moment, l.outcomes, l.numbers, l.timeline, l.base
        INTO committed, moment, outcomes, answers, lane_timeline, this_base
        FROM callboard.lanes AS l WHERE l.lane = this_lane FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the row of lane % is gone', this_lane USING ERRCODE = 'CB001';
    END IF;
    IF committed = this_batch THEN
        RETURN;
    END IF;
    IF committed > this_batch THEN
        RAISE EXCEPTION 'batch % of lane % comes after batch %', this_batch, this_lane, committed USING ERRCODE = 'CB002';
    END IF;
    this_timeline := callboard.timeline();
    IF this_timeline <> lane_timeline THEN
        this_base := callboard.base(this_timeline);
    END IF;
    moment := callboard.millis(at);
    <<writes>>
    BEGIN
        -- With fewer, a subtransaction and statements for many rows save nothing.
        IF count >= 32 AND sessions[1] <> 0 AND sessions = array_fill(sessions[1], ARRAY[count]) THEN
            PERFORM FROM callboard.sessions AS s WHERE s.id = sessions[1] AND s.until IS NOT NULL AND s.timeline = this_timeline
                FOR KEY SHARE;
            IF FOUND THEN
                BEGIN
                    SELECT w.outcomes, w.answers INTO outcomes, answers FROM callboard.write_sets(
                        this_lane, this_base, moment, kinds, keys, firsts, seconds, feeds, bodies) AS w;
                    EXIT writes;
                EXCEPTION WHEN SQLSTATE 'CB003' OR cardinality_violation OR insufficient_privilege THEN
                    -- One after the other, then. Of a schema whose owner gives no rights by default, the role may lack that of the function.
                    NULL;
                END;
            END IF;
        END IF;
        outcomes := array_fill(0::smallint, ARRAY[count]);
        answers := array_fill(0::bigint, ARRAY[count]);
        FOR i IN 1..count LOOP
            kind := kinds[i];
            this_key := keys[i];
            expected := firsts[i];
            outcome := 0;
            answer := 0;
            IF sessions[i] <> this_session THEN
                this_session := sessions[i];
                PERFORM FROM callboard.sessions AS s WHERE s.id = this_session AND s.until IS NOT NULL AND s.timeline = this_timeline
                    FOR KEY SHARE;
                is_alive := FOUND OR this_session = 0;
            END IF;
            IF NOT is_alive THEN
                outcome := 4;
                is_admitted := false;
            ELSIF kind >= 5 AND NOT is_admitted THEN
                outcome := 5;
            ELSIF kind = 1 THEN
                LOOP
                    IF expected = 0 THEN
                        INSERT INTO callboard.streams (stream, last) VALUES (this_key, 1) ON CONFLICT DO NOTHING;
                        EXIT WHEN FOUND;
                    END IF;
                    UPDATE callboard.streams SET last = last + 1 WHERE stream = this_key AND last = expected;
                    EXIT WHEN FOUND;
                    SELECT last INTO found_last FROM callboard.streams WHERE stream = this_key;
                    found_last := coalesce(found_last, 0);
                    IF found_last <> expected THEN
                        outcome := 1;
                        answer := found_last;
                    END IF;
                    -- Neither: another transaction has just made it as expected.
                    EXIT WHEN outcome <> 0;
                END LOOP;
                is_admitted := outcome = 0;
                IF is_admitted THEN
                    answer := expected + 1;
                    INSERT INTO callboard.journal (stream, sequence, body) VALUES (this_key, answer, bodies[i]);
                END IF;
            ELSIF kind IN (2, 5) THEN
                ends := CASE WHEN seconds[i] >= 0 THEN moment + seconds[i] END;
                LOOP
                    -- The revision is drawn when the row is locked, so that revisions of one key grow.
                    IF expected = -1 THEN
                        INSERT INTO callboard.entries AS e (key, revision, expires, value)
                            VALUES (this_key, this_base + nextval('callboard.numbers'), ends, bodies[i])
                            ON CONFLICT (key) DO UPDATE
                            SET revision = this_base + nextval('callboard.numbers'), expires = excluded.expires, value = excluded.value
                            RETURNING e.revision INTO answer;
                    ELSIF expected = 0 THEN
                        INSERT INTO callboard.entries AS e (key, revision, expires, value)
                            VALUES (this_key, this_base + nextval('callboard.numbers'), ends, bodies[i])
                            ON CONFLICT (key) DO UPDATE
                            SET revision = this_base + nextval('callboard.numbers'), expires = excluded.expires, value = excluded.value
                            WHERE e.expires <= moment
                            RETURNING e.revision INTO answer;
                    ELSE
                        UPDATE callboard.entries SET revision = this_base + nextval('callboard.numbers'), expires = ends, value = bodies[i]
                            WHERE key = this_key AND revision = expected AND (expires IS NULL OR expires > moment)
                            RETURNING revision INTO answer;
                    END IF;
                    EXIT WHEN FOUND;
                    SELECT revision INTO answer FROM callboard.entries
                        WHERE key = this_key AND (expires IS NULL OR expires > moment);
                    answer := coalesce(answer, 0);
                    IF answer <> expected THEN
                        outcome := 3;
                        EXIT;
                    END IF;
                END LOOP;
                IF outcome = 0 AND feeds[i] THEN
                    INSERT INTO callboard.changes (revision, lane, key) VALUES (answer, this_lane, this_key);
                END IF;
            ELSIF kind IN (3, 6) THEN
                DELETE FROM callboard.entries
                    WHERE key = this_key AND (expected = -1 OR revision = expected AND (expires IS NULL OR expires > moment))
                    RETURNING expires IS NULL OR expires > moment INTO was_there;
                IF FOUND THEN
                    -- What has expired was absent already.
                    IF was_there THEN
                        answer := this_base + nextval('callboard.numbers');
                        IF feeds[i] THEN
                            INSERT INTO callboard.changes (revision, lane, key) VALUES (answer, this_lane, this_key);
                        END IF;
                    END IF;
                ELSIF kind = 3 THEN
                    outcome := 3;
                    SELECT revision INTO answer FROM callboard.entries
                        WHERE key = this_key AND (expires IS NULL OR expires > moment);
                    answer := coalesce(answer, 0);
                END IF;
            ELSE
                UPDATE callboard.streams SET purged = greatest(purged, least(expected, last))
                    WHERE stream = this_key
                    RETURNING last - purged INTO found_last;
                IF FOUND THEN
                    DELETE FROM callboard.journal WHERE stream = this_key AND sequence <= expected;
                    IF found_last = 0 THEN
                        DELETE FROM callboard.streams WHERE stream = this_key;
                    END IF;
                END IF;
            END IF;
            outcomes[i] := outcome;
            answers[i] := answer;
        END LOOP;
    END writes;
    UPDATE callboard.lanes SET batch = this_batch, moment = write.moment, outcomes = write.outcomes, numbers = write.answers,
            timeline = this_timeline, base = this_base, seen = clock_timestamp()
        WHERE lane = this_lane;
END
$$;

-- The id of the session; null if the name is taken, by one that says `taken_about` and whose lease lasts `taken_left` milliseconds. A
-- repeated call, of the same token, has the same answer.
CREATE OR REPLACE FUNCTION callboard.begin_session(
    this_name bytea, this_about bytea, this_lease bigint, this_token text, at bigint,
    OUT session bigint, OUT taken_about bytea, OUT taken_left bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moment bigint;
    this_timeline bigint := callboard.timeline();
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('callboard.sessions' || encode(this_name, 'hex'), 0));
    moment := callboard.millis(at);
    SELECT id INTO session FROM callboard.sessions WHERE name = this_name AND token = this_token;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT about, until - moment INTO taken_about, taken_left FROM callboard.sessions
        WHERE name = this_name AND until > moment AND timeline = this_timeline LIMIT 1;
    IF NOT FOUND THEN
        INSERT INTO callboard.sessions AS s (id, name, about, lease, until, timeline, token)
            VALUES (callboard.base(this_timeline) + nextval('callboard.numbers'), this_name, this_about, this_lease,
                moment + this_lease, this_timeline, this_token)
            RETURNING s.id INTO session;
    END IF;
END
$$;

-- The milliseconds that the lease of a session lasts, of its columns.
CREATE OR REPLACE FUNCTION callboard.session_left(until bigint, timeline bigint, at bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN timeline = callboard.timeline() THEN greatest(until - callboard.millis(at), 0) ELSE 0 END
$$;

-- The milliseconds that the lease lasts, if it had to be over and is not; else null.
CREATE OR REPLACE FUNCTION callboard.end_session(
    this_session bigint, only_if_expired boolean, at bigint, OUT lives bigint
) LANGUAGE plpgsql AS $$
BEGIN
    -- Looked at without the lock first: the lock holds up the writes of a session that lives.
    SELECT callboard.session_left(s.until, s.timeline, at) INTO lives FROM callboard.sessions AS s WHERE s.id = this_session;
    IF only_if_expired AND lives > 0 THEN
        RETURN;
    END IF;
    PERFORM FROM callboard.sessions AS s WHERE s.id = this_session FOR UPDATE;
    SELECT callboard.session_left(s.until, s.timeline, at) INTO lives FROM callboard.sessions AS s WHERE s.id = this_session;
    IF NOT only_if_expired OR lives <= 0 THEN
        lives := NULL;
        UPDATE callboard.sessions AS s SET until = NULL WHERE s.id = this_session AND s.until IS NOT NULL;
    END IF;
END
$$;

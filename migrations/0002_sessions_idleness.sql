-- Sessions: their bounds hang on one another, so a commit looks for those of a
-- group that overlap a stretch of time. No two of a group overlap, hence the
-- one that began last before the stretch, and those that began within it.
ALTER TABLE windows ADD COLUMN session boolean NOT NULL DEFAULT false;

CREATE INDEX windows_sessions ON windows (book_id, generation, rollup, group_key, start_ms)
    WHERE session;

-- The start of another window says when it ends; that of a session does not.
-- Every session ends after it starts: the condition keeps the planner from
-- taking this index where it is not asked for, to look for a group's sessions
-- among those of all groups, which it would do as long as it has no statistics.
CREATE INDEX windows_sessions_by_end ON windows (book_id, generation, rollup, end_ms)
    WHERE session AND end_ms > start_ms;

-- What the watermark of an idle book must come to, in event time, before a
-- window fires or closes. Null: not known, for something has happened since.
ALTER TABLE books ADD COLUMN due_ms bigint;

-- Books that were made before there was such a setting.
UPDATE books SET settings = settings || '{"idle_timeout_ms": 10000}'
WHERE NOT settings ? 'idle_timeout_ms';

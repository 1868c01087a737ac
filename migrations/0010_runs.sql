-- Runs: work on a book with a beginning and an end. At most one of a book is live.
CREATE TABLE runs (
    book_id        uuid   NOT NULL,
    id             uuid   NOT NULL,
    kind           text   NOT NULL,
    state          text   NOT NULL,
    -- What it is to do, as JSON of its kind.
    spec           jsonb  NOT NULL,
    -- Raised by whoever takes it over, and what it does is written only under the epoch of the one that
    -- does it.
    epoch          bigint NOT NULL DEFAULT 1,
    started_ms     bigint NOT NULL,
    finished_ms    bigint,
    error          text,
    -- Lines of an import, clicks of a recount.
    processed      bigint NOT NULL DEFAULT 0,
    total          bigint,
    -- Of an import: clicks that are new, and that were in the log; lines that cannot be read, the first
    -- of them with the reason; lines that rules leave out; the newest click.
    counted        bigint NOT NULL DEFAULT 0,
    duplicates     bigint NOT NULL DEFAULT 0,
    rejected       bigint NOT NULL DEFAULT 0,
    rejections     jsonb  NOT NULL DEFAULT '[]',
    skipped        jsonb  NOT NULL DEFAULT '{}',
    newest_ms      bigint,
    -- Of a recount: the windows that it makes; the first click that came after it began, and the
    -- watermark then; how far it is in the log as it found it, by id, and then in what came since, by
    -- sequence.
    generation     integer,
    first_seq      bigint,
    first_watermark_ms bigint,
    after_click    uuid,
    after_seq      bigint,
    -- Its newest progress frame, which the next one replaces.
    frame_position bigint,
    frame_ms       bigint,
    -- Windows that are nobody's once it has ended, and are removed bit by bit.
    swept          boolean NOT NULL DEFAULT true,
    CONSTRAINT runs_pkey PRIMARY KEY (book_id, id)
);

CREATE INDEX runs_live ON runs (book_id) WHERE state = 'running' OR NOT swept;

-- The clicks that came while a recount goes on, in their order: an index on the log itself would cost
-- every click a fifth.
CREATE TABLE recount_tail (
    book_id  uuid   NOT NULL,
    seq      bigint NOT NULL,
    click_id uuid   NOT NULL,
    CONSTRAINT recount_tail_pkey PRIMARY KEY (book_id, seq)
);

ALTER TABLE books
    -- The run that is live: until it has ended the book is not at rest.
    ADD COLUMN live_run uuid,
    -- Whether it is a recount, so that commits note their clicks in recount_tail.
    ADD COLUMN recounting boolean NOT NULL DEFAULT false,
    -- The highest generation that was ever given out.
    ADD COLUMN last_generation integer NOT NULL DEFAULT 0,
    -- The greatest event time of a click that retention has removed. What begins at or before it is not
    -- counted again, for it cannot be counted whole.
    ADD COLUMN clicks_removed_to_ms bigint;

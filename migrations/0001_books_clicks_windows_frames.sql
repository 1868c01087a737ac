-- The tables of the write path. Every key begins with the book, and every hot
-- statement joins on it, so that the tables can be spread by book.
-- Times are milliseconds since the epoch, UTC.

CREATE TABLE books (
    id                        uuid    NOT NULL CONSTRAINT books_pkey PRIMARY KEY,
    -- Set by people, seldom.
    slug                      text    NOT NULL,
    title                     text    NOT NULL,
    created_ms                bigint  NOT NULL,
    settings                  jsonb   NOT NULL,
    rollups                   jsonb   NOT NULL,
    origins                   text[]  NOT NULL,
    structure_version         bigint  NOT NULL DEFAULT 0,
    generation                integer NOT NULL DEFAULT 0,
    deleted                   boolean NOT NULL DEFAULT false,
    closed                    boolean NOT NULL DEFAULT false,
    watermark_before_close_ms bigint,
    -- Moved by every commit.
    next_seq                  bigint  NOT NULL DEFAULT 1,
    position                  bigint  NOT NULL DEFAULT 0,
    oldest                    bigint  NOT NULL DEFAULT 1,
    barrier                   bigint  NOT NULL DEFAULT 0,
    revision                  bigint  NOT NULL DEFAULT 0,
    watermark_ms              bigint,
    newest_event_ms           bigint,
    last_received_ms          bigint,
    received                  bigint  NOT NULL DEFAULT 0,
    on_time                   bigint  NOT NULL DEFAULT 0,
    late                      bigint  NOT NULL DEFAULT 0,
    dropped                   bigint  NOT NULL DEFAULT 0,
    duplicates                bigint  NOT NULL DEFAULT 0,
    filtered                  bigint  NOT NULL DEFAULT 0,
    rejected                  bigint  NOT NULL DEFAULT 0
    -- Half of each page is left free, and no index covers what a commit
    -- changes, so that the updates stay on their page (HOT).
) WITH (fillfactor = 50);

-- Slugs stand apart: a unique key that does not carry the book's id would keep
-- `books` from being spread by it.
CREATE TABLE book_slugs (
    slug    text NOT NULL CONSTRAINT book_slugs_pkey PRIMARY KEY,
    book_id uuid NOT NULL
);

-- The log of clicks: what was counted, or was too late to be, in the order of
-- `seq`, each with the watermark that it was judged against.
CREATE TABLE clicks (
    book_id             uuid   NOT NULL,
    click_id            uuid   NOT NULL,
    seq                 bigint NOT NULL,
    at_ms               bigint NOT NULL,
    received_ms         bigint NOT NULL,
    watermark_before_ms bigint,
    value_micros        bigint,
    page                text   NOT NULL,
    visitor             text,
    referrer            text,
    source              text,
    CONSTRAINT clicks_pkey PRIMARY KEY (book_id, click_id)
);

-- What happened to a book besides clicks, in the same sequence, so that a
-- replay reads it instead of a clock.
CREATE TABLE book_log (
    book_id     uuid   NOT NULL,
    seq         bigint NOT NULL,
    kind        text   NOT NULL,
    received_ms bigint NOT NULL,
    body        jsonb  NOT NULL,
    CONSTRAINT book_log_pkey PRIMARY KEY (book_id, seq)
);

-- One row for each window and group. `rollup` is the rollup's place in the
-- book's list; `weight` orders groups by size; `state` is what the aggregate
-- folds, and begins with its version.
CREATE TABLE windows (
    book_id    uuid     NOT NULL,
    start_ms   bigint   NOT NULL,
    end_ms     bigint   NOT NULL,
    weight     bigint   NOT NULL,
    changed_ms bigint   NOT NULL,
    generation integer  NOT NULL,
    rollup     smallint NOT NULL,
    fired      boolean  NOT NULL,
    group_key  text     COLLATE "C" NOT NULL,
    state      bytea    NOT NULL,
    CONSTRAINT windows_pkey PRIMARY KEY (book_id, generation, rollup, start_ms, end_ms, group_key)
) WITH (fillfactor = 70);

CREATE INDEX windows_unfired ON windows (book_id, generation, end_ms) WHERE NOT fired;

-- The bounded buffer of every book's event stream.
CREATE TABLE frames (
    book_id  uuid   NOT NULL,
    position bigint NOT NULL,
    event    text   NOT NULL,
    data     text   NOT NULL,
    CONSTRAINT frames_pkey PRIMARY KEY (book_id, position)
);

CREATE TABLE tokens (
    id         uuid   NOT NULL CONSTRAINT tokens_pkey PRIMARY KEY,
    -- SHA-256 of the token; the token itself is stored nowhere.
    hash       bytea  NOT NULL CONSTRAINT tokens_hash_key UNIQUE,
    -- Null: every book.
    books      uuid[],
    scopes     text[] NOT NULL,
    label      text,
    created_ms bigint NOT NULL,
    expires_ms bigint
);

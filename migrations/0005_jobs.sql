-- Where jobs stand: each reads a source for one book and keeps its place. Whoever runs a job raises
-- its epoch, and writes under the condition that the epoch is still its own.
CREATE TABLE jobs (
    book_id       uuid   NOT NULL,
    name          text   NOT NULL,
    commit_mode   text   NOT NULL,
    -- Bytes of the source that are done with.
    source_offset bigint NOT NULL,
    epoch         bigint NOT NULL,
    updated_ms    bigint NOT NULL,
    -- What the job has counted by itself, as it stood at that offset.
    state         jsonb  NOT NULL,
    CONSTRAINT jobs_pkey PRIMARY KEY (book_id, name)
);

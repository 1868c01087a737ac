-- Which origins any book lists. Commits change no indexed column, so the updates of a book's row
-- stay on their page (HOT) all the same.
CREATE INDEX books_origins ON books USING gin (origins);

-- The random part of the names that are made for visitors who bring none: one for each day, shared
-- by all processes, and removed the day after.
CREATE TABLE visitor_salts (
    -- Days since the epoch, UTC.
    day  bigint NOT NULL CONSTRAINT visitor_salts_pkey PRIMARY KEY,
    salt bytea  NOT NULL
);

-- Notes: what people write beside the counts of a book, each at a moment of its time, and perhaps about
-- one of its pages. The log of the book keeps how they were before.
CREATE TABLE notes (
    book_id    uuid   NOT NULL,
    id         uuid   NOT NULL,
    at_ms      bigint NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    text       text   NOT NULL,
    page       text,
    CONSTRAINT notes_pkey PRIMARY KEY (book_id, id)
);

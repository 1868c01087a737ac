-- The chapters of a book as they stand: the list that `books.structure_version`
-- counts the versions of. The log of the book keeps those before.
CREATE TABLE chapters (
    book_id uuid   NOT NULL CONSTRAINT chapters_pkey PRIMARY KEY,
    version bigint NOT NULL,
    body    jsonb  NOT NULL
);

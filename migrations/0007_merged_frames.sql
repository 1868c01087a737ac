-- Up to which position frames of a book have been merged with their neighbours, as far as they could
-- be. What was pruned since counts as merged.
ALTER TABLE books ADD COLUMN merged bigint NOT NULL DEFAULT 0;

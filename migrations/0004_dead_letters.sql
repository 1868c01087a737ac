-- Clicks that cannot be committed, kept aside until somebody has looked at
-- them. `click` is the click as admission let it in; `reason` never holds SQL.
CREATE TABLE dead_letters (
    book_id   uuid   NOT NULL,
    id        uuid   NOT NULL,
    click_id  uuid   NOT NULL,
    failed_ms bigint NOT NULL,
    reason    text   NOT NULL,
    click     jsonb  NOT NULL,
    CONSTRAINT dead_letters_pkey PRIMARY KEY (book_id, id)
);

-- Sent again, it is the same letter.
CREATE UNIQUE INDEX dead_letters_by_click ON dead_letters (book_id, click_id);

-- Sessions: what a browser keeps instead of a token. Each is found by the SHA-256 of its secret; the
-- secret itself is stored nowhere.
CREATE TABLE sessions (
    id         uuid   NOT NULL CONSTRAINT sessions_pkey PRIMARY KEY,
    hash       bytea  NOT NULL CONSTRAINT sessions_hash_key UNIQUE,
    -- The token that opened it, and with which it goes. Null: the admin token of a configuration,
    -- which has no row; `admin_seal` then tells which one it was to whoever knows that token and the
    -- session's secret, and nobody else.
    token_id   uuid   CONSTRAINT sessions_token_fkey REFERENCES tokens ON DELETE CASCADE,
    admin_seal bytea,
    created_ms bigint NOT NULL,
    expires_ms bigint NOT NULL,
    CONSTRAINT sessions_opener CHECK ((token_id IS NULL) <> (admin_seal IS NULL))
);

CREATE INDEX sessions_by_token ON sessions (token_id) WHERE token_id IS NOT NULL;
CREATE INDEX sessions_by_end ON sessions (expires_ms);

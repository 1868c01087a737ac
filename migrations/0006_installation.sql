-- Which database this is: what waits on a disk for it must not go into another.
CREATE TABLE installation (
    id uuid NOT NULL CONSTRAINT installation_pkey PRIMARY KEY
);

INSERT INTO installation VALUES (gen_random_uuid());

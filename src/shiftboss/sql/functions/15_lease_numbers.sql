-- A lease is a random 53-bit number, which JSON represents exactly. A failover or a restore could set a sequence back,
-- which would then hand out a lease that a worker still holds. shiftboss.lease_seq of older versions stays unused,
-- because dropping it would make claims wait for the migration. Each statement uses one strong random salt, hashed
-- with the id of each task: gen_random_uuid() for every row costs 5 us where the server has to open /dev/urandom, the
-- hash 0.1 us. random() is not sufficient: it has 48 bits of state before PostgreSQL 15, and setseed() makes it repeat
-- itself. Both functions are inlined, so they have no SET clause and qualify every name.
CREATE OR REPLACE FUNCTION shiftboss.lease_salt() RETURNS bigint LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT pg_catalog.uuid_hash_extended(pg_catalog.gen_random_uuid(), 0);
END;

CREATE OR REPLACE FUNCTION shiftboss.lease_of(p_id uuid, p_salt bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.uuid_hash_extended(p_id, p_salt) OPERATOR(pg_catalog.&) 9007199254740991;
END;

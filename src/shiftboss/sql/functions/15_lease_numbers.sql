-- A lease is a random number of 53 bits, which JSON carries exactly. A sequence would be set back by a failover or a restore,
-- and hand out a lease that somebody still holds; shiftboss.lease_seq of older versions stays, unused, because dropping it
-- would make claims wait for the migration. One strong random salt per statement, hashed with the
-- id of each task: gen_random_uuid() for every row costs 5 us where the server has to open /dev/urandom, the hash 0.1 us.
-- random() is no substitute: it has 48 bits of state before PostgreSQL 15, and setseed() makes it repeat itself.
-- Both are inlined, so they have no SET clause, and every name in them is qualified.
CREATE OR REPLACE FUNCTION shiftboss.lease_salt() RETURNS bigint LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT pg_catalog.uuid_hash_extended(pg_catalog.gen_random_uuid(), 0);
END;

CREATE OR REPLACE FUNCTION shiftboss.lease_of(p_id uuid, p_salt bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT pg_catalog.uuid_hash_extended(p_id, p_salt) OPERATOR(pg_catalog.&) 9007199254740991;
END;

-- The digest of a request: a request id that is used again with another spec is refused.

-- SHA-256 of the request's spec and fork, as the client sent them. Older jobs have none. NOT VALID: the old rows have
-- nothing to check, and a large table must not be read while it is locked.
ALTER TABLE job_spec ADD COLUMN request_digest bytea;
ALTER TABLE job_spec ADD CONSTRAINT job_spec_request_digest_is_sha256 CHECK (octet_length(request_digest) = 32) NOT VALID;

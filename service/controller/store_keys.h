/* The keys of the stores that a job's spec names, for an executor that reaches a store for the job outside of an
 * attempt: to sample, verify or remove its checkpoints. The controller itself reaches no store. */
#ifndef SERVICE_CONTROLLER_STORE_KEYS_H
#define SERVICE_CONTROLLER_STORE_KEYS_H

#include "service/controller/attempt_secrets.h"

struct store_keys {
    Trainyard__V1__JobSpec *spec;      /* of store_keys_of_job; owned. Else NULL */
    Trainyard__V1__AttemptStart clear; /* only its secrets are used; their names are those of `encrypted` */
    struct attempt_secrets encrypted;
};
/* Overwrites the keys, also after an error. */
void store_keys_done(struct store_keys *keys);

/* FAILED_PRECONDITION: a secret does not exist, or this controller cannot decrypt it. */
MUST_CHECK status_t store_keys_read(struct store *store, const struct keyring *keyring,
                                    const Trainyard__V1__JobSpec *spec, struct store_keys *ret, struct err *e);
/* The same of a stored job, with its spec. */
MUST_CHECK status_t store_keys_of_job(struct store *store, const struct keyring *keyring, int64_t job,
                                      struct store_keys *ret, struct err *e);

#endif

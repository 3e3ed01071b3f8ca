/* The secrets that an attempt gets: those that program.secrets and stores of its spec name, as they are stored when the
 * attempt is created. They stay encrypted in memory until they are sent to an executor. */
#ifndef SERVICE_CONTROLLER_ATTEMPT_SECRETS_H
#define SERVICE_CONTROLLER_ATTEMPT_SECRETS_H

#include "base/status.h"
#include "service/controller/keyring.h"
#include "service/store/store.h"

#include <stddef.h>
#include <trainyard/v1/worker.pb-c.h>

struct attempt_secret {
    char *variable, *name;
    char key[KEYRING_ID_BYTES];
    uint8_t *ciphertext;
    size_t n; /* of ciphertext */
};

struct attempt_secrets {
    size_t n;
    struct attempt_secret *items; /* in the order of the spec */
};
void attempt_secrets_done(struct attempt_secrets *secrets);

/* A secret that the attempt would lack, with the path of the field that names it: "program.secrets.TOKEN: ...". */
typedef void attempt_secrets_problem(void *ctx, const char *sentence);

/* Calls problem() for each secret of the job that does not exist or cannot be decrypted, and if all of them are too
 * large together. The errors are those of the database. */
MUST_CHECK status_t attempt_secrets_check(struct store *store, const struct keyring *keys,
                                          const Trainyard__V1__JobSpec *spec, attempt_secrets_problem *problem,
                                          void *ctx, struct err *e);

/* Reads and checks the secrets of the job. The first problem, if any, is written to ret_problem, else "". The first
 * secret whose key this controller does not have, which another controller may have, is written to ret_lacks_key. */
MUST_CHECK status_t attempt_secrets_read(struct store *store, const struct keyring *keys,
                                         const Trainyard__V1__JobSpec *spec, struct attempt_secrets *ret,
                                         struct err *ret_problem, struct err *ret_lacks_key, struct err *e);

/* Decrypts all of them into start->secrets. attempt_secrets_wipe overwrites and frees them, also after an error. */
MUST_CHECK status_t attempt_secrets_open(const struct attempt_secrets *secrets, const struct keyring *keys,
                                         Trainyard__V1__AttemptStart *start, struct err *e);
void attempt_secrets_wipe(Trainyard__V1__AttemptStart *start);

#endif

/* Secrets: a name, and a value that the caller has encrypted. The store never sees a clear value or a key. */
#ifndef SERVICE_STORE_SECRET_H
#define SERVICE_STORE_SECRET_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_MAX_SECRETS      1024
#define STORE_SECRET_KEY_BYTES 17 /* the id of a key: 16 hexadecimal digits */

struct store_secret {
    const char *name;
    const char *key; /* the id of the key that encrypts it */
    const char *creator;
    int64_t create_time_us, update_time_us;
    const void *ciphertext; /* the encrypted value; NULL in lists */
    size_t n;               /* of ciphertext */
    int64_t ciphertext_bytes;
};

/* Creates the secret, or replaces key and value of the one with this name. RESOURCE_EXHAUSTED if there are
 * STORE_MAX_SECRETS. Uses name, key, creator, ciphertext and n of `new`. ret has no ciphertext. */
MUST_CHECK status_t store_secret_set(struct store *s, struct store_memory *m, int64_t epoch,
                                     const struct store_secret *new, struct store_secret *ret, struct err *e);
/* NOT_FOUND: there is no such secret. ret: as it was, without its value. */
MUST_CHECK status_t store_secret_delete(struct store *s, struct store_memory *m, int64_t epoch, const char *name,
                                        struct store_secret *ret, struct err *e);
/* By name, those after `after` ("": from the first), without values. */
MUST_CHECK status_t store_secret_list(struct store *s, struct store_memory *m, const char *after, int limit,
                                      struct store_secret **ret, size_t *ret_n, struct err *e);
/* Those of the named secrets that exist, with values, by name. */
MUST_CHECK status_t store_secret_some(struct store *s, struct store_memory *m, const char *const *names, size_t n,
                                      struct store_secret **ret, size_t *ret_n, struct err *e);

/* At most `limit` secrets that another key than this one encrypts, without values, by name after `after`. */
MUST_CHECK status_t store_secret_other_key(struct store *s, struct store_memory *m, const char *key, const char *after,
                                           int limit, struct store_secret **ret, size_t *ret_n, struct err *e);
/* Replaces the encryption of the value that `old` has: nothing changes if the secret has another one by now. The time
 * of the value stays. Uses name, ciphertext and n of `old`; key, ciphertext and n of `new`. */
MUST_CHECK status_t store_secret_encrypt_again(struct store *s, int64_t epoch, const struct store_secret *old,
                                               const struct store_secret *new, struct err *e);

#endif

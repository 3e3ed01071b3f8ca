/* The keys that encrypt secrets (AES-256-GCM), from files of the controller. The first key encrypts, all of them
 * decrypt. The id of a key is a digest of it, so that a wrong key is never mistaken for the right one.
 *
 * A file has one line: KEYRING_PREFIX and 64 hexadecimal digits, which are the key. base/secret.h knows the prefix: no
 * job reads such a file as data. Only its owner may be able to read the file.
 *
 * A ciphertext is a random nonce of 12 bytes, the encrypted value, and a tag of 16 bytes. The name of the secret is
 * authenticated with it: a value that is moved to another row of the database is refused. Random nonces allow 2^32
 * values for each key.
 *
 * A keyring does not change after it was opened: any thread may use it. */
#ifndef SERVICE_CONTROLLER_KEYRING_H
#define SERVICE_CONTROLLER_KEYRING_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEYRING_MAX_KEYS = 8, KEYRING_ID_BYTES = 17, KEYRING_EXTRA_BYTES = 12 + 16 };

struct keyring;

/* Creates a file with a new random key, mode 0600. ALREADY_EXISTS: there is a file. */
MUST_CHECK status_t keyring_make_file(const char *path, struct err *e);

/* Reads the keys of n files, at most KEYRING_MAX_KEYS. n 0: a keyring without keys. INVALID_ARGUMENT: a file holds no
 * key. PERMISSION_DENIED: others than its owner may read or write it. */
MUST_CHECK status_t keyring_open(const char *const *files, size_t n, struct keyring **ret, struct err *e);
struct keyring *keyring_close(struct keyring *k); /* wipes the keys */
CLEANUP_DEFINE(struct keyring *, keyring_close)

size_t keyring_size(const struct keyring *k);
/* i: from 0 to keyring_size - 1. 16 hexadecimal digits. */
const char *keyring_id(const struct keyring *k, size_t i);
bool keyring_has(const struct keyring *k, const char *id);

/* Encrypts with the first key: ret has n + KEYRING_EXTRA_BYTES. FAILED_PRECONDITION: there is no key; the sentence says
 * what to do. */
MUST_CHECK status_t keyring_encrypt(const struct keyring *k, const char *name, const void *value, size_t n,
                                    uint8_t *ret, struct err *e);
/* Decrypts: ret has n - KEYRING_EXTRA_BYTES. FAILED_PRECONDITION: the key with this id is not there. DATA_LOSS: the
 * bytes or the name are not those that were encrypted. */
MUST_CHECK status_t keyring_decrypt(const struct keyring *k, const char *id, const char *name, const void *ciphertext,
                                    size_t n, uint8_t *ret, struct err *e);

#endif

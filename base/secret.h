/* Files that must never be read as data: those with an access token of this service, its key for secrets, or a private
 * key. The check reads the content of a file, not its name, so that it also finds copies and keys of other programs. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include "base/status.h"

/* A token is this prefix and 64 hex digits. Scanners for leaked secrets recognise the prefix. */
#define SECRET_TOKEN_PREFIX "trainyard_"
/* The key that encrypts secrets is this prefix and as many hex digits. */
#define SECRET_KEY_PREFIX "trainyard_key_"
enum { SECRET_TOKEN_DIGITS = 64, SECRET_LOOKED_AT_BYTES = 64 << 10 };

/* PERMISSION_DENIED if the first 64 KiB of the open regular file contain a private key in PEM form, a key for secrets
 * or a token. The rest of the file is not read. The file's offset does not change. */
MUST_CHECK status_t secret_check(int fd, const char *path, struct err *e);

#endif

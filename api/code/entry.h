/* The names in an archive of a program's code. The client refuses to pack other names, and an executor refuses to
 * unpack them: an archive may come from any client.
 *
 * Every function is free of I/O and thread-safe. */
#ifndef API_CODE_ENTRY_H
#define API_CODE_ENTRY_H

#include "base/sha256.h"
#include "base/status.h"

#include <stdbool.h>

/* The path of an entry: relative, in normal form (no "." or "..", no empty part, no slash at the end), of at most
 * LIMIT_CODE_DEPTH parts with at most 255 bytes each, shorter than PATH_MAX. INVALID_ARGUMENT otherwise. */
MUST_CHECK status_t code_name_check(const char *name, struct err *e);

/* The target of the symbolic link `name`: relative, with ".." only at its beginning, and not above the folder. Since no
 * part of `name` is a link, and every link satisfies this, no chain of links leaves the folder. INVALID_ARGUMENT
 * otherwise. */
MUST_CHECK status_t code_link_check(const char *name, const char *target, struct err *e);

/* Whether the text is a SHA-256 in lower-case hexadecimal digits, which is the name of an archive. */
bool code_archive_name_good(const char *text);
/* Reads such a name. False for any other text. */
bool code_archive_name_read(const char *text, uint8_t ret[SHA256_BYTES]);

#endif

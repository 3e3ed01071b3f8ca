/* Packs a folder into an archive: a tar file whose bytes depend only on the paths, the bytes, the links and the
 * executable bits of its files. */
#ifndef CLI_CODE_PACK_H
#define CLI_CODE_PACK_H

#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/status.h"
#include "cli/code/list.h"

struct code_pack {
    int fd; /* of a file without a name, in TMPDIR */
    int64_t bytes;
    char archive[SHA256_HEX]; /* its SHA-256 */
    struct code_list *list;
};

/* INVALID_ARGUMENT with a sentence for the user: the folder cannot be read or packed, is empty, or is larger than
 * LIMIT_CODE_BYTES. */
MUST_CHECK status_t code_pack(const char *folder, struct code_pack *ret, struct err *e);
void code_pack_done(struct code_pack *p); /* of a zeroed struct, too */

#endif

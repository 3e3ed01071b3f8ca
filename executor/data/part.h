/* An object that is being copied: the file parts/KEY of a cache. It has the size of the object, and behind it one byte
 * for each piece and the id of this start of the host. A piece counts when its byte is '1'. After a kill the next
 * process goes on with the pieces that are there; after a start of the host, when bytes may have been lost, it begins
 * anew. The lock of the file belongs to the process that copies. */
#ifndef EXECUTOR_DATA_PART_H
#define EXECUTOR_DATA_PART_H

#include "executor/data/cache.h"

enum { PART_PIECE_BYTES = 16 << 20 };

struct part {
    int file;
    int64_t bytes;
    int n;      /* pieces */
    char *done; /* n: '1', or '\0' */
};

/* *ret_busy: another process, or another object of this one, copies it. */
MUST_CHECK status_t part_open(const struct data_cache *c, const char *key, int64_t bytes, struct part *ret,
                              bool *ret_busy, struct err *e);
/* Leaves the file for the next one. */
void part_close(struct part *p);
/* Closes and removes it: its bytes are wrong. */
void part_discard(const struct data_cache *c, const char *key, struct part *p);

static inline int64_t part_offset(int piece) { return (int64_t)piece * PART_PIECE_BYTES; }
int64_t part_piece_bytes(const struct part *p, int piece);
/* All bytes of the piece are written. proven false: they come from another host, and only the digest of the whole
 * object will show whether they are right. The next process does not go on with such a piece. */
MUST_CHECK status_t part_set_done(struct part *p, int piece, bool proven, struct err *e);
/* All pieces are: the file becomes the object alone. */
MUST_CHECK status_t part_complete(struct part *p, struct err *e);

#endif

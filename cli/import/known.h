/* The points that the job of an imported run has already, so that a later import adds only the others:
 *
 *     struct import_known *k;
 *     TRY(import_known_read(c, "jobs/43", &k, e));
 *     if (!import_known_take(k, name, step, value)) ...   // the job lacks this point
 *     k = import_known_free(k);
 *
 * A point is its metric's name, its step and its value. A point that the job has twice is taken twice. So neither the
 * order of the points nor the file that each one came from matters. Memory: 12 bytes for each point. */
#ifndef CLI_IMPORT_KNOWN_H
#define CLI_IMPORT_KNOWN_H

#include "cli/client.h"

#include <stdbool.h>
#include <stdint.h>

enum { IMPORT_KNOWN_POINTS = 1 << 26 };

struct import_known;
/* job: "jobs/43". RESOURCE_EXHAUSTED: the job has more than IMPORT_KNOWN_POINTS points. */
MUST_CHECK status_t import_known_read(struct cli *c, const char *job, struct import_known **ret, struct err *e);
/* NULL: none. */
struct import_known *import_known_free(struct import_known *k);
CLEANUP_DEFINE(struct import_known *, import_known_free)

/* True: the job has the point, and as many such points were not taken yet. k may be NULL: no point is known. */
bool import_known_take(struct import_known *k, const char *name, int64_t step, double value);

#endif

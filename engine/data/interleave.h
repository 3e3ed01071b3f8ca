/* Several sources as one sequence: which source gives number i of it, and the how manieth of that source it is.
 *
 * The sequence repeats after `all` numbers, and has units[s] of source s in each repetition. Among the first n numbers,
 * for every n, source s has less than one more or less than n units[s] / all. It is computed once and then looked up,
 * so any number can be read at any time. All functions but interleave_new and interleave_free are pure.
 *
 *     TRY(interleave_new((int64_t[]){ 7, 3 }, 2, &x, e));
 *     int64_t position;
 *     int s = interleave_at(x, 1000003, &position);      // 0, and 700002: of the first 1000003 numbers */
#ifndef ENGINE_DATA_INTERLEAVE_H
#define ENGINE_DATA_INTERLEAVE_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct interleave;

/* units: at least one is not 0; their sum is at most SHARES_UNITS_MAX (base/shares.h). RESOURCE_EXHAUSTED without
 * memory. */
MUST_CHECK status_t interleave_new(const int64_t *units, int n, struct interleave **ret, struct err *e);
struct interleave *interleave_free(struct interleave *x);
CLEANUP_DEFINE(struct interleave *, interleave_free)

/* The source of number i (>= 0). *ret_position: how many numbers below i are of that source. */
int interleave_at(const struct interleave *x, int64_t i, int64_t *ret_position);

/* How many of the numbers below i are of source s. */
int64_t interleave_count(const struct interleave *x, int64_t i, int s);

size_t interleave_bytes(const struct interleave *x);

#endif

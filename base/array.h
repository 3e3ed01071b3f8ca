/* Arrays. Memory that the system refuses is a status like any other failure: RESOURCE_EXHAUSTED, with the sentence, and
 * the pointer is as it was.
 *
 *     CLEANUP(freep) int *from = NULL;
 *     TRY(array_new(&from, n, e));               // n zeros; one where n is 0
 *     TRY(array_grow(&list->items, list->n, e)); // room for one more behind the n that are there
 *
 * What array_new or array_grow gave is freed by free. An array that grows does so by array_grow alone, which is called
 * before each element that is added: it doubles the room when n is a power of two, so that no capacity need be kept. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include "base/status.h"

#include <stddef.h>

#define array_new(pp, n, e)  array_new_of((pp), (n), sizeof **(pp), (e))
#define array_grow(pp, n, e) array_grow_of((pp), (n), sizeof **(pp), (e))

/* The two above; pp: the address of a pointer to elements of `size` bytes. */
MUST_CHECK status_t array_new_of(void *pp, int n, size_t size, struct err *e);
MUST_CHECK status_t array_grow_of(void *pp, int n, size_t size, struct err *e);

/* The order of elements that begin with an int64_t, for qsort, bsearch and tsearch. */
int array_by_int64(const void *a, const void *b);

#endif

/* Arrays whose length depends on a model, a file or a peer. If the system refuses the memory, a call returns
 * RESOURCE_EXHAUSTED and leaves the pointer unchanged. Small arrays use base/alloc.h.
 *
 *     CLEANUP(freep) int *from = NULL;
 *     TRY(array_new(&from, n, e));               // n zeroed elements, one if n is 0
 *     TRY(array_grow(&list->items, list->n, e)); // capacity for one more after the n elements
 *
 * The caller frees arrays with free. An array that grows calls array_grow before each added element and nothing else:
 * it doubles the capacity when n is a power of two, so that the capacity need not be stored. */
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

/* From the URIs of an order to its objects. */
#ifndef EXECUTOR_DATA_FIND_H
#define EXECUTOR_DATA_FIND_H

#include "executor/data/object.h"

/* The objects of the n URIs: for each URI, in the order of the URIs, sorted by the bytes of their paths, each once.
 * Objects of a listing are known; others are not. Revisions of hf are replaced by their commits. NOT_FOUND: a pattern
 * has no match. */
MUST_CHECK status_t find_objects(const struct stores *stores, int n, char *const *uris, struct data_objects *ret,
                                 struct err *e);
/* Those of one pattern, or none. */
MUST_CHECK status_t find_objects_or_none(const struct stores *stores, char *pattern, struct data_objects *ret,
                                         struct err *e);

#endif

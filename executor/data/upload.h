/* Writes files of this host to a store of S3. An object has its name when all of its bytes are there: a reader finds
 * the old object, the new one or none. */
#ifndef EXECUTOR_DATA_UPLOAD_H
#define EXECUTOR_DATA_UPLOAD_H

#include "executor/data/store.h"

/* The files of the order, one after the other. Each is a file of the folder's owner in the folder, and no link. After
 * an error the files before it are in the store.
 *
 *   INVALID_ARGUMENT, PERMISSION_DENIED, NOT_FOUND   the store refuses it
 *   UNAVAILABLE                                      the store did not take it for as long as its patience
 *   INTERNAL, ...                                    the file cannot be read */
MUST_CHECK status_t upload_files(const Trainyard__V1__ShardUpload *order, const struct store *store, struct err *e);

/* Removes the objects that the pattern names, and aborts uploads in parts whose names begin as the pattern does up to
 * its first wildcard: no rank may upload there any more. */
MUST_CHECK status_t remove_objects(const struct stores *stores, char *pattern, struct err *e);

#endif

/* Which cluster a folder of checkpoints belongs to: the file `.trainyard-cluster` in the folder that holds the folders
 * of all jobs, with the cluster's id in a line. Two services number their jobs in the same way: in one folder they
 * would overwrite and delete each other's checkpoints.
 *
 *     TRY(cluster_mark(&roots, "/shared/checkpoints", cluster, CLUSTER_MARK_TAKE, &taken, e));
 *
 * A folder without the file belongs to no cluster yet. The first process that can write to the folder creates the file;
 * from then on the folder, with its contents, belongs to that process's cluster. If several try at once, one
 * succeeds. The file is durable before it has its name. */
#ifndef BASE_CLUSTER_MARK_H
#define BASE_CLUSTER_MARK_H

#include "base/roots.h"

#define CLUSTER_MARK_NAME ".trainyard-cluster"

enum cluster_mark_how {
    CLUSTER_MARK_CHECK, /* a folder without the file is fine */
    CLUSTER_MARK_TAKE,  /* creates the file if the folder does not have it */
};

/* cluster: a UUID as text; "": nothing is checked. roots NULL: any folder, by any links.
 * *ret_taken (may be NULL): whether this call created the file. FAILED_PRECONDITION, with both ids and what to do: the
 * folder is another cluster's. DATA_LOSS: the file contains no id, or is not a regular file. NOT_FOUND and others as
 * roots_open and open(2). */
MUST_CHECK status_t cluster_mark(const struct roots *roots, const char *folder, const char *cluster,
                                 enum cluster_mark_how how, bool *ret_taken, struct err *e);
/* The same for an open folder; `path` is for sentences. */
MUST_CHECK status_t cluster_mark_at(int folder, const char *path, const char *cluster, enum cluster_mark_how how,
                                    bool *ret_taken, struct err *e);

/* The folder that holds the folders of all jobs, cut from a path in it: .../<job>/attempt-<n>[/step-<s>], levels = 2 or
 * 3. INVALID_ARGUMENT: the path has fewer parts. */
MUST_CHECK status_t cluster_mark_folder(const char *path, int levels, char *ret, size_t n, struct err *e);

#endif

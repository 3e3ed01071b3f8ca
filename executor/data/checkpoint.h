/* The files of a checkpoint in a store, or of initial weights, as a folder of this host. */
#ifndef EXECUTOR_DATA_CHECKPOINT_H
#define EXECUTOR_DATA_CHECKPOINT_H

#include "executor/data/fetch.h"

/* Copies the objects that the pattern names into the cache, as fetch_run does, and makes the folder with their names.
 * They are in use until fetch_done. With `check` in the order it only finds them. */
MUST_CHECK status_t folder_fetch(struct fetch *f, char *pattern, const char *folder, struct err *e);
/* The same for order->checkpoint and order->checkpoint_folder. */
MUST_CHECK status_t checkpoint_fetch(struct fetch *f, struct err *e);

#endif

/* The files of a checkpoint in a store, as a folder of this host. */
#ifndef EXECUTOR_DATA_CHECKPOINT_H
#define EXECUTOR_DATA_CHECKPOINT_H

#include "executor/data/fetch.h"

/* Copies the objects of order->checkpoint into the cache, as fetch_run does, and makes order->checkpoint_folder with
 * their names. They are in use until fetch_done. */
MUST_CHECK status_t checkpoint_fetch(struct fetch *f, struct err *e);

/* Whether a failure says that the checkpoint is gone, and not that the store is away or refuses its keys. */
bool checkpoint_is_missing(status_t st);

#endif

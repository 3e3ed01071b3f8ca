/* Downloads an archive of code from the controller. */
#ifndef EXECUTOR_CODE_DOWNLOAD_H
#define EXECUTOR_CODE_DOWNLOAD_H

#include "executor/code/cache.h"

#include <trainyard/v1/worker.pb-c.h>

/* `download` of a cache; ctx: a Trainyard__V1__CodeFetch. While the controller is unreachable, each call is repeated,
 * for at most DOWNLOAD_WAIT_MS. NOT_FOUND, DATA_LOSS: the controller has no such archive, or a damaged one. INTERNAL:
 * this host cannot read its token or its certificates. */
enum { DOWNLOAD_WAIT_MS = 5 * 60 * 1000 };
MUST_CHECK status_t code_download(void *fetch, const struct code_cache *cache, const char *archive, int file,
                                  struct err *e);

#endif

/* Garbage collection of archives of code: deletes archives that no job refers to and that were not used for long
 * (store/code.h), and uploads that do not continue. Thread-safe. */
#ifndef SERVICE_CONTROLLER_CODE_GC_H
#define SERVICE_CONTROLLER_CODE_GC_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/store.h"

#include <stdint.h>

#define CODE_GC_PERIOD_MS 60000

struct code_gc;
MUST_CHECK status_t code_gc_open(struct store *store, struct code_gc **ret, struct err *e);
struct code_gc *code_gc_close(struct code_gc *g);
CLEANUP_DEFINE(struct code_gc *, code_gc_close)

void code_gc_lead(struct code_gc *g, int64_t epoch); /* 0: this controller no longer leads */

#endif

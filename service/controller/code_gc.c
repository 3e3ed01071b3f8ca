#include "service/controller/code_gc.h"

#include "base/alloc.h"
#include "base/log.h"
#include "service/controller/background_task.h"
#include "service/store/code.h"

#include <stdlib.h>

struct code_gc {
    struct store *store;
    struct background_task *background_task;
};

/* Deletes one archive after the other, each in a transaction of its own. */
static bool run_pass(struct background_task *task, void *ctx, int64_t epoch, bool all) {
    (void)all;
    const struct code_gc *g = ctx;
    bool deleted = true;
    struct err e;
    while (deleted && background_task_continues(task, epoch)) {
        if (store_code_collect(g->store, epoch, &deleted, &e) != ST_OK) {
            log_event(LOG_WARN, "code_not_deleted", "reason", LOG_STR(e.msg), NULL);
            return false;
        }
        if (deleted)
            log_event(LOG_INFO, "code_deleted", NULL);
    }
    return true;
}

status_t code_gc_open(struct store *store, struct code_gc **ret, struct err *e) {
    CLEANUP(code_gc_closep) struct code_gc *g = alloc_zeroed(1, sizeof *g);
    g->store = store;
    TRY(background_task_open("archives of code", CODE_GC_PERIOD_MS, run_pass, g, &g->background_task, e));
    *ret = take_ptr(&g);
    return ST_OK;
}

struct code_gc *code_gc_close(struct code_gc *g) {
    if (!g)
        return NULL;
    background_task_close(g->background_task);
    free(g);
    return NULL;
}

void code_gc_lead(struct code_gc *g, int64_t epoch) { background_task_lead(g->background_task, epoch); }

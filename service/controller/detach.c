/* Executors whose control stream has ended, or whose agent is stopping. */
#include "base/alloc.h"
#include "base/log.h"
#include "service/controller/state.h"

#include <stdlib.h>

struct gone {
    struct controller *controller;
    char **ids;
    int64_t *incarnations;
    size_t n;
};

/* These rows are only for users. If the write fails, the executor's next attach or its loss corrects the row. */
static void write_rows(struct controller *c, const char *const *ids, const int64_t *incarnations, size_t n,
                       bool leaving) {
    status_ignore(store_executor_detached(c->store, c->own_epoch, ids, incarnations, n, leaving, NULL));
}

static void notify_detached(struct controller *c, const char *executor, int64_t incarnation) {
    actions_run(c, &(struct scheduler_event){
                       .kind = EV_EXECUTOR_DETACHED, .executor = executor, .attach.incarnation = incarnation });
}

void detach_executor(struct controller *c, const char *executor, int64_t incarnation) {
    notify_detached(c, executor, incarnation);
    write_rows(c, &executor, &incarnation, 1, false);
}

void detach_leaving(struct controller *c, const char *executor, int64_t incarnation, bool drain) {
    actions_run(c, &(struct scheduler_event){ .kind = EV_EXECUTOR_LEAVES,
                                              .executor = executor,
                                              .attach.incarnation = incarnation,
                                              .drain.now = drain });
    write_rows(c, &executor, &incarnation, 1, true);
}

static void note(void *ctx, const char *executor, int64_t incarnation) {
    struct gone *g = ctx;
    notify_detached(g->controller, executor, incarnation);
    g->ids = alloc_grow(g->ids, g->n, sizeof *g->ids);
    g->incarnations = alloc_grow(g->incarnations, g->n, sizeof *g->incarnations);
    g->ids[g->n] = alloc_copy_text(executor);
    g->incarnations[g->n++] = incarnation;
}

void detach_ended_streams(struct controller *c) {
    struct gone g = { .controller = c };
    dispatch_take_detached(c->dispatch, note, &g);
    if (g.n > 0 && !leadership_over(c))
        write_rows(c, (const char *const *)g.ids, g.incarnations, g.n, false);
    for (size_t i = 0; i < g.n; i++)
        free(g.ids[i]);
    free(g.ids);
    free(g.incarnations);
}

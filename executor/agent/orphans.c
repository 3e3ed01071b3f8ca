/* When an orphan is killed, its children become orphans too. The list of children is therefore read again after
 * AGAIN_MS, until it has workers only. */
#include "executor/agent/orphans.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/process.h"

#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum { AGAIN_MS = 20, CLOSE_MS = 5000 };

struct orphans {
    struct reactor *loop;
    struct reactor_timer again;
    pid_t *workers;
    size_t n;
};

static size_t find(const struct orphans *o, pid_t pid) {
    size_t i = 0;
    while (i < o->n && o->workers[i] != pid)
        i++;
    return i;
}

static bool is_worker(const void *ctx, pid_t pid) {
    const struct orphans *o = ctx;
    return find(o, pid) < o->n;
}

static void again(void *ctx) { orphans_kill(ctx); }

status_t orphans_open(struct reactor *loop, struct orphans **ret, struct err *e) {
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return err_errno(e, "become the parent of orphans");
    struct orphans *o = alloc_zeroed(1, sizeof *o);
    o->loop = loop;
    o->again = (struct reactor_timer){ .fire = again, .ctx = o };
    *ret = o;
    return ST_OK;
}

struct orphans *orphans_close(struct orphans *o) {
    if (!o)
        return NULL;
    const deadline_ms_t end = deadline_in(CLOSE_MS);
    while (process_kill_children(is_worker, o) > 0 && clock_mono_ms() < end)
        poll(NULL, 0, AGAIN_MS);
    reactor_timer_cancel(o->loop, &o->again);
    free(o->workers);
    free(o);
    return NULL;
}

void orphans_add_worker(struct orphans *o, pid_t pid) {
    if (!o)
        return;
    o->workers = alloc_resize(o->workers, o->n + 1, sizeof *o->workers);
    o->workers[o->n++] = pid;
}

void orphans_remove_worker(struct orphans *o, pid_t pid) {
    const size_t i = o ? find(o, pid) : 0;
    if (o && i < o->n)
        o->workers[i] = o->workers[--o->n];
}

void orphans_kill(struct orphans *o) {
    if (o && process_kill_children(is_worker, o) > 0)
        reactor_timer_set(o->loop, &o->again, AGAIN_MS);
}

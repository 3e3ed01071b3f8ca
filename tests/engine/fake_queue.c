#include "tests/engine/fake_queue.h"

#include <stdlib.h>
#include <string.h>

struct upload {
    struct upload *next;
    void *to;
    const void *from;
    size_t bytes;
    int64_t after, number; /* the releases that the upload waits for; the await that waits for it */
    bool early, roomed;
};

struct fake_queue *fake_queue_new(void (*touch)(bool may), bool (*is_host_buffer)(const void *host)) {
    struct fake_queue *l = calloc(1, sizeof *l);
    if (!l)
        abort();
    l->touch = touch;
    l->is_host_buffer = is_host_buffer;
    l->last = &l->first;
    l->uploads_last = &l->uploads;
    l->algorithm = ALGORITHM_NOT_YET;
    return l;
}

void *fake_queue_call(struct fake_queue *l, const struct kernels *open, size_t bytes,
                      status_t (*run)(struct call *, struct err *)) {
    struct call *c = calloc(1, bytes);
    if (!c)
        abort();
    *c = (struct call){ .run = run, .open = open, .line = l, .traced = fake_trace_now() };
    struct call ***last = l->captures ? &l->captured_last : &l->last;
    **last = c;
    *last = &c->next;
    return c;
}

void calls_free(struct call *c) {
    while (c) {
        struct call *next = c->next;
        for (int i = 0; i < CALL_HELD; i++)
            free(c->held[i]);
        free(c);
        c = next;
    }
}

void call_hold(struct call *c, void *argument, size_t bytes) {
    void *copy = malloc(bytes), **held = c->held;
    while (held < c->held + CALL_HELD && *held)
        held++;
    if (!copy || held == c->held + CALL_HELD)
        abort();
    memcpy(copy, *(void **)argument, bytes);
    memcpy(argument, &copy, sizeof copy);
    *held = copy;
}

void call_run(struct fake_queue *l, struct call *c) {
    struct err e = { "" };
    l->clock_ns += FAKE_DEVICE_CALL_NS;
    if (c->called)
        fake_trace_note(c->traced, c->called, l->clock_ns);
    const status_t st = c->run(c, &e);
    if (st != ST_OK && l->status == ST_OK) {
        l->status = st;
        l->error = e;
    }
}

void fake_queue_upload(struct fake_queue *l, void *to, const void *from, size_t bytes, int64_t after) {
    struct upload *u = malloc(sizeof *u);
    if (!u || l->captures)
        abort();
    *u = (struct upload){ .to = to,
                          .from = from,
                          .bytes = bytes,
                          .after = after,
                          .number = l->n_awaits + 1,
                          .early = ++l->n_uploads % 3 == 0,
                          .roomed = l->is_host_buffer(from) };
    *l->uploads_last = u;
    l->uploads_last = &u->next;
    l->touch(true);
    fake_queue_run_uploads(l, 0);
    l->touch(false);
}

void fake_queue_run_uploads(struct fake_queue *l, int64_t needed) {
    struct upload *u = l->uploads;
    for (; u && u->after <= l->released && (u->number <= needed || u->early); u = l->uploads) {
        if (u->roomed && !l->is_host_buffer(u->from))
            abort(); /* the source was freed before the device had copied it */
        memcpy(u->to, u->from, u->bytes);
        l->uploads = u->next;
        free(u);
    }
    if (!l->uploads)
        l->uploads_last = &l->uploads;
    else if (l->uploads->number <= needed)
        abort(); /* the upload waits for a call that waits for the upload */
}

status_t fake_queue_run(struct fake_queue *l, const struct call *until, struct err *e) {
    bool there = false;
    if (l->captures)
        abort(); /* no call may wait inside a capture */
    if (l->first || l->uploads)
        l->touch(true);
    while (l->first && !there) {
        struct call *c = l->first;
        there = c == until;
        call_run(l, c);
        l->first = c->next;
        c->next = NULL;
        calls_free(c);
    }
    if (!l->first)
        l->last = &l->first;
    if (!until)
        fake_queue_run_uploads(l, INT64_MAX);
    l->touch(false);
    const status_t st = l->status;
    l->status = ST_OK;
    return st == ST_OK ? ST_OK : err_set(e, st, "%s", l->error.msg);
}

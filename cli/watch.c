/* trainyard watch, events. */
#include "cli/watch.h"

#include "base/clock.h"
#include "base/limits.h"
#include "cli/client.h"
#include "cli/output.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/job.pb-c.h>
#include <unistd.h>

enum {
    /* A lost connection is dialled again for so long: the longest outage that training is promised to survive. */
    PATIENCE_MS = 30 * 60 * 1000,
    /* The same before anything was heard: a restart of the controller, not a wrong address. */
    FIRST_PATIENCE_MS = 5000,
    /* Between lines of progress where nothing can be redrawn. */
    PLAIN_PROGRESS_MS = 5000,
};

struct watch {
    struct cli *c;
    const char *name;
    int64_t last_event;
    bool terminal; /* stderr can be redrawn */
    bool drawn;    /* a progress line stands there without a newline */
    bool heard;    /* something came on this stream */
    bool told;     /* that the controller is away */
    int64_t plain_at_ms;
    int64_t first_step, first_ms; /* since when the rate is measured; first_ms 0 = not yet */
    bool ended;
    Trainyard__V1__Job__State state;
};

static void clear_line(struct watch *w) {
    if (w->drawn)
        fputs("\r\033[K", stderr);
    w->drawn = false;
}

static void show_event(struct watch *w, const Trainyard__V1__Event *event) {
    char when[24];
    output_time(event->time, when);
    clear_line(w);
    if (strcmp(event->kind, "state_changed") == 0)
        w->first_ms = 0; /* how long it waits, or is paused, says nothing of the rate */
    fprintf(stderr, "%s  %s", when, output_enum(&trainyard__v1__job__state__descriptor, (int)event->state));
    if (strcmp(event->kind, "state_changed") != 0) {
        fputs("  ", stderr);
        output_text(stderr, event->kind);
    }
    if (*event->message) {
        fputs("  ", stderr);
        output_text(stderr, event->message);
    }
    fputc('\n', stderr);
}

/* Seconds to the last step at the rate since the first progress seen; -1 when unknown. */
static int64_t seconds_left(struct watch *w, const Trainyard__V1__Progress *p, int64_t now) {
    if (w->first_ms == 0 || p->step < w->first_step) { /* also after a restart from an older checkpoint */
        w->first_ms = now;
        w->first_step = p->step;
    }
    if (p->step == w->first_step || p->step >= p->steps)
        return -1;
    double ms_per_step = (double)(now - w->first_ms) / (double)(p->step - w->first_step);
    return (int64_t)((double)(p->steps - p->step) * ms_per_step / 1000);
}

static void show_progress(struct watch *w, const Trainyard__V1__Progress *p) {
    char left[24];
    int64_t now = clock_mono_ms(), seconds = seconds_left(w, p, now);
    if (!w->terminal && now < w->plain_at_ms && p->step != p->steps)
        return;
    w->plain_at_ms = now + PLAIN_PROGRESS_MS;
    clear_line(w);
    fprintf(stderr, "step %" PRId64 "/%" PRId64, p->step, p->steps);
    if (p->_loss_case)
        fprintf(stderr, "  loss %.4f", p->loss);
    if (p->_validation_loss_case)
        fprintf(stderr, "  validation %.4f", p->validation_loss);
    if (p->_tokens_per_second_case)
        fprintf(stderr, "  %.0f tokens/s", p->tokens_per_second);
    if (p->_samples_per_second_case)
        fprintf(stderr, "  %.0f samples/s", p->samples_per_second);
    if (seconds >= 0) {
        output_duration(seconds, left);
        fprintf(stderr, "  %s left", left);
    }
    w->drawn = w->terminal;
    if (!w->terminal)
        fputc('\n', stderr);
    fflush(stderr);
}

static status_t take_update(struct watch *w, const Trainyard__V1__WatchJobResponse *update, struct err *e) {
    bool json = w->c->output == OUTPUT_JSON;
    bool is_event = update->update_case == TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_EVENT;
    w->heard = true;
    if (is_event)
        w->last_event = update->event->number;
    if (json)
        TRY(output_json_line(&update->base, e));
    else if (is_event)
        show_event(w, update->event);
    else if (update->update_case == TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_PROGRESS)
        show_progress(w, update->progress);
    if (update->job) {
        w->ended = true;
        w->state = update->job->state;
    }
    return ST_OK;
}

/* One stream, to its end. */
static status_t follow_once(struct watch *w, char ret_reason[RPC_REASON_BYTES], struct err *e) {
    Trainyard__V1__WatchJobRequest request = TRAINYARD__V1__WATCH_JOB_REQUEST__INIT;
    request.name = (char *)w->name;
    request.after_event = w->last_event;
    CLEANUP(rpc_stream_closep) struct rpc_stream *stream = NULL;
    ret_reason[0] = '\0';
    TRY(client_stream(w->c, &trainyard__v1__job_service__descriptor, "WatchJob", &request.base, &stream, e));
    for (;;) {
        const ProtobufCMessage *message = NULL;
        status_t st = rpc_stream_next(stream, &message, e);
        if (st != ST_OK || !message) {
            snprintf(ret_reason, RPC_REASON_BYTES, "%s", rpc_stream_reason(stream));
            return st;
        }
        TRY(take_update(w, (const Trainyard__V1__WatchJobResponse *)message, e));
    }
}

static void tell_absence(struct watch *w, const struct err *e) {
    if (w->told)
        return;
    clear_line(w);
    client_tell_absence(w->c, e);
    w->told = true;
}

/* An absence is waited for: shortly at first, for long once something was heard. */
static status_t follow(struct watch *w, struct err *e) {
    int64_t begun_ms = clock_mono_ms(), patience_ms = FIRST_PATIENCE_MS;
    for (;;) {
        char reason[RPC_REASON_BYTES];
        w->heard = false;
        status_t st = follow_once(w, reason, e);
        if (w->ended)
            return ST_OK;
        if (w->heard) {
            begun_ms = clock_mono_ms();
            patience_ms = PATIENCE_MS;
            w->told = false;
        }
        if (st == ST_OK) /* the controller ended the stream before the job: it is stopping */
            st = err_set(e, ST_UNAVAILABLE, "the controller ended the watch before the job");
        if (!client_waits(st, reason, begun_ms, patience_ms))
            return st;
        tell_absence(w, e);
        poll(NULL, 0, REDIAL_FIRST_MS * 5);
    }
}

static enum exit_code exit_code_of_state(Trainyard__V1__Job__State state) {
    switch (state) {
    case TRAINYARD__V1__JOB__STATE__SUCCEEDED: return EXIT_DONE;
    case TRAINYARD__V1__JOB__STATE__CANCELLED: return EXIT_CANCELLED;
    default: return EXIT_FAILED;
    }
}

status_t watch_job(struct cli *c, const char *name, struct err *e) {
    struct watch w = { .c = c, .name = name, .terminal = isatty(STDERR_FILENO) };
    status_t st = follow(&w, e);
    if (w.drawn)
        fputc('\n', stderr);
    TRY(st);
    c->exit_code = exit_code_of_state(w.state);
    return ST_OK;
}

static status_t run_watch(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[80];
    (void)args;
    TRY(client_job_name(words[0], name, e));
    return watch_job(c, name, e);
}

const struct command command_watch = {
    .name = "watch",
    .arguments = "JOB",
    .summary = "Shows a job's events and progress until it ends.",
    .details =
        "Exits with 0 when the job SUCCEEDED, 1 when it FAILED, 3 when it was CANCELLED; a PAUSED one has not "
        "ended.\n"
        "With -o json each update is one line of JSON (a WatchJobResponse) on stdout. Goes on by itself after a\n"
        "restart of the controller.",
    .example = "trainyard watch 42",
    .args_bytes = 1,
    .least = 1,
    .most = 1,
    .run = run_watch,
};

/* ---- events ---- */

/* Pages follow each other by the last event's number. */
static status_t list_events(struct cli *c, const char *name, Trainyard__V1__ListEventsResponse *all, struct err *e) {
    Trainyard__V1__ListEventsRequest request = TRAINYARD__V1__LIST_EVENTS_REQUEST__INIT;
    request.name = (char *)name;
    request.page_size = LIMIT_PAGE_SIZE;
    for (;;) {
        ProtobufCMessage *page = NULL;
        TRY(client_call(c, &trainyard__v1__job_service__descriptor, "ListEvents", &request.base, &page, e));
        size_t before = all->n_events;
        status_t st = client_join(&all->base, page, e);
        protobuf_c_message_free_unpacked(page, NULL);
        TRY(st);
        if (all->n_events - before < LIMIT_PAGE_SIZE)
            return ST_OK;
        request.after_event = all->events[all->n_events - 1]->number;
    }
}

static status_t show_events(const struct cli *c, const Trainyard__V1__ListEventsResponse *all, struct err *e) {
    static const char *const heads[] = { "NUMBER", "TIME", "ATTEMPT", "STATE", "KIND", "MESSAGE", NULL };
    bool done = false;
    TRY(output_message(c, &all->base, &done, e));
    if (done)
        return ST_OK;
    struct table t;
    table_init(&t, heads);
    for (size_t i = 0; i < all->n_events; i++) {
        const Trainyard__V1__Event *event = all->events[i];
        char when[24];
        output_time(event->time, when);
        table_cell(&t, "%" PRId64, event->number);
        table_cell(&t, "%s", when);
        table_cell(&t, "%d", event->attempt);
        table_cell(&t, "%s", output_enum(&trainyard__v1__job__state__descriptor, (int)event->state));
        table_cell(&t, "%s", event->kind);
        table_cell(&t, "%s", event->message);
    }
    status_t st = output_table(&t, e);
    table_done(&t);
    return st;
}

static status_t run_events(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[80];
    (void)args;
    TRY(client_job_name(words[0], name, e));
    Trainyard__V1__ListEventsResponse *all = malloc(sizeof *all);
    if (!all)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the events");
    trainyard__v1__list_events_response__init(all);
    status_t st = list_events(c, name, all, e);
    if (st == ST_OK)
        st = show_events(c, all, e);
    trainyard__v1__list_events_response__free_unpacked(all, NULL);
    return st;
}

const struct command command_events = {
    .name = "events",
    .arguments = "JOB",
    .summary = "Lists what happened to a job, in order.",
    .example = "trainyard events 42",
    .args_bytes = 1,
    .least = 1,
    .most = 1,
    .run = run_events,
};

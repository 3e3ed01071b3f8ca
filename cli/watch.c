/* trainyard watch, events.
 *
 * watch_job() reads the WatchJob stream. Each update is an event, which is printed as a line, or the progress, which
 * is a bar on a terminal (progress.c) and a line every PLAIN_PROGRESS_MS elsewhere. The last update carries the job
 * and ends the watch. When the stream breaks, follow() opens another one after the number of the last event, for
 * PATIENCE_MS, which is the longest outage that training survives. Before the first update the limit is
 * FIRST_PATIENCE_MS, so that a wrong address fails soon. The remaining time is extrapolated from the steps since the
 * last change of state.
 *
 * `events` lists the same events without waiting, page by page. */
#include "cli/watch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "cli/client.h"
#include "cli/colour.h"
#include "cli/job_name.h"
#include "cli/output.h"
#include "cli/progress.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/job.pb-c.h>
#include <unistd.h>

enum {
    /* How long a lost connection is redialled: the longest outage that training survives. */
    PATIENCE_MS = 30 * 60 * 1000,
    /* The same before the first update: enough for a restart of the controller, short for a wrong address. */
    FIRST_PATIENCE_MS = 5000,
    /* Between progress lines if stderr is not a terminal. */
    PLAIN_PROGRESS_MS = 5000,
};

struct watch {
    struct cli *c;
    const char *name;
    int64_t last_event;
    struct progress progress;
    bool received; /* this stream has delivered an update */
    bool reported; /* that the controller is unreachable */
    int64_t plain_at_ms;
    int64_t first_step, first_ms; /* start of the rate's measurement; first_ms 0 = not started */
    bool ended;
    Trainyard__V1__Job__State state;
};

static void show_event(struct watch *w, const Trainyard__V1__Event *event) {
    char when[OUTPUT_TIME_BYTES];
    output_time(event->time, when);
    progress_clear(&w->progress);
    if (strcmp(event->kind, "state_changed") == 0)
        w->first_ms = 0; /* the time of waiting or pausing does not count for the rate */
    const char *state = output_enum(&trainyard__v1__job__state__descriptor, (int)event->state);
    const char *colour = colour_wanted(STDERR_FILENO) ? colour_of_state(state) : "";
    fprintf(stderr, "%s  %s%s%s", when, colour, state, *colour ? COLOUR_END : "");
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

/* What follows the step, the most useful first, because a narrow terminal cuts the line. */
static void progress_text(const Trainyard__V1__Progress *p, int64_t left_s, char *ret, size_t capacity) {
    size_t n = 0;
    char left[24];
    *ret = '\0';
    if (p->_loss_case)
        n += (size_t)snprintf(ret + n, capacity - n, "  loss %.4f", p->loss);
    if (left_s >= 0) {
        output_duration(left_s, left);
        n += (size_t)snprintf(ret + n, capacity - n, "  %s left", left);
    }
    if (p->_validation_loss_case)
        n += (size_t)snprintf(ret + n, capacity - n, "  validation %.4f", p->validation_loss);
    if (p->_tokens_per_second_case)
        n += (size_t)snprintf(ret + n, capacity - n, "  %.0f tokens/s", p->tokens_per_second);
    if (p->_samples_per_second_case)
        snprintf(ret + n, capacity - n, "  %.0f samples/s", p->samples_per_second);
}

static void show_progress(struct watch *w, const Trainyard__V1__Progress *p) {
    char text[1600]; /* a double may have 300 digits */
    const int64_t now = clock_mono_ms();
    progress_text(p, seconds_left(w, p, now), text, sizeof text);
    if (w->progress.terminal) {
        progress_draw(&w->progress, "step", (uint64_t)p->step, (uint64_t)p->steps, text);
        return;
    }
    if (now < w->plain_at_ms && p->step != p->steps)
        return;
    w->plain_at_ms = now + PLAIN_PROGRESS_MS;
    fprintf(stderr, "step %" PRId64, p->step);
    if (p->steps) /* 0: not known, of a program */
        fprintf(stderr, "/%" PRId64, p->steps);
    fprintf(stderr, "%s\n", text);
    fflush(stderr);
}

static status_t take_update(struct watch *w, const Trainyard__V1__WatchJobResponse *update, struct err *e) {
    bool json = w->c->output == OUTPUT_JSON;
    bool is_event = update->update_case == TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_EVENT;
    w->received = true;
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

/* Reads one stream to its end. */
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

static void report_absence(struct watch *w, const struct err *e) {
    if (w->reported)
        return;
    progress_clear(&w->progress);
    client_report_absence(w->c, e);
    w->reported = true;
}

/* Repeats streams until the job has ended; a broken one is opened again within the limits above. */
static status_t follow(struct watch *w, struct err *e) {
    int64_t begun_ms = clock_mono_ms(), patience_ms = FIRST_PATIENCE_MS;
    for (;;) {
        char reason[RPC_REASON_BYTES];
        w->received = false;
        status_t st = follow_once(w, reason, e);
        if (w->ended)
            return ST_OK;
        if (w->received) {
            begun_ms = clock_mono_ms();
            patience_ms = PATIENCE_MS;
            w->reported = false;
        }
        if (st == ST_OK) /* the controller is stopping */
            st = err_set(e, ST_UNAVAILABLE, "the controller ended the watch before the job ended");
        if (!client_waits(st, reason, begun_ms, patience_ms))
            return st;
        report_absence(w, e);
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
    struct watch w = { .c = c, .name = name };
    progress_init(&w.progress);
    status_t st = follow(&w, e);
    progress_end(&w.progress);
    TRY(st);
    c->exit_code = exit_code_of_state(w.state);
    return ST_OK;
}

static status_t run_watch(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[JOB_NAME_BYTES];
    (void)args;
    TRY(job_name_find(c, words[0], name, e));
    return watch_job(c, name, e);
}

const struct command command_watch = {
    .name = "watch",
    .arguments = "JOB",
    .summary = "Shows a job's events and progress until it ends.",
    .details =
        "Exits with 0 if the job SUCCEEDED, 1 if it FAILED, 3 if it was CANCELLED; a PAUSED job has not ended. With\n"
        "-o json each update is one line of JSON (a WatchJobResponse) on stdout. Continues by itself after a restart\n"
        "of the controller.",
    .example = "trainyard watch 42",
    .args_bytes = 1,
    .min_words = 1,
    .max_words = 1,
    .run = run_watch,
};

/* ---- events ---- */

/* Each page starts after the number of the last event. */
static status_t list_events(struct cli *c, const char *name, Trainyard__V1__ListEventsResponse *all, struct err *e) {
    Trainyard__V1__ListEventsRequest request = TRAINYARD__V1__LIST_EVENTS_REQUEST__INIT;
    request.name = (char *)name;
    request.page_size = LIMIT_PAGE_SIZE;
    for (;;) {
        CLEANUP(message_freep) ProtobufCMessage *page = NULL;
        TRY(client_call(c, &trainyard__v1__job_service__descriptor, "ListEvents", &request.base, &page, e));
        size_t before = all->n_events;
        client_join(&all->base, page);
        if (all->n_events - before < LIMIT_PAGE_SIZE)
            return ST_OK;
        request.after_event = all->events[all->n_events - 1]->number;
    }
}

static void add_event(struct table *t, const void *message) {
    const Trainyard__V1__Event *event = message;
    char when[OUTPUT_TIME_BYTES];
    output_time(event->time, when);
    table_cell(t, "%" PRId64, event->number);
    table_cell(t, "%s", when);
    table_cell(t, "%d", event->attempt);
    table_cell(t, "%s", output_enum(&trainyard__v1__job__state__descriptor, (int)event->state));
    table_cell(t, "%s", event->kind);
    table_cell(t, "%s", event->message);
}

static const struct output_columns event_columns = { { "NUMBER", "TIME", "ATTEMPT", "STATE", "KIND", "MESSAGE" },
                                                     add_event };

static status_t show_events(const struct cli *c, const Trainyard__V1__ListEventsResponse *all, struct err *e) {
    bool done = false;
    TRY(output_message(c, &all->base, &done, e));
    if (done)
        return ST_OK;
    return output_table(&event_columns, all->events, all->n_events, e);
}

static status_t run_events(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[JOB_NAME_BYTES];
    (void)args;
    TRY(job_name_find(c, words[0], name, e));
    CLEANUP(message_freep) Trainyard__V1__ListEventsResponse *all = alloc_zeroed(1, sizeof *all);
    trainyard__v1__list_events_response__init(all);
    TRY(list_events(c, name, all, e));
    return show_events(c, all, e);
}

const struct command command_events = {
    .name = "events",
    .arguments = "JOB",
    .summary = "Lists the events of a job, in order.",
    .example = "trainyard events 42",
    .args_bytes = 1,
    .min_words = 1,
    .max_words = 1,
    .run = run_events,
};

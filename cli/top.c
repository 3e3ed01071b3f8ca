/* trainyard top: the jobs that use slots, on one screen that is drawn again and again.
 *
 * Each screen asks for the status of the service and for the jobs of each state that has slots, and for each of those
 * that fit on the screen its placements, its last metrics and its rank-seconds. A model reports the time of a step. For
 * a program, the steps since the screen before give its speed. Where the screen cannot be drawn again, on a dumb
 * terminal or in a pipe, there is one screen. */
#include "cli/client.h"
#include "cli/colour.h"
#include "cli/output.h"
#include "cli/progress.h"

#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <trainyard/v1/job.pb-c.h>
#include <trainyard/v1/metric.pb-c.h>
#include <unistd.h>

enum { JOBS_MAX = 200, LINES_OTHER = 4, ROWS_DEFAULT = 24, COLUMNS_DEFAULT = 80, SCREEN_BYTES = 1 << 20 };

struct top_args {
    double interval;
};

/* A job of the screen before. */
struct seen {
    char name[64];
    int64_t step, time_ms;
};

struct screen {
    struct seen seen[JOBS_MAX];
    size_t n_seen;
    bool redraws;
};

/* What one line shows; NAN: not known. */
struct line {
    int ranks, cores;
    double steps_per_second, loss, gpu, compute;
};

static const ProtobufCServiceDescriptor *const jobs = &trainyard__v1__job_service__descriptor;

/* ---- one job ---- */

static status_t read_placements(struct cli *c, char *name, struct line *ret, struct err *e) {
    Trainyard__V1__GetJobRequest request = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.name = name;
    TRY(client_call_waiting(c, jobs, "GetJob", &request.base, &reply, e));
    const Trainyard__V1__Job *job = (Trainyard__V1__Job *)reply;
    if (job->n_attempts == 0)
        return ST_OK;
    const Trainyard__V1__Attempt *last = job->attempts[job->n_attempts - 1];
    ret->ranks = (int)last->n_placements;
    for (size_t i = 0; i < last->n_placements; i++)
        ret->cores += last->placements[i]->threads;
    return ST_OK;
}

static status_t read_metrics(struct cli *c, char *name, struct line *ret, struct err *e) {
    char *names[] = { (char *)"step_seconds", (char *)"loss", (char *)"device_utilization" };
    Trainyard__V1__QueryMetricsRequest request = TRAINYARD__V1__QUERY_METRICS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.job = name;
    request.names = names;
    request.n_names = sizeof names / sizeof *names;
    request.max_points = 1;
    TRY(client_call_waiting(c, &trainyard__v1__metric_service__descriptor, "QueryMetrics", &request.base, &reply, e));
    const Trainyard__V1__QueryMetricsResponse *found = (Trainyard__V1__QueryMetricsResponse *)reply;
    double busy = 0;
    int gpus = 0;
    for (size_t i = 0; i < found->n_series; i++) {
        const Trainyard__V1__MetricSeries *s = found->series[i];
        if (strcmp(s->name, "device_utilization") == 0) {
            busy += s->last_value;
            gpus++;
        } else if (strcmp(s->name, "loss") == 0) {
            ret->loss = s->last_value;
        } else if (s->last_value > 0) {
            ret->steps_per_second = 1 / s->last_value;
        }
    }
    ret->gpu = gpus ? busy / gpus : NAN;
    return ST_OK;
}

/* The share of the rank-seconds of the newest attempt in which its ranks computed. */
static status_t read_compute(struct cli *c, char *name, struct line *ret, struct err *e) {
    Trainyard__V1__GetRankSecondsRequest request = TRAINYARD__V1__GET_RANK_SECONDS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.name = name;
    status_t st = client_call_waiting(c, jobs, "GetRankSeconds", &request.base, &reply, e);
    if (st == ST_UNIMPLEMENTED) /* an older controller */
        return ST_OK;
    TRY(st);
    const Trainyard__V1__GetRankSecondsResponse *found = (Trainyard__V1__GetRankSecondsResponse *)reply;
    if (found->n_attempts == 0)
        return ST_OK;
    const Trainyard__V1__AttemptSeconds *last = found->attempts[found->n_attempts - 1];
    const double all = last->wall_seconds * last->ranks;
    ret->compute = all > 0 ? last->sum->compute / all : NAN;
    return ST_OK;
}

/* A job that was deleted meanwhile has no numbers. */
static status_t read_line(struct cli *c, char *name, struct line *ret, struct err *e) {
    *ret = (struct line){ .steps_per_second = NAN, .loss = NAN, .gpu = NAN, .compute = NAN };
    status_t st = read_placements(c, name, ret, e);
    if (st == ST_OK)
        st = read_metrics(c, name, ret, e);
    if (st == ST_OK)
        st = read_compute(c, name, ret, e);
    return st == ST_NOT_FOUND ? ST_OK : st;
}

/* The speed since the screen before, for a job that does not report the time of its steps. */
static double measured(const struct screen *s, const Trainyard__V1__Job *job, int64_t now_ms) {
    for (size_t i = 0; i < s->n_seen; i++)
        if (strcmp(s->seen[i].name, job->name) == 0 && now_ms > s->seen[i].time_ms && job->step > s->seen[i].step)
            return (double)(job->step - s->seen[i].step) * 1000 / (double)(now_ms - s->seen[i].time_ms);
    return NAN;
}

/* ---- the table ---- */

static void number_cell(struct table *t, const char *fmt, double value) {
    char text[32] = "-";
    if (!isnan(value))
        snprintf(text, sizeof text, fmt, value);
    table_cell(t, "%s", text);
}

static void add_row(struct table *t, const Trainyard__V1__Job *job, const struct line *line) {
    const int64_t steps = job->spec && job->spec->train ? job->spec->train->steps : 0;
    char left[24] = "-", step[48];
    int n = snprintf(step, sizeof step, "%" PRId64, job->step);
    if (steps > 0)
        snprintf(step + n, sizeof step - (size_t)n, "/%" PRId64, steps);
    if (steps > job->step && line->steps_per_second > 0)
        output_duration((int64_t)((double)(steps - job->step) / line->steps_per_second), left);
    table_cell(t, "%s", output_id(job->name));
    table_cell(t, "%s", job->display_name);
    table_cell(t, "%s", job->user);
    table_cell(t, "%s", output_enum(&trainyard__v1__job__state__descriptor, (int)job->state));
    table_cell(t, "%d", line->ranks);
    table_cell(t, "%d", line->cores);
    table_cell(t, "%s", step);
    number_cell(t, "%.2f", line->steps_per_second);
    number_cell(t, "%.4f", line->loss);
    number_cell(t, "%.0f%%", line->compute * 100);
    number_cell(t, "%.0f%%", line->gpu * 100);
    table_cell(t, "%s", left);
}

/* The jobs that have slots: those of each state, RUNNING first. */
static status_t list_jobs(struct cli *c, size_t limit, Trainyard__V1__ListJobsResponse **ret, struct err *e) {
    static const Trainyard__V1__Job__State states[] = {
        TRAINYARD__V1__JOB__STATE__RUNNING,    TRAINYARD__V1__JOB__STATE__STARTING,
        TRAINYARD__V1__JOB__STATE__RESTARTING, TRAINYARD__V1__JOB__STATE__PREEMPTING,
        TRAINYARD__V1__JOB__STATE__PAUSING,    TRAINYARD__V1__JOB__STATE__CANCELLING,
    };
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        Trainyard__V1__ListJobsRequest request = TRAINYARD__V1__LIST_JOBS_REQUEST__INIT;
        const size_t n = all ? ((Trainyard__V1__ListJobsResponse *)all)->n_jobs : 0;
        ProtobufCMessage *more = NULL;
        if (n >= limit)
            break;
        request.state = states[i];
        TRY(client_list_waiting(c, jobs, "ListJobs", &request.base, (int64_t)(limit - n), &more, e));
        if (all) {
            client_join(all, more);
            protobuf_c_message_free_unpacked(more, NULL);
        } else {
            all = more;
        }
    }
    *ret = (Trainyard__V1__ListJobsResponse *)take_ptr(&all);
    return ST_OK;
}

/* Fills the table, and remembers the steps of its jobs for the next screen. */
static status_t fill_table(struct cli *c, struct screen *s, size_t limit, struct table *t, struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__ListJobsResponse *found = NULL;
    struct seen seen[JOBS_MAX];
    TRY(list_jobs(c, limit, &found, e));
    for (size_t i = 0; i < found->n_jobs; i++) {
        struct line line;
        const int64_t now_ms = clock_mono_ms();
        TRY(read_line(c, found->jobs[i]->name, &line, e));
        if (isnan(line.steps_per_second))
            line.steps_per_second = measured(s, found->jobs[i], now_ms);
        add_row(t, found->jobs[i], &line);
        snprintf(seen[i].name, sizeof seen[i].name, "%s", found->jobs[i]->name);
        seen[i].step = found->jobs[i]->step;
        seen[i].time_ms = now_ms;
    }
    s->n_seen = found->n_jobs;
    memcpy(s->seen, seen, found->n_jobs * sizeof *seen);
    return ST_OK;
}

/* ---- the screen ---- */

static status_t add_head(const Trainyard__V1__GetStatusResponse *status, struct bytes *ret, struct err *e) {
    char now[OUTPUT_TIME_BYTES];
    Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    time.seconds = clock_wall_us() / 1000000;
    output_time(&time, now);
    TRY(bytes_printf(ret, e, "%s  executors %d", now, status->executors_attached));
    for (size_t i = 0; i < status->n_slots; i++)
        TRY(bytes_printf(ret, e, ", %s slots %d of %d", status->slots[i]->kind, status->slots[i]->used,
                         status->slots[i]->slots));
    TRY(bytes_printf(ret, e, "\njobs"));
    for (size_t i = 0; i < status->n_jobs; i++)
        TRY(bytes_printf(ret, e, "%s %" PRId64 " %s", i ? "," : "", status->jobs[i]->jobs,
                         output_enum(&trainyard__v1__job__state__descriptor, (int)status->jobs[i]->state)));
    TRY(bytes_printf(ret, e, "%s", status->n_jobs ? "" : " none"));
    if (status->n_attention)
        TRY(bytes_printf(ret, e, "; %zu thing%s need%s attention: trainyard status", status->n_attention,
                         status->n_attention == 1 ? "" : "s", status->n_attention == 1 ? "s" : ""));
    return bytes_printf(ret, e, "\n\n");
}

/* Writes the text, each line cut at the edge of the terminal, over the screen before. */
static status_t draw(const struct screen *s, const struct bytes *text, size_t width, struct err *e) {
    if (!s->redraws)
        fputs(text->data, stdout);
    else
        fputs("\033[H", stdout);
    for (const char *line = text->data; s->redraws && *line;) {
        const size_t n = strcspn(line, "\n");
        size_t shown = 0, used = 0;
        for (; used < n && (shown < width || ((uint8_t)line[used] & 0xc0) == 0x80); used++)
            if (line[used] == '\033')
                used += strcspn(line + used, "m"); /* a colour takes no space */
            else
                shown += ((uint8_t)line[used] & 0xc0) != 0x80;
        printf("%.*s%s\033[K\n", (int)used, line, memchr(line, '\033', n) ? COLOUR_END : "");
        line += n + (line[n] == '\n');
    }
    if (s->redraws)
        fputs("\033[J", stdout);
    return fflush(stdout) == 0 ? ST_OK : err_errno(e, "write to standard output");
}

static status_t show_screen(struct cli *c, struct screen *s, struct err *e) {
    static const char *const heads[] = { "JOB",    "NAME", "USER",    "STATE", "RANKS", "CORES", "STEP",
                                         "STEP/S", "LOSS", "COMPUTE", "GPU",   "LEFT",  NULL };
    struct winsize size = { .ws_row = 0 };
    CLEANUP(table_done) struct table t;
    CLEANUP(bytes_done) struct bytes text;
    CLEANUP(message_freep) Trainyard__V1__GetStatusResponse *status = NULL;
    table_init(&t, heads);
    bytes_init(&text, SCREEN_BYTES);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0)
        size = (struct winsize){ .ws_row = ROWS_DEFAULT, .ws_col = COLUMNS_DEFAULT };
    const int fits = s->redraws ? size.ws_row - LINES_OTHER : JOBS_MAX;
    const size_t limit = fits < 1 ? 1 : fits < JOBS_MAX ? (size_t)fits : JOBS_MAX;
    TRY(client_get_status(c, &status, e));
    TRY(fill_table(c, s, limit, &t, e));
    TRY(add_head(status, &text, e));
    TRY(table_print(&t, colour_wanted(STDOUT_FILENO), &text, e));
    return draw(s, &text, size.ws_col, e);
}

static status_t run_top(struct cli *c, const void *args, char *const words[], struct err *e) {
    const double interval = ((const struct top_args *)args)->interval;
    struct screen s = { .redraws = progress_redraws(STDOUT_FILENO) };
    (void)words;
    if (c->output != OUTPUT_TABLE)
        return err_set(e, ST_INVALID_ARGUMENT, "top: prints a table only; 'list' and 'status' have -o json");
    if (!(interval >= 0.5 && interval <= 3600))
        return err_set(e, ST_INVALID_ARGUMENT, "--interval: %g is not from 0.5 to 3600 seconds", interval);
    if (s.redraws)
        fputs("\033[2J", stdout);
    do {
        TRY(show_screen(c, &s, e));
        if (s.redraws)
            poll(NULL, 0, (int)(interval * 1000));
    } while (s.redraws);
    return ST_OK;
}

static const struct option_row options[] = {
    { "interval", 'i', "SECONDS", "time between two screens", OPTION_REAL, offsetof(struct top_args, interval), "2" },
    { 0 },
};

const struct command command_top = {
    .name = "top",
    .arguments = "[--interval SECONDS]",
    .summary = "Shows the jobs that use slots, with their speed, until Ctrl-C.",
    .details = "RANKS and CORES are those of the newest attempt. STEP/S, LOSS and LEFT follow from the last report. "
               "COMPUTE is\n"
               "the share of the ranks' time in which they computed, GPU the mean utilization of their GPUs. In a pipe "
               "and on\n"
               "a terminal that cannot be redrawn (TERM=dumb) one screen is printed.",
    .example = "trainyard top\ntrainyard top | head",
    .options = options,
    .args_bytes = sizeof(struct top_args),
    .run = run_top,
};

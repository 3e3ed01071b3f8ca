/* trainyard metrics.
 *
 * One QueryMetrics call returns every requested series, averaged by the server to at most --points entries. --plot asks
 * for two points per terminal column, the resolution of a Braille cell. The table computes min and max over the
 * entries' own minima and maxima, so that averaging does not hide an extreme. Names without a series in the reply are
 * checked against all series of the job (job_check.h). --rank-seconds shows another answer (rank_seconds.h). */
#include "cli/client.h"
#include "cli/job_check.h"
#include "cli/job_name.h"
#include "cli/output.h"
#include "cli/plot.h"
#include "cli/rank_seconds.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <trainyard/v1/metric.pb-c.h>
#include <unistd.h>

enum { MAX_NAMES = 64, PLOT_ROWS = 16, DEFAULT_COLUMNS = 80, AXIS_COLUMNS = 14 };

struct metrics_args {
    bool plot, rank_seconds;
    int64_t since, rank, points, attempt;
};

static int terminal_columns(void) {
    struct winsize size;
    int columns = DEFAULT_COLUMNS;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    columns -= AXIS_COLUMNS;
    return columns < 10 ? 10 : columns > PLOT_MAX_COLUMNS ? PLOT_MAX_COLUMNS : columns;
}

static status_t plot_series(const Trainyard__V1__MetricSeries *s, struct bytes *text, struct err *e) {
    char title[160];
    size_t n = s->n_step < s->n_mean ? s->n_step : s->n_mean;
    snprintf(title, sizeof title, "%.64s, rank %d: %.6g at step %" PRId64, s->name, s->rank, s->last_value,
             s->last_step);
    struct plot p = {
        .title = title, .x = s->step, .y = s->mean, .n = n, .columns = terminal_columns(), .rows = PLOT_ROWS
    };
    return plot_print(&p, text, e);
}

static status_t show_plots(const Trainyard__V1__QueryMetricsResponse *answer, struct err *e) {
    struct bytes text;
    bytes_init(&text, 16 << 20);
    status_t st = ST_OK;
    for (size_t i = 0; i < answer->n_series && st == ST_OK; i++)
        st = plot_series(answer->series[i], &text, e);
    if (text.len)
        fwrite(text.data, 1, text.len, stdout);
    bytes_done(&text);
    return st;
}

static double min_of(const double *values, size_t n) {
    double min = NAN;
    for (size_t i = 0; i < n; i++)
        min = fmin(min, values[i]); /* fmin ignores NaN */
    return min;
}

static double max_of(const double *values, size_t n) {
    double max = NAN;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, values[i]);
    return max;
}

static void real_cell(struct table *t, double value) { table_cell(t, "%.6g", value); }

static void add_series(struct table *t, const void *message) {
    const Trainyard__V1__MetricSeries *s = message;
    table_cell(t, "%s", s->name);
    table_cell(t, "%d", s->rank);
    table_cell(t, "%" PRId64, s->points);
    table_cell(t, "%" PRId64, s->last_step);
    real_cell(t, s->last_value);
    real_cell(t, min_of(s->min, s->n_min));
    real_cell(t, max_of(s->max, s->n_max));
}

static const struct output_columns series_columns = { { "NAME", "RANK", "POINTS", "LAST STEP", "LAST", "MIN", "MAX" },
                                                      add_series };

static status_t show_metrics(const struct cli *c, bool plot, const ProtobufCMessage *reply, struct err *e) {
    const Trainyard__V1__QueryMetricsResponse *answer = (const Trainyard__V1__QueryMetricsResponse *)reply;
    if (answer->records_lost > 0)
        fprintf(stderr,
                "trainyard: %" PRId64
                " records of this job are lost: steps may have no points; see `trainyard events`\n",
                answer->records_lost);
    if (plot)
        return show_plots(answer, e);
    return output_list(c, reply, &series_columns, e);
}

/* The newest attempt, unless one is named. */
static status_t run_rank_seconds(struct cli *c, const struct metrics_args *args, const char *name, char *const words[],
                                 struct err *e) {
    if (args->plot || *words || args->rank != OPTION_ABSENT)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--rank-seconds: has all ranks and no metrics; NAME, --plot and --rank "
                       "do not apply");
    TRY(job_check_rank(c, name, OPTION_ABSENT, args->attempt, e));
    return rank_seconds_print(c, name, args->attempt == OPTION_ABSENT ? 0 : (int)args->attempt, e);
}

static status_t run_metrics(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct metrics_args *args = args_;
    char name[JOB_NAME_BYTES], *names[MAX_NAMES];
    Trainyard__V1__QueryMetricsRequest request = TRAINYARD__V1__QUERY_METRICS_REQUEST__INIT;
    TRY(job_name_find(c, words[0], name, e));
    if (args->rank_seconds)
        return run_rank_seconds(c, args, name, words + 1, e);
    if (args->attempt != OPTION_ABSENT)
        return err_set(e, ST_INVALID_ARGUMENT, "--attempt: only with --rank-seconds");
    request.job = name;
    request.names = names;
    for (char *const *word = words + 1; *word; word++)
        names[request.n_names++] = *word;
    TRY(job_check_rank(c, name, args->rank, OPTION_ABSENT, e));
    request.after_step = args->since;
    if (args->points < 1 || args->points > 10000)
        return err_set(e, ST_INVALID_ARGUMENT, "--points: %" PRId64 " is not from 1 to 10000", args->points);
    request.max_points = args->plot ? 2 * terminal_columns() : (int32_t)args->points;
    if (args->rank != OPTION_ABSENT) {
        request._rank_case = TRAINYARD__V1__QUERY_METRICS_REQUEST___RANK_RANK;
        request.rank = (int32_t)args->rank;
    }
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    TRY(client_call(c, &trainyard__v1__metric_service__descriptor, "QueryMetrics", &request.base, &reply, e));
    status_t st = job_check_series(c, name, names, request.n_names, (const Trainyard__V1__QueryMetricsResponse *)reply,
                                   e);
    if (st == ST_OK)
        st = show_metrics(c, args->plot, reply, e);
    return st;
}

static const struct option_row metrics_options[] = {
    { "plot", 'p', NULL, "draw each series in the terminal", OPTION_FLAG, offsetof(struct metrics_args, plot), NULL },
    { "since", 0, "STEP", "only points after this step", OPTION_INT, offsetof(struct metrics_args, since), "0" },
    { "rank", 0, "R", "only this rank's series", OPTION_INT, offsetof(struct metrics_args, rank), NULL },
    { "points", 0, "N", "at most N points per series; more are averaged", OPTION_INT,
      offsetof(struct metrics_args, points), "10000" },
    { "rank-seconds", 0, NULL, "where the time of the job's ranks went, instead of metrics", OPTION_FLAG,
      offsetof(struct metrics_args, rank_seconds), NULL },
    { "attempt", 0, "A", "with --rank-seconds: the ranks of this attempt instead of the newest", OPTION_INT,
      offsetof(struct metrics_args, attempt), NULL },
    { 0 },
};

const struct command command_metrics = {
    .name = "metrics",
    .arguments = "JOB [NAME]... [--plot] [--since STEP] [--rank R] [--points N] | JOB --rank-seconds [--attempt A]",
    .summary = "Shows a job's metrics: the last, smallest and largest value, or the curve.",
    .details =
        "NAME is loss, validation_loss, learning_rate, grad_norm, tokens_per_second, step_seconds, ...; default: "
        "all.",
    .example = "trainyard metrics 42 loss validation_loss --plot\ntrainyard metrics 42 loss -o json\n"
               "trainyard metrics 42 --rank-seconds",
    .options = metrics_options,
    .args_bytes = sizeof(struct metrics_args),
    .min_words = 1,
    .max_words = 1 + MAX_NAMES,
    .run = run_metrics,
};

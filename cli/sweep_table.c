#include "cli/sweep_table.h"

#include "cli/colour.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/job.pb-c.h>
#include <unistd.h>

enum { VALUES_BYTES = 2048, TABLE_BYTES = 64 << 20 };

/* ---- order ---- */

static bool has_number(const Trainyard__V1__Trial *t) { return t->_metric_case && !isnan(t->metric); }

static int by_metric(const void *a, const void *b, void *maximize) {
    const Trainyard__V1__Trial *x = *(Trainyard__V1__Trial *const *)a, *y = *(Trainyard__V1__Trial *const *)b;
    if (has_number(x) != has_number(y))
        return has_number(x) ? -1 : 1;
    if (has_number(x) && x->metric != y->metric)
        return (x->metric < y->metric) == *(bool *)maximize ? 1 : -1;
    return x->number - y->number;
}

void sweep_table_sort(Trainyard__V1__ListTrialsResponse *answer) {
    const Trainyard__V1__SweepSpec *spec = answer->sweep->spec;
    bool maximize = spec && spec->goal && strcmp(spec->goal, "maximize") == 0;
    if (answer->n_trials)
        qsort_r(answer->trials, answer->n_trials, sizeof(void *), by_metric, &maximize);
}

/* ---- values ---- */

static bool ends_with(const char *path, const char *suffix) {
    const size_t n = strlen(path), n_suffix = strlen(suffix);
    return n >= n_suffix && strcmp(path + n - n_suffix, suffix) == 0 &&
           (n == n_suffix || path[n - n_suffix - 1] == '.');
}

/* The last parts of a path, as many as no other path ends with. */
static const char *short_path(char *const *paths, size_t n, size_t i) {
    const char *at = paths[i] + strlen(paths[i]);
    for (bool unique = false; !unique && at > paths[i];) {
        at--;
        while (at > paths[i] && at[-1] != '.')
            at--;
        unique = true;
        for (size_t k = 0; k < n; k++)
            unique &= k == i || !ends_with(paths[k], at);
    }
    return at;
}

/* "learning_rate=0.1 width=64", cut to fit. */
static void write_values(char *const *paths, size_t n_paths, const Trainyard__V1__Trial *t, char ret[VALUES_BYTES]) {
    size_t used = 0;
    *ret = '\0';
    for (size_t i = 0; i < n_paths && i < t->n_values && used < VALUES_BYTES; i++)
        used += (size_t)snprintf(ret + used, VALUES_BYTES - used, "%s%s=%s", i ? " " : "",
                                 short_path(paths, n_paths, i), t->values[i]);
}

/* ---- tables ---- */

static status_t print(const struct table *t, struct err *e) {
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, TABLE_BYTES);
    TRY(table_print(t, colour_wanted(STDOUT_FILENO), &text, e));
    return fwrite(text.data, 1, text.len, stdout) == text.len ? ST_OK : err_errno(e, "writing to standard output");
}

static void write_metric(const Trainyard__V1__Trial *t, char ret[32]) {
    snprintf(ret, 32, "-");
    if (t->_metric_case)
        snprintf(ret, 32, "%.6g", t->metric);
}

static void add_trial(struct table *t, const Trainyard__V1__Sweep *s, const Trainyard__V1__Trial *trial) {
    char values[VALUES_BYTES], metric[32];
    write_values(s->parameters, s->n_parameters, trial, values);
    write_metric(trial, metric);
    table_cell(t, "%d", trial->number);
    table_cell(t, "%s", *trial->job ? output_id(trial->job) : "-");
    table_cell(t, "%s", trial->state ? output_enum(&trainyard__v1__job__state__descriptor, (int)trial->state) : "-");
    table_cell(t, "%" PRId64, trial->step);
    table_cell(t, "%s", metric);
    table_cell(t, "%s", values);
    table_cell(t, "%s", trial->reason);
}

static void show_sweep(const Trainyard__V1__Sweep *s) {
    char values[VALUES_BYTES], metric[32], ran[24];
    output_between(s->create_time, s->end_time, ran);
    printf("%-8s %s\n", "sweep", output_id(s->name));
    printf("%-8s %s%s", "state", output_enum(&trainyard__v1__sweep__state__descriptor, (int)s->state),
           *s->reason ? ": " : "");
    output_text(stdout, s->reason);
    printf("\n%-8s %d: %d created, %d ended, %d SUCCEEDED, %d FAILED, %d stopped early\n", "trials", s->trials,
           s->created, s->ended, s->succeeded, s->failed, s->stopped);
    printf("%-8s %s\n", "ran", ran);
    if (s->spec)
        printf("%-8s %s %s\n", "goal", s->spec->goal, s->spec->metric);
    if (!s->best)
        return;
    write_values(s->parameters, s->n_parameters, s->best, values);
    write_metric(s->best, metric);
    printf("%-8s trial %d, %s: %s with ", "best", s->best->number, *s->best->job ? s->best->job : "deleted", metric);
    output_text(stdout, values);
    putchar('\n');
}

status_t sweep_table_trials(const Trainyard__V1__ListTrialsResponse *answer, struct err *e) {
    static const char *const heads[] = { "TRIAL", "JOB", "STATE", "STEP", "METRIC", "VALUES", "REASON", NULL };
    CLEANUP(table_done) struct table t;
    show_sweep(answer->sweep);
    putchar('\n');
    table_init(&t, heads);
    for (size_t i = 0; i < answer->n_trials; i++)
        add_trial(&t, answer->sweep, answer->trials[i]);
    return print(&t, e);
}

status_t sweep_table_values(const Trainyard__V1__ValidateSweepResponse *answer, struct err *e) {
    static const char *const heads[] = { "TRIAL", "VALUES", NULL };
    char values[VALUES_BYTES];
    CLEANUP(table_done) struct table t;
    table_init(&t, heads);
    for (size_t i = 0; i < answer->n_trials; i++) {
        write_values(answer->parameters, answer->n_parameters, answer->trials[i], values);
        table_cell(&t, "%d", answer->trials[i]->number);
        table_cell(&t, "%s", values);
    }
    return print(&t, e);
}

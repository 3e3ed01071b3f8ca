/* trainyard list: the pages of ListJobs up to --limit. The service selects and sorts; --columns chooses what the table
 * shows of each job. */
#include "cli/list.h"

#include "cli/client.h"
#include "cli/job_select.h"
#include "cli/nearest.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const ProtobufCServiceDescriptor *const jobs = &trainyard__v1__job_service__descriptor;

struct list_args {
    struct job_selector selector;
    const char *sort, *columns;
    bool reverse;
    int64_t limit;
};

/* ---- columns ---- */

static void cell_id(struct table *t, const Trainyard__V1__Job *job) { table_cell(t, "%s", output_id(job->name)); }
static void cell_name(struct table *t, const Trainyard__V1__Job *job) { table_cell(t, "%s", job->display_name); }
static void cell_user(struct table *t, const Trainyard__V1__Job *job) { table_cell(t, "%s", job->user); }
static void cell_project(struct table *t, const Trainyard__V1__Job *job) { table_cell(t, "%s", job->project); }
static void cell_queue(struct table *t, const Trainyard__V1__Job *job) { table_cell(t, "%s", job->queue); }
static void cell_attempt(struct table *t, const Trainyard__V1__Job *job) { table_cell(t, "%d", job->attempt); }
static void cell_restarts(struct table *t, const Trainyard__V1__Job *job) { table_cell(t, "%d", job->restarts); }
static void cell_priority(struct table *t, const Trainyard__V1__Job *job) { table_cell(t, "%d", job->priority); }
static void cell_step(struct table *t, const Trainyard__V1__Job *job) { table_cell(t, "%" PRId64, job->step); }
static void cell_reason(struct table *t, const Trainyard__V1__Job *job) { table_cell(t, "%s", job->reason); }

static void cell_state(struct table *t, const Trainyard__V1__Job *job) {
    table_cell(t, "%s", output_enum(&trainyard__v1__job__state__descriptor, (int)job->state));
}

static void cell_steps(struct table *t, const Trainyard__V1__Job *job) {
    const int64_t steps = job->spec && job->spec->train ? job->spec->train->steps : 0;
    if (steps > 0)
        table_cell(t, "%" PRId64, steps);
    else
        table_cell(t, "-"); /* not known, of a program */
}

static void cell_age(struct table *t, const Trainyard__V1__Job *job) {
    char text[24];
    output_between(job->create_time, NULL, text);
    table_cell(t, "%s", text);
}

static void cell_ran(struct table *t, const Trainyard__V1__Job *job) {
    char text[24];
    output_between(job->start_time, job->end_time, text);
    table_cell(t, "%s", text);
}

static void cell_time(struct table *t, const Google__Protobuf__Timestamp *time) {
    char text[OUTPUT_TIME_BYTES];
    output_time(time, text);
    table_cell(t, "%s", text);
}
static void cell_created(struct table *t, const Trainyard__V1__Job *job) { cell_time(t, job->create_time); }
static void cell_started(struct table *t, const Trainyard__V1__Job *job) { cell_time(t, job->start_time); }
static void cell_ended(struct table *t, const Trainyard__V1__Job *job) { cell_time(t, job->end_time); }

static void cell_labels(struct table *t, const Trainyard__V1__Job *job) {
    char text[1024] = "";
    size_t used = 0;
    for (size_t i = 0; job->spec && i < job->spec->n_labels && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s=%s", i ? "," : "", job->spec->labels[i]->key,
                                 job->spec->labels[i]->value);
    table_cell(t, "%s", text);
}

static const struct column {
    const char *name, *head;
    void (*cell)(struct table *t, const Trainyard__V1__Job *job);
} COLUMNS[] = {
    { "job", "JOB", cell_id },
    { "name", "NAME", cell_name },
    { "state", "STATE", cell_state },
    { "step", "STEP", cell_step },
    { "steps", "STEPS", cell_steps },
    { "attempt", "ATTEMPT", cell_attempt },
    { "restarts", "RESTARTS", cell_restarts },
    { "user", "USER", cell_user },
    { "project", "PROJECT", cell_project },
    { "queue", "QUEUE", cell_queue },
    { "priority", "PRIORITY", cell_priority },
    { "labels", "LABELS", cell_labels },
    { "age", "AGE", cell_age },
    { "ran", "RAN", cell_ran },
    { "created", "CREATED", cell_created },
    { "started", "STARTED", cell_started },
    { "ended", "ENDED", cell_ended },
    { "reason", "REASON", cell_reason },
};
const char *list_column(size_t i) { return i < sizeof COLUMNS / sizeof *COLUMNS ? COLUMNS[i].name : NULL; }
enum { N_COLUMNS = sizeof COLUMNS / sizeof *COLUMNS };
_Static_assert(sizeof COLUMNS / sizeof *COLUMNS <= TABLE_COLUMNS, "a table has all columns");

#define COLUMNS_PRESET "job,name,state,step,attempt,age,ran,reason"

static status_t find_column(const char *word, const struct column **ret, struct err *e) {
    const char *names[N_COLUMNS], *meant;
    char known[256];
    for (size_t i = 0, used = 0; i < N_COLUMNS; i++) {
        names[i] = COLUMNS[i].name;
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
        *ret = &COLUMNS[i];
        if (strcasecmp(word, names[i]) == 0)
            return ST_OK;
    }
    meant = nearest_word(word, names, N_COLUMNS);
    return meant
               ? err_set(e, ST_INVALID_ARGUMENT, "--columns: there is no column '%.40s': '%s' may be meant", word,
                         meant)
               : err_set(e, ST_INVALID_ARGUMENT, "--columns: there is no column '%.40s'; columns are %s", word, known);
}

/* text: "job,name". ret: N_COLUMNS pointers. */
static status_t parse_columns(const char *text, const struct column *ret[], size_t *ret_n, struct err *e) {
    char copy[256], *rest = copy;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return err_set(e, ST_INVALID_ARGUMENT, "--columns: has more than %zu bytes", sizeof copy - 1);
    *ret_n = 0;
    for (char *word; (word = strsep(&rest, ","));) {
        if (*ret_n == N_COLUMNS)
            return err_set(e, ST_INVALID_ARGUMENT, "--columns: are more than %d", (int)N_COLUMNS);
        TRY(find_column(word, &ret[(*ret_n)++], e));
    }
    return ST_OK;
}

static status_t print_jobs(const Trainyard__V1__ListJobsResponse *found, const struct column *const columns[], size_t n,
                           struct err *e) {
    CLEANUP(table_done) struct table t;
    const char *heads[N_COLUMNS + 1] = { NULL };
    for (size_t i = 0; i < n; i++)
        heads[i] = columns[i]->head;
    table_init(&t, heads);
    for (size_t i = 0; i < found->n_jobs; i++)
        for (size_t j = 0; j < n; j++)
            columns[j]->cell(&t, found->jobs[i]);
    return output_table_print(&t, e);
}

/* ---- order ---- */

static status_t parse_order(const char *text, Trainyard__V1__ListJobsRequest__Order *ret, struct err *e) {
    const ProtobufCEnumDescriptor *orders = &trainyard__v1__list_jobs_request__order__descriptor;
    for (unsigned i = 0; i < orders->n_values; i++)
        if (orders->values[i].value != 0 && strcasecmp(orders->values[i].name, text) == 0) {
            *ret = (Trainyard__V1__ListJobsRequest__Order)orders->values[i].value;
            return ST_OK;
        }
    return err_set(e, ST_INVALID_ARGUMENT, "--sort: '%.40s' is not one of: created, started, ended, name, state, user",
                   text);
}

static status_t run_list(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct list_args *args = args_;
    (void)words;
    Trainyard__V1__ListJobsRequest request;
    struct job_selector_times times;
    const struct column *columns[N_COLUMNS];
    size_t n_columns = 0;
    bool done;
    if (args->limit < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "--limit: %" PRId64 " is not at least 1", args->limit);
    TRY(parse_columns(args->columns, columns, &n_columns, e));
    TRY(job_selector_request(&args->selector, &times, &request, e));
    TRY(parse_order(args->sort, &request.order, e));
    request.reverse = args->reverse;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    TRY(client_list(c, jobs, "ListJobs", &request.base, args->limit, &all, e));
    const Trainyard__V1__ListJobsResponse *found = (Trainyard__V1__ListJobsResponse *)all;
    TRY(output_listed(c, all, &done, e));
    if (!done)
        TRY(print_jobs(found, columns, n_columns, e));
    if (*found->next_page_token)
        fprintf(stderr, "these are the %s %zu jobs; there may be more: use --limit %zu\n",
                request.order == TRAINYARD__V1__LIST_JOBS_REQUEST__ORDER__CREATED && !args->reverse ? "newest"
                                                                                                    : "first",
                found->n_jobs, 10 * found->n_jobs);
    return ST_OK;
}

static const struct option_row options[] = {
    JOB_SELECTOR_ROWS(struct list_args, selector),
    { "sort", 0, "ORDER", "created, started, ended, name, state or user; started and ended leave other jobs out",
      OPTION_TEXT, offsetof(struct list_args, sort), "created" },
    { "reverse", 'r', NULL, "the opposite order", OPTION_FLAG, offsetof(struct list_args, reverse), NULL },
    { "columns", 'c', "COLUMNS", "columns of the table, separated by commas", OPTION_TEXT,
      offsetof(struct list_args, columns), COLUMNS_PRESET },
    { "limit", 'n', "N", "at most N jobs; stderr reports whether there may be more", OPTION_INT,
      offsetof(struct list_args, limit), "100" },
    { 0 },
};

const struct command command_list = {
    .name = "list",
    .arguments = "[-l KEY=VALUE]... [--state S] [--queue Q] [--name N] [--user U] [--since T] [--before T] "
                 "[--sort ORDER] [--reverse] [--columns COLUMNS] [--limit N]",
    .summary = "Lists jobs, newest first.",
    .details =
        "A job must match all options. Times sort with the latest first, names, states and users in ascending\n"
        "order; --reverse turns this round. Columns are job, name, state, step, steps, attempt, restarts, user,\n"
        "project, queue, priority, labels, age, ran, created, started, ended and reason.",
    .example = "trainyard list --state RUNNING\n"
               "trainyard list -l team=research --since 3d --columns job,name,user,labels\n"
               "trainyard list --user ada --sort ended --limit 5\n"
               "trainyard list -o json | jq -r '.jobs[].name'",
    .options = options,
    .args_bytes = sizeof(struct list_args),
    .run = run_list,
};

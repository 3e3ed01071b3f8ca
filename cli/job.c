/* trainyard submit, list, get. */
#include "api/codec/text.h"
#include "api/spec/file.h"
#include "api/spec/spec.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/job.pb-c.h>

static const ProtobufCServiceDescriptor *const jobs = &trainyard__v1__job_service__descriptor;

static const char *state_name(Trainyard__V1__Job__State state) {
    return output_enum(&trainyard__v1__job__state__descriptor, (int)state);
}

/* ---- submit ---- */

struct submit_args {
    struct text_list set;
    const char *name, *request_id, *fork, *profile;
    bool watch;
};

static status_t print_submitted(const struct cli *c, const Trainyard__V1__Job *job, struct err *e) {
    bool done = false;
    TRY(output_message(c, &job->base, &done, e));
    if (!done)
        printf("%s\n", c->output == OUTPUT_NAME ? job->name : output_id(job->name));
    fflush(stdout);
    return ST_OK;
}

/* The spec of the job in JOB, JOB@STEP or JOB/checkpoints/ID. */
static status_t forked_spec(struct cli *c, const char *fork, Trainyard__V1__JobSpec **ret, struct err *e) {
    char job[80], name[80];
    size_t n = strncmp(fork, "jobs/", 5) == 0 ? 5 : 0;
    n += strcspn(fork + n, "@/");
    if (n >= sizeof job)
        return err_set(e, ST_INVALID_ARGUMENT, "--fork: '%.40s...' is no job", fork);
    memcpy(job, fork, n);
    job[n] = '\0';
    TRY(client_job_name(job, name, e));
    Trainyard__V1__GetJobRequest request = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    request.name = name;
    ProtobufCMessage *reply = NULL;
    TRY(client_call(c, jobs, "GetJob", &request.base, &reply, e));
    Trainyard__V1__Job *parent = (Trainyard__V1__Job *)reply;
    *ret = take_ptr(&parent->spec);
    trainyard__v1__job__free_unpacked(parent, NULL);
    return *ret ? ST_OK : err_set(e, ST_INTERNAL, "%s has no spec", name);
}

/* --profile FROM..TO */
static status_t set_profile(Trainyard__V1__JobSpec *spec, const char *range, struct err *e) {
    char from[32];
    const char *dots = strstr(range, "..");
    if (!dots || dots == range || (size_t)(dots - range) >= sizeof from || !dots[2])
        return err_set(e, ST_INVALID_ARGUMENT, "--profile: '%.40s' is not of the form FROM..TO", range);
    memcpy(from, range, (size_t)(dots - range));
    from[dots - range] = '\0';
    TRY(codec_set_path(&spec->base, "train.profile.from", from, e));
    return codec_set_path(&spec->base, "train.profile.to", dots + 2, e);
}

static status_t read_submitted(struct cli *c, const struct submit_args *args, const char *file,
                               Trainyard__V1__JobSpec **ret, struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    if (!file && !args->fork)
        return err_set(e, ST_INVALID_ARGUMENT, "submit: name a file, or a job with --fork");
    if (file)
        TRY(spec_file_read(file, &spec, e));
    else
        TRY(forked_spec(c, args->fork, &spec, e));
    TRY(spec_change(spec, args->set.items, args->set.n, e));
    if (args->name)
        TRY(codec_set_path(&spec->base, "name", args->name, e));
    if (args->profile)
        TRY(set_profile(spec, args->profile, e));
    *ret = take_ptr(&spec);
    return ST_OK;
}

static status_t run_submit(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct submit_args *args = args_;
    char id[37];
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    TRY(read_submitted(c, args, words[0], &spec, e));
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    client_request_id(id);
    request.spec = spec;
    if (args->fork)
        request.fork = (char *)args->fork;
    request.request_id = args->request_id ? (char *)args->request_id : id;
    ProtobufCMessage *reply = NULL;
    TRY(client_call_again(c, jobs, "CreateJob", &request.base, &reply, e));
    Trainyard__V1__Job *job = (Trainyard__V1__Job *)reply;
    status_t st = print_submitted(c, job, e);
    if (st == ST_OK && args->watch)
        st = watch_job(c, job->name, e);
    trainyard__v1__job__free_unpacked(job, NULL);
    return st;
}

static const struct option_row submit_options[] = {
    { "set", 0, "KEY.PATH=VALUE", "change a field of the file; may be given several times", OPTION_LIST,
      offsetof(struct submit_args, set), NULL },
    { "name", 0, "NAME", "the job's name instead of the file's", OPTION_TEXT, offsetof(struct submit_args, name),
      NULL },
    { "fork", 0, "JOB[@STEP]", "go on from that job's newest checkpoint, or that of STEP; without FILE with its spec",
      OPTION_TEXT, offsetof(struct submit_args, fork), NULL },
    { "profile", 0, "FROM..TO", "profile these steps; 'trainyard profile' shows them", OPTION_TEXT,
      offsetof(struct submit_args, profile), NULL },
    { "watch", 'w', NULL, "then show the job until it ends, as 'watch' does", OPTION_FLAG,
      offsetof(struct submit_args, watch), NULL },
    { "request-id", 0, "ID", "a UUID: the same one never makes a second job", OPTION_TEXT,
      offsetof(struct submit_args, request_id), NULL },
    { 0 },
};

const struct command command_submit = {
    .name = "submit",
    .arguments = "[FILE] [--fork JOB[@STEP]] [--set KEY.PATH=VALUE]... [--name N] [--profile FROM..TO] [--watch] "
                 "[--request-id ID]",
    .summary = "Submits the job that FILE describes (YAML or JSON; '-' is standard input) and prints its id.",
    .details =
        "docs/spec.md lists every field. A controller that is away for a moment is tried again: the job is made once.\n"
        "A fork is a new job that goes on from another's whole state: weights, optimizer, step. What it changes must "
        "leave\nthe model (but for its dropout) and the data alone; another kind of optimizer starts with its states "
        "at "
        "zero.",
    .example = "trainyard submit job.yaml --set train.steps=200 --set labels.team=research\n"
               "job=$(trainyard submit job.yaml) && trainyard watch $job\n"
               "trainyard submit --fork 42@300 --set train.steps=1000 --set train.optimizer.adamw.lr=1e-4",
    .options = submit_options,
    .args_bytes = sizeof(struct submit_args),
    .least = 0,
    .most = 1,
    .run = run_submit,
};

/* ---- list ---- */

struct list_args {
    const char *state, *queue;
    int64_t limit;
};

static status_t parse_state(const char *text, Trainyard__V1__Job__State *ret, struct err *e) {
    if (!text)
        return ST_OK;
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value_by_name(&trainyard__v1__job__state__descriptor,
                                                                               text);
    if (!v || v->value == 0)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--state: '%.40s' is no state; states are QUEUED, STARTING, RUNNING, "
                       "RESTARTING, CANCELLING, SUCCEEDED, FAILED, CANCELLED and more",
                       text);
    *ret = (Trainyard__V1__Job__State)v->value;
    return ST_OK;
}

static status_t show_jobs(const struct cli *c, const Trainyard__V1__ListJobsResponse *all, struct err *e) {
    static const char *const heads[] = { "JOB", "NAME", "STATE", "STEP", "ATTEMPT", "AGE", "RAN", "REASON", NULL };
    bool done = false;
    TRY(output_message(c, &all->base, &done, e));
    for (size_t i = 0; c->output == OUTPUT_NAME && i < all->n_jobs; i++)
        printf("%s\n", all->jobs[i]->name);
    if (done || c->output == OUTPUT_NAME)
        return ST_OK;
    struct table t;
    table_init(&t, heads);
    for (size_t i = 0; i < all->n_jobs; i++) {
        const Trainyard__V1__Job *job = all->jobs[i];
        char age[24], ran[24];
        output_between(job->create_time, NULL, age);
        output_between(job->start_time, job->end_time, ran);
        table_cell(&t, "%s", output_id(job->name));
        table_cell(&t, "%s", job->display_name);
        table_cell(&t, "%s", state_name(job->state));
        table_cell(&t, "%" PRId64, job->step);
        table_cell(&t, "%d", job->attempt);
        table_cell(&t, "%s", age);
        table_cell(&t, "%s", ran);
        table_cell(&t, "%s", job->reason);
    }
    status_t st = output_table(&t, e);
    table_done(&t);
    return st;
}

static status_t run_list(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct list_args *args = args_;
    (void)words;
    Trainyard__V1__ListJobsRequest request = TRAINYARD__V1__LIST_JOBS_REQUEST__INIT;
    if (args->limit < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "--limit: %" PRId64 " is not at least 1", args->limit);
    TRY(parse_state(args->state, &request.state, e));
    if (args->queue)
        request.queue = (char *)args->queue;
    ProtobufCMessage *all = NULL;
    TRY(client_list(c, jobs, "ListJobs", &request.base, args->limit, &all, e));
    const Trainyard__V1__ListJobsResponse *found = (Trainyard__V1__ListJobsResponse *)all;
    status_t st = show_jobs(c, found, e);
    if (st == ST_OK && *found->next_page_token)
        fprintf(stderr, "these are the newest %zu; there may be more: --limit %zu\n", found->n_jobs,
                10 * found->n_jobs);
    protobuf_c_message_free_unpacked(all, NULL);
    return st;
}

static const struct option_row list_options[] = {
    { "state", 's', "STATE", "only these: QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED, ...", OPTION_TEXT,
      offsetof(struct list_args, state), NULL },
    { "queue", 'q', "QUEUE", "only these", OPTION_TEXT, offsetof(struct list_args, queue), NULL },
    { "limit", 'n', "N", "at most so many, newest first; stderr says when there may be more", OPTION_INT,
      offsetof(struct list_args, limit), "100" },
    { 0 },
};

const struct command command_list = {
    .name = "list",
    .arguments = "[--state S] [--queue Q] [--limit N]",
    .summary = "Lists jobs, newest first.",
    .example = "trainyard list --state RUNNING\ntrainyard list -o json | jq -r '.jobs[].name'",
    .options = list_options,
    .args_bytes = sizeof(struct list_args),
    .run = run_list,
};

/* ---- get ---- */

static void show_line(const char *label, const char *text) {
    if (!*text)
        return;
    printf("%-10s ", label);
    output_text(stdout, text);
    putchar('\n');
}

static void show_time(const char *label, const Google__Protobuf__Timestamp *t) {
    char when[24];
    output_time(t, when);
    if (t)
        show_line(label, when);
}

static status_t show_attempts(const Trainyard__V1__Job *job, struct err *e) {
    static const char *const heads[] = { "ATTEMPT", "STATE", "FROM STEP", "RAN", "RANKS", "REASON", NULL };
    struct table t;
    table_init(&t, heads);
    for (size_t i = 0; i < job->n_attempts; i++) {
        const Trainyard__V1__Attempt *a = job->attempts[i];
        char ran[24], ranks[256] = "";
        output_between(a->start_time, a->end_time, ran);
        for (size_t j = 0, used = 0; j < a->n_placements && used < sizeof ranks; j++)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d on %s (pid %d)", j ? ", " : "",
                                     a->placements[j]->rank, output_id(a->placements[j]->executor),
                                     a->placements[j]->pid);
        table_cell(&t, "%d", a->number);
        table_cell(&t, "%s", output_enum(&trainyard__v1__attempt__state__descriptor, (int)a->state));
        table_cell(&t, "%" PRId64, a->from_step);
        table_cell(&t, "%s", ran);
        table_cell(&t, "%s", ranks);
        table_cell(&t, "%s", a->reason);
    }
    status_t st = output_table(&t, e);
    table_done(&t);
    return st;
}

static status_t show_spec(const Trainyard__V1__JobSpec *spec, struct err *e) {
    struct bytes text;
    bytes_init(&text, 4 << 20);
    status_t st = codec_print_yaml(&spec->base, &text, e);
    if (st == ST_OK) {
        printf("\nspec:\n");
        for (const char *line = text.data; *line;) {
            size_t n = strcspn(line, "\n");
            printf("  %.*s\n", (int)n, line);
            line += n + (line[n] == '\n');
        }
    }
    bytes_done(&text);
    return st;
}

static status_t show_job(const Trainyard__V1__Job *job, struct err *e) {
    char text[64];
    show_line("job", output_id(job->name));
    show_line("name", job->display_name);
    show_line("state", state_name(job->state));
    show_line("reason", job->reason);
    snprintf(text, sizeof text, "%" PRId64 " of %" PRId64, job->step,
             job->spec && job->spec->train ? job->spec->train->steps : 0);
    show_line("step", text);
    if (job->attempt > 1)
        snprintf(text, sizeof text, "%d, %d of them counted", job->attempt - 1, job->restarts);
    else
        snprintf(text, sizeof text, "0");
    show_line("restarts", text);
    snprintf(text, sizeof text, "%s, priority %d", job->queue, job->priority);
    show_line("queue", text);
    show_time("created", job->create_time);
    show_time("started", job->start_time);
    show_time("ended", job->end_time);
    show_line("weights", job->weights_sha256);
    if (*job->forked_from)
        printf("%-10s %s, step %" PRId64 "\n", "forked", job->forked_from, job->forked_step);
    show_line("begun with", job->initialised_from);
    if (job->n_attempts) {
        putchar('\n');
        TRY(show_attempts(job, e));
    }
    return job->spec ? show_spec(job->spec, e) : ST_OK;
}

static status_t run_get(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[80];
    bool done = false;
    (void)args;
    Trainyard__V1__GetJobRequest request = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    TRY(client_job_name(words[0], name, e));
    request.name = name;
    ProtobufCMessage *reply = NULL;
    TRY(client_call(c, jobs, "GetJob", &request.base, &reply, e));
    status_t st = output_message(c, reply, &done, e);
    if (st == ST_OK && c->output == OUTPUT_NAME)
        printf("%s\n", ((Trainyard__V1__Job *)reply)->name);
    else if (st == ST_OK && !done)
        st = show_job((Trainyard__V1__Job *)reply, e);
    protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

const struct command command_get = {
    .name = "get",
    .arguments = "JOB",
    .summary = "Shows a job: its state, its attempts and where they ran, its spec with every default.",
    .example = "trainyard get 42\ntrainyard get 42 -o yaml",
    .args_bytes = 1,
    .least = 1,
    .most = 1,
    .run = run_get,
};

/* trainyard submit, list, get.
 *
 * `submit` reads the spec from a file or from the job to fork, applies --set, --name and --profile in this order,
 * uploads the folder with the program's code (code/upload.c), and calls CreateJob with a request id, so that a repeated
 * call creates no second job. If the controller refuses the spec, `submit` asks it to validate the spec and prints
 * every problem, as `validate` does. If it accepts the job, stdout gets the id alone, for scripts; stderr gets what was
 * not checked and where the ranks started.
 *
 * `list` prints the pages of ListJobs up to --limit. `get` prints the fields of a job, its attempts as a table, and the
 * spec as YAML. */
#include "api/codec/text.h"
#include "api/codec/timestamp.h"
#include "api/spec/file.h"
#include "api/spec/spec.h"
#include "cli/code/upload.h"
#include "cli/fork.h"
#include "cli/job_name.h"
#include "cli/output.h"
#include "cli/placement.h"
#include "cli/validate.h"
#include "cli/watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <trainyard/v1/job.pb-c.h>

static const ProtobufCServiceDescriptor *const jobs = &trainyard__v1__job_service__descriptor;

static const char *state_name(Trainyard__V1__Job__State state) {
    return output_enum(&trainyard__v1__job__state__descriptor, (int)state);
}

/* ---- submit ---- */

struct submit_args {
    struct text_list set;
    const char *name, *request_id, *fork, *profile, *code;
    bool watch, wait_for_hosts, skip_check;
};

static status_t print_submitted(const struct cli *c, const Trainyard__V1__Job *job, struct err *e) {
    bool done = false;
    TRY(output_message(c, &job->base, &done, e));
    if (!done)
        printf("%s\n", c->output == OUTPUT_NAME ? job->name : output_id(job->name));
    fflush(stdout);
    return ST_OK;
}

/* --profile FROM..TO */
static status_t set_profile(Trainyard__V1__JobSpec *spec, const char *range, struct err *e) {
    char from[32];
    const char *dots = strstr(range, "..");
    if (!dots || dots == range || (size_t)(dots - range) >= sizeof from || !dots[2])
        return err_set(e, ST_INVALID_ARGUMENT, "--profile: '%.40s' is not of the form FROM..TO", range);
    memcpy(from, range, (size_t)(dots - range));
    from[dots - range] = '\0';
    TRY(codec_set_path(&spec->base, "train.profile.from", from, NULL, e));
    return codec_set_path(&spec->base, "train.profile.to", dots + 2, NULL, e);
}

static status_t read_submitted(struct cli *c, const struct submit_args *args, const char *file,
                               Trainyard__V1__JobSpec **ret, char shown[FORK_FILE_BYTES], struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    TRY(fork_or_file_read(c, "submit", args->fork, file, &spec, shown, e));
    TRY(spec_change(spec, args->set.items, args->set.n, e));
    if (args->name)
        TRY(codec_set_path(&spec->base, "name", args->name, NULL, e));
    if (args->profile)
        TRY(set_profile(spec, args->profile, e));
    TRY(code_resolve(c, spec, &(struct code_request){ .spec_file = file, .folder = args->code, .upload = true }, e));
    *ret = take_ptr(&spec);
    return ST_OK;
}

/* CreateJob. If the spec is refused, prints every problem on its own line, as `validate` does. */
static status_t create(struct cli *c, const char *file, const Trainyard__V1__CreateJobRequest *request,
                       Trainyard__V1__Job **ret, struct err *e) {
    ProtobufCMessage *reply = NULL;
    bool printed = false;
    status_t st = client_call_again(c, jobs, "CreateJob", &request->base, &reply, e);
    if (st == ST_INVALID_ARGUMENT && validate_refused(c, file, request, &printed, NULL) == ST_OK && printed) {
        c->exit_code = EXIT_USAGE;
        return ST_OK;
    }
    *ret = (Trainyard__V1__Job *)reply;
    return st;
}

static status_t run_submit(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct submit_args *args = args_;
    char id[37], file[FORK_FILE_BYTES];
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    TRY(read_submitted(c, args, words[0], &spec, file, e));
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    client_request_id(id);
    request.spec = spec;
    if (args->fork)
        request.fork = (char *)args->fork;
    request.wait_for_hosts = args->wait_for_hosts;
    request.skip_check = args->skip_check;
    request.request_id = args->request_id ? (char *)args->request_id : id;
    CLEANUP(message_freep) Trainyard__V1__Job *job = NULL;
    TRY(create(c, file, &request, &job, e));
    if (!job)
        return ST_OK;
    validate_print_unchecked(file, job->unchecked, job->n_unchecked);
    TRY(print_submitted(c, job, e));
    placement_print(c, job->name);
    return args->watch ? watch_job(c, job->name, e) : ST_OK;
}

static const struct option_row submit_options[] = {
    { "set", 0, "KEY.PATH=VALUE", "change a field of the file; may be repeated", OPTION_LIST,
      offsetof(struct submit_args, set), NULL },
    { "name", 0, "NAME", "the job's name, instead of the file's", OPTION_TEXT, offsetof(struct submit_args, name),
      NULL },
    { "fork", 0, "JOB[@STEP]", "continue from that job's newest checkpoint, or from STEP; without FILE, with its spec",
      OPTION_TEXT, offsetof(struct submit_args, fork), NULL },
    { "code", 0, "DIR", "the folder with the program's files, instead of the file's program.code", OPTION_TEXT,
      offsetof(struct submit_args, code), NULL },
    { "profile", 0, "FROM..TO", "profile these steps; 'trainyard profile' shows them", OPTION_TEXT,
      offsetof(struct submit_args, profile), NULL },
    { "wait-for-hosts", 0, NULL, "accept a job that needs more slots than the attached hosts have", OPTION_FLAG,
      offsetof(struct submit_args, wait_for_hosts), NULL },
    { "skip-check", 0, NULL, "do not check the job on a host, for example if its data does not exist yet", OPTION_FLAG,
      offsetof(struct submit_args, skip_check), NULL },
    { "watch", 'w', NULL, "then watch the job until it ends", OPTION_FLAG, offsetof(struct submit_args, watch), NULL },
    { "request-id", 0, "ID", "a UUID: the same one creates no second job, and is refused for another spec", OPTION_TEXT,
      offsetof(struct submit_args, request_id), NULL },
    { 0 },
};

const struct command command_submit = {
    .name = "submit",
    .arguments = "[FILE] [--fork JOB[@STEP]] [--set KEY.PATH=VALUE]... [--name N] [--code DIR] [--profile FROM..TO] "
                 "[--watch] [--wait-for-hosts] [--skip-check] [--request-id ID]",
    .summary = "Submits the job in FILE (YAML or JSON; '-' is standard input) and prints its id.",
    .details =
        "docs/spec.md lists every field. If the controller is unreachable for a moment, the request is repeated, and\n"
        "the job is created once. If the job starts immediately, a line on stderr shows its hosts and the cores of "
        "each\n"
        "rank. A fork is a new job that continues from another job's whole state: weights, optimizer, step. A fork "
        "cannot\nchange the model (except for its dropout) or the data; another kind of optimizer starts with zero "
        "state.",
    .example = "trainyard submit job.yaml --set train.steps=200 --set labels.team=research\n"
               "job=$(trainyard submit job.yaml) && trainyard watch $job\n"
               "trainyard submit --fork 42@300 --set train.steps=1000 --set train.optimizer.adamw.lr=1e-4",
    .options = submit_options,
    .args_bytes = sizeof(struct submit_args),
    .min_words = 0,
    .max_words = 1,
    .run = run_submit,
};

/* ---- list ---- */

struct list_args {
    const char *state, *queue, *name, *since, *before;
    struct text_list labels;
    int64_t limit;
};

/* "90m", "12h", "3d": so long ago; or a time in RFC 3339. */
static status_t parse_time(const char *option, const char *text, Google__Protobuf__Timestamp *ret, struct err *e) {
    static const struct {
        char letter;
        int64_t seconds;
    } units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
    char *end;
    const long long n = strtoll(text, &end, 10);
    google__protobuf__timestamp__init(ret);
    for (size_t i = 0; end != text && n >= 0 && n < INT32_MAX && i < 4; i++)
        if (end[0] == units[i].letter && !end[1]) {
            ret->seconds = (int64_t)time(NULL) - n * units[i].seconds;
            return ST_OK;
        }
    return timestamp_parse(text, &ret->seconds, &ret->nanos, NULL) == ST_OK
               ? ST_OK
               : err_set(e, ST_INVALID_ARGUMENT,
                         "--%s: '%.40s' is neither a duration such as 90m, 12h or 3d nor a time such as "
                         "2026-11-21T10:00:00Z",
                         option, text);
}

static status_t parse_state(const char *text, Trainyard__V1__Job__State *ret, struct err *e) {
    if (!text)
        return ST_OK;
    const ProtobufCEnumDescriptor *states = &trainyard__v1__job__state__descriptor;
    char known[200] = "";
    for (unsigned i = 0, used = 0; i < states->n_values; i++) {
        const ProtobufCEnumValue *v = &states->values[i];
        if (v->value == 0)
            continue;
        if (strcasecmp(v->name, text) == 0) {
            *ret = (Trainyard__V1__Job__State)v->value;
            return ST_OK;
        }
        if (used < sizeof known)
            used += (unsigned)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", v->name);
    }
    return err_set(e, ST_INVALID_ARGUMENT, "--state: '%.40s' is not a state; states are %s", text, known);
}

static void add_job(struct table *t, const void *message) {
    const Trainyard__V1__Job *job = message;
    char age[24], ran[24];
    output_between(job->create_time, NULL, age);
    output_between(job->start_time, job->end_time, ran);
    table_cell(t, "%s", output_id(job->name));
    table_cell(t, "%s", job->display_name);
    table_cell(t, "%s", state_name(job->state));
    table_cell(t, "%" PRId64, job->step);
    table_cell(t, "%d", job->attempt);
    table_cell(t, "%s", age);
    table_cell(t, "%s", ran);
    table_cell(t, "%s", job->reason);
}

static const struct output_columns job_columns = {
    { "JOB", "NAME", "STATE", "STEP", "ATTEMPT", "AGE", "RAN", "REASON" }, add_job
};

static status_t run_list(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct list_args *args = args_;
    (void)words;
    Trainyard__V1__ListJobsRequest request = TRAINYARD__V1__LIST_JOBS_REQUEST__INIT;
    if (args->limit < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "--limit: %" PRId64 " is not at least 1", args->limit);
    TRY(parse_state(args->state, &request.state, e));
    if (args->queue)
        request.queue = (char *)args->queue;
    Google__Protobuf__Timestamp since, before;
    if (args->since) {
        TRY(parse_time("since", args->since, &since, e));
        request.created_after = &since;
    }
    if (args->before) {
        TRY(parse_time("before", args->before, &before, e));
        request.created_before = &before;
    }
    if (args->name)
        request.display_name = (char *)args->name;
    request.labels = (char **)(uintptr_t)args->labels.items;
    request.n_labels = args->labels.n;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    TRY(client_list(c, jobs, "ListJobs", &request.base, args->limit, &all, e));
    const Trainyard__V1__ListJobsResponse *found = (Trainyard__V1__ListJobsResponse *)all;
    status_t st = output_list(c, all, &job_columns, e);
    if (st == ST_OK && *found->next_page_token)
        fprintf(stderr, "these are the newest %zu jobs; there may be more: use --limit %zu\n", found->n_jobs,
                10 * found->n_jobs);
    return st;
}

static const struct option_row list_options[] = {
    { "state", 's', "STATE", "only jobs in this state: QUEUED, RUNNING, PAUSED, SUCCEEDED, FAILED, CANCELLED, ...",
      OPTION_TEXT, offsetof(struct list_args, state), NULL },
    { "queue", 'q', "QUEUE", "only jobs of this queue", OPTION_TEXT, offsetof(struct list_args, queue), NULL },
    { "name", 0, "NAME", "only jobs of this name", OPTION_TEXT, offsetof(struct list_args, name), NULL },
    { "label", 'l', "KEY=VALUE", "only jobs with this label, or KEY for any value; may be repeated", OPTION_LIST,
      offsetof(struct list_args, labels), NULL },
    { "since", 0, "TIME", "only jobs created then or later: 90m, 12h, 3d (ago), or 2026-11-21T10:00:00Z", OPTION_TEXT,
      offsetof(struct list_args, since), NULL },
    { "before", 0, "TIME", "only jobs created earlier", OPTION_TEXT, offsetof(struct list_args, before), NULL },
    { "limit", 'n', "N", "at most N jobs, newest first; stderr reports whether there may be more", OPTION_INT,
      offsetof(struct list_args, limit), "100" },
    { 0 },
};

const struct command command_list = {
    .name = "list",
    .arguments = "[--state S] [--queue Q] [--name N] [-l KEY=VALUE]... [--since T] [--before T] [--limit N]",
    .summary = "Lists jobs, newest first.",
    .example = "trainyard list --state RUNNING\ntrainyard list -l team=research --since 3d\ntrainyard list -o json | "
               "jq -r '.jobs[].name'",
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

static void add_attempt(struct table *t, const void *message) {
    const Trainyard__V1__Attempt *a = message;
    char ran[24], ranks[512] = "";
    output_between(a->start_time, a->end_time, ran);
    for (size_t j = 0, used = 0; j < a->n_placements && used < sizeof ranks; j++) {
        const Trainyard__V1__Placement *p = a->placements[j];
        char cores[32] = ""; /* unknown before the rank has started, and for older versions */
        if (p->threads > 0)
            snprintf(cores, sizeof cores, ", %d core%s", p->threads, p->threads == 1 ? "" : "s");
        used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d on %s (pid %d%s)", j ? ", " : "", p->rank,
                                 output_id(p->executor), p->pid, cores);
    }
    table_cell(t, "%d", a->number);
    table_cell(t, "%s", output_enum(&trainyard__v1__attempt__state__descriptor, (int)a->state));
    table_cell(t, "%" PRId64, a->from_step);
    table_cell(t, "%s", ran);
    table_cell(t, "%s", ranks);
    table_cell(t, "%s", a->reason);
}

static const struct output_columns attempt_columns = { { "ATTEMPT", "STATE", "FROM STEP", "RAN", "RANKS", "REASON" },
                                                       add_attempt };

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
    const int64_t steps = job->spec && job->spec->train ? job->spec->train->steps : 0; /* 0: not known, of a program */
    int n = snprintf(text, sizeof text, "%" PRId64, job->step);
    if (steps)
        snprintf(text + n, sizeof text - (size_t)n, " of %" PRId64, steps);
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
    if (job->records_lost > 0)
        printf("%-10s %" PRId64 " records of this job: metrics or logs are missing; see `trainyard events %s`\n",
               "lost", job->records_lost, output_id(job->name));
    if (*job->forked_from)
        printf("%-10s %s, step %" PRId64 "\n", "forked", job->forked_from, job->forked_step);
    show_line("init from", job->initialised_from);
    if (job->n_attempts) {
        putchar('\n');
        TRY(output_table(&attempt_columns, job->attempts, job->n_attempts, e));
    }
    return job->spec ? show_spec(job->spec, e) : ST_OK;
}

static status_t run_get(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[JOB_NAME_BYTES];
    bool done = false;
    (void)args;
    TRY(job_name_find(c, words[0], name, e));
    CLEANUP(message_freep) Trainyard__V1__Job *job = NULL;
    TRY(client_get_job(c, name, &job, e));
    TRY(output_message(c, &job->base, &done, e));
    if (c->output == OUTPUT_NAME)
        printf("%s\n", job->name);
    return done || c->output == OUTPUT_NAME ? ST_OK : show_job(job, e);
}

const struct command command_get = {
    .name = "get",
    .arguments = "JOB",
    .summary = "Shows a job: state, attempts and their hosts, and the spec with every default.",
    .example = "trainyard get 42\ntrainyard get 42 -o yaml",
    .args_bytes = 1,
    .min_words = 1,
    .max_words = 1,
    .run = run_get,
};

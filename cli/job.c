/* trainyard submit, get.
 *
 * `submit` reads the spec from a file or from the job to fork, applies --set, --name and --profile in this order,
 * uploads the folder with the program's code (code/upload.c), and calls CreateJob with a request id, so that a repeated
 * call creates no second job. If the controller refuses the spec, `submit` asks it to validate the spec and prints
 * every problem, as `validate` does. If it accepts the job, stdout gets the id alone, for scripts; stderr gets what was
 * not checked and where the ranks started. With --dry-run it only validates (dry_run.c).
 *
 * `get` prints the fields of a job, its attempts and where their time went as tables, and the spec as YAML. */
#include "api/codec/text.h"
#include "api/spec/file.h"
#include "api/spec/spec.h"
#include "cli/code/upload.h"
#include "cli/colour.h"
#include "cli/dry_run.h"
#include "cli/fork.h"
#include "cli/job_name.h"
#include "cli/output.h"
#include "cli/placement.h"
#include "cli/rank_seconds.h"
#include "cli/spec_print.h"
#include "cli/user_name.h"
#include "cli/validate.h"
#include "cli/watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/job.pb-c.h>
#include <unistd.h>

static const ProtobufCServiceDescriptor *const jobs = &trainyard__v1__job_service__descriptor;

static const char *state_name(Trainyard__V1__Job__State state) {
    return output_enum(&trainyard__v1__job__state__descriptor, (int)state);
}

/* ---- submit ---- */

struct submit_args {
    struct text_list set;
    const char *name, *request_id, *fork, *profile, *code;
    bool watch, wait_for_hosts, skip_check, dry_run;
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
    TRY(code_resolve(c, spec,
                     &(struct code_request){ .spec_file = file, .folder = args->code, .upload = !args->dry_run }, e));
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
    if (args->dry_run && args->watch)
        return err_set(e, ST_INVALID_ARGUMENT, "--watch: with --dry-run there is no job");
    TRY(read_submitted(c, args, words[0], &spec, file, e));
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    client_request_id(id);
    char user[USER_NAME_BYTES];
    user_name(user);
    request.spec = spec;
    request.user = user;
    if (args->fork)
        request.fork = (char *)args->fork;
    request.wait_for_hosts = args->wait_for_hosts;
    request.skip_check = args->skip_check;
    request.request_id = args->request_id ? (char *)args->request_id : id;
    if (args->dry_run)
        return dry_run(c, file, &request, e);
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
    { "dry-run", 0, NULL, "check the job, print its plan, whether it would start now, and its spec; store nothing",
      OPTION_FLAG, offsetof(struct submit_args, dry_run), NULL },
    { "watch", 'w', NULL, "then watch the job until it ends", OPTION_FLAG, offsetof(struct submit_args, watch), NULL },
    { "request-id", 0, "ID", "a UUID: the same one creates no second job, and is refused for another spec", OPTION_TEXT,
      offsetof(struct submit_args, request_id), NULL },
    { 0 },
};

const struct command command_submit = {
    .name = "submit",
    .arguments = "[FILE] [--fork JOB[@STEP]] [--set KEY.PATH=VALUE]... [--name N] [--code DIR] [--profile FROM..TO] "
                 "[--dry-run] [--watch] [--wait-for-hosts] [--skip-check] [--request-id ID]",
    .summary = "Submits the job in FILE (YAML or JSON; '-' is standard input) and prints its id.",
    .details =
        "docs/spec.md lists every field. If the controller is unreachable for a moment, the request is repeated, and\n"
        "the job is created once. If the job starts immediately, a line on stderr shows its hosts and the cores of "
        "each\n"
        "rank. A fork is a new job that continues from another job's whole state: weights, optimizer, step. A fork "
        "cannot\nchange the model (except for its dropout) or the data; another kind of optimizer starts with zero "
        "state.",
    .example = "trainyard submit job.yaml --dry-run\n"
               "trainyard submit job.yaml --set train.steps=200 --set labels.team=research\n"
               "job=$(trainyard submit job.yaml) && trainyard watch $job\n"
               "trainyard submit --fork 42@300 --set train.steps=1000 --set train.optimizer.adamw.lr=1e-4",
    .options = submit_options,
    .args_bytes = sizeof(struct submit_args),
    .min_words = 0,
    .max_words = 1,
    .run = run_submit,
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
    char when[OUTPUT_TIME_BYTES];
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

static status_t show_job(struct cli *c, const Trainyard__V1__Job *job, struct err *e) {
    char text[64];
    show_line("job", output_id(job->name));
    show_line("name", job->display_name);
    const char *colour = colour_wanted(STDOUT_FILENO) ? colour_of_state(state_name(job->state)) : "";
    printf("%-10s %s%s%s\n", "state", colour, state_name(job->state), *colour ? COLOUR_END : "");
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
    show_line("user", job->user);
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
        TRY(rank_seconds_print_attempts(c, job->name, e));
    }
    return job->spec ? spec_print(job->spec, e) : ST_OK;
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
    return done || c->output == OUTPUT_NAME ? ST_OK : show_job(c, job, e);
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

/* trainyard sweep create, list, get, watch, cancel, delete.
 *
 * `create` reads the sweep and the job spec that it names, applies --set and --name, uploads the program's code, and
 * calls CreateSweep with a request id, so that a repeated call creates no second sweep. `create --dry-run` prints the
 * trials that ValidateSweep returns. `get` reads all pages of trials and sorts them by their metric; trials without one
 * come last, by number. `watch` asks for the sweep once a second, and prints a line whenever its counts change. */
#include "api/spec/sweep.h"
#include "api/codec/text.h"
#include "api/spec/file.h"
#include "cli/code/upload.h"
#include "cli/sweep_table.h"
#include "cli/user_name.h"
#include "cli/validate.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ProtobufCServiceDescriptor *const service = &trainyard__v1__sweep_service__descriptor;

enum { POLL_MS = 1000 };

struct sweep_args {
    struct text_list set;
    const char *name, *request_id, *code;
    bool watch, dry_run, wait_for_hosts, skip_check;
};

static bool is_ended(const Trainyard__V1__Sweep *s) { return s->state >= TRAINYARD__V1__SWEEP__STATE__SUCCEEDED; }

static status_t call_named(struct cli *c, const char *method, ProtobufCMessage *request, char **name_field,
                           const char *name, ProtobufCMessage **ret, struct err *e) {
    *name_field = (char *)(uintptr_t)name;
    return client_call_again(c, service, method, request, ret, e);
}

/* ---- watch ---- */

static void print_progress(const Trainyard__V1__Sweep *s) {
    fprintf(stderr, "%s %s: %d of %d trials created, %d ended, %d SUCCEEDED, %d FAILED, %d stopped early", s->name,
            output_enum(&trainyard__v1__sweep__state__descriptor, (int)s->state), s->created, s->trials, s->ended,
            s->succeeded, s->failed, s->stopped);
    if (s->best)
        fprintf(stderr, "; best: trial %d, %s %.6g", s->best->number, s->spec->metric, s->best->metric);
    if (*s->reason) {
        fprintf(stderr, ": ");
        output_text(stderr, s->reason);
    }
    fputc('\n', stderr);
}

static status_t report(const struct cli *c, const Trainyard__V1__Sweep *s, struct err *e) {
    if (c->output == OUTPUT_JSON)
        return output_json_line(&s->base, e);
    print_progress(s);
    return ST_OK;
}

static status_t watch(struct cli *c, const char *name, struct err *e) {
    Trainyard__V1__GetSweepRequest request = TRAINYARD__V1__GET_SWEEP_REQUEST__INIT;
    int created = -1, ended = -1, stopped = -1;
    Trainyard__V1__Sweep__State state = 0;
    request.name = (char *)(uintptr_t)name;
    for (bool over = false; !over;) {
        CLEANUP(message_freep) Trainyard__V1__Sweep *s = NULL;
        ProtobufCMessage *reply = NULL;
        TRY(client_call_waiting(c, service, "GetSweep", &request.base, &reply, e));
        s = (Trainyard__V1__Sweep *)reply;
        if (s->created != created || s->ended != ended || s->stopped != stopped || s->state != state)
            TRY(report(c, s, e));
        created = s->created;
        ended = s->ended;
        stopped = s->stopped;
        state = s->state;
        over = is_ended(s);
        if (!over)
            poll(NULL, 0, POLL_MS);
    }
    c->exit_code = state == TRAINYARD__V1__SWEEP__STATE__SUCCEEDED   ? EXIT_DONE
                   : state == TRAINYARD__V1__SWEEP__STATE__CANCELLED ? EXIT_CANCELLED
                                                                     : EXIT_FAILED;
    return ST_OK;
}

/* ---- create ---- */

static status_t read_sweep(struct cli *c, const struct sweep_args *args, const char *file,
                           Trainyard__V1__SweepSpec **ret, struct err *e) {
    CLEANUP(sweep_freep) Trainyard__V1__SweepSpec *sweep = NULL;
    char job_file[SWEEP_FILE_BYTES];
    TRY(sweep_file_read(file, args->set.items, args->set.n, &sweep, job_file, e));
    if (args->name)
        TRY(codec_set_path(&sweep->base, "name", args->name, NULL, e));
    const struct code_request code = { .spec_file = job_file, .folder = args->code, .upload = !args->dry_run };
    if (sweep->spec)
        TRY(code_resolve(c, sweep->spec, &code, e));
    *ret = take_ptr(&sweep);
    return ST_OK;
}

static void append(Trainyard__V1__ValidateSweepResponse *all, Trainyard__V1__ValidateSweepResponse *page) {
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(all->base.descriptor, "trials");
    if (page->n_trials)
        memcpy(field_append(&all->base, f, page->n_trials), page->trials, page->n_trials * sizeof(void *));
    page->n_trials = 0;
}

/* The first page checks everything; the further ones only list. */
static status_t validate(struct cli *c, Trainyard__V1__ValidateSweepRequest *request,
                         Trainyard__V1__ValidateSweepResponse **ret, struct err *e) {
    ProtobufCMessage *reply = NULL;
    TRY(client_call(c, service, "ValidateSweep", &request->base, &reply, e));
    *ret = (Trainyard__V1__ValidateSweepResponse *)reply;
    while ((*ret)->next_trial) {
        CLEANUP(message_freep) ProtobufCMessage *page = NULL;
        request->first_trial = (*ret)->next_trial;
        request->skip_check = request->wait_for_hosts = true;
        TRY(client_call(c, service, "ValidateSweep", &request->base, &page, e));
        append(*ret, (Trainyard__V1__ValidateSweepResponse *)page);
        (*ret)->next_trial = ((Trainyard__V1__ValidateSweepResponse *)page)->next_trial;
    }
    return ST_OK;
}

static status_t dry_run(struct cli *c, const char *file, Trainyard__V1__SweepSpec *sweep, const struct sweep_args *args,
                        struct err *e) {
    Trainyard__V1__ValidateSweepRequest request = TRAINYARD__V1__VALIDATE_SWEEP_REQUEST__INIT;
    CLEANUP(message_freep) Trainyard__V1__ValidateSweepResponse *answer = NULL;
    bool done = false;
    request.spec = sweep;
    request.wait_for_hosts = args->wait_for_hosts;
    request.skip_check = args->skip_check;
    request.page_size = 1000;
    TRY(validate(c, &request, &answer, e));
    c->exit_code = answer->n_problems ? EXIT_USAGE : EXIT_DONE;
    TRY(output_message(c, &answer->base, &done, e));
    validate_print(file, answer->problems, answer->n_problems);
    validate_print_unchecked(file, answer->unchecked, answer->n_unchecked);
    return done || answer->n_problems ? ST_OK : sweep_table_values(answer, e);
}

static status_t create(struct cli *c, const struct sweep_args *args, const char *file, struct err *e) {
    char id[37], user[USER_NAME_BYTES];
    CLEANUP(sweep_freep) Trainyard__V1__SweepSpec *sweep = NULL;
    CLEANUP(message_freep) Trainyard__V1__Sweep *created = NULL;
    Trainyard__V1__CreateSweepRequest request = TRAINYARD__V1__CREATE_SWEEP_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    bool done = false;
    TRY(read_sweep(c, args, file, &sweep, e));
    if (args->dry_run)
        return dry_run(c, spec_file_name(file), sweep, args, e);
    client_request_id(id);
    user_name(user);
    request.user = user;
    request.spec = sweep;
    request.wait_for_hosts = args->wait_for_hosts;
    request.skip_check = args->skip_check;
    request.request_id = args->request_id ? (char *)(uintptr_t)args->request_id : id;
    TRY(client_call_again(c, service, "CreateSweep", &request.base, &reply, e));
    created = (Trainyard__V1__Sweep *)reply;
    validate_print_unchecked(spec_file_name(file), created->unchecked, created->n_unchecked);
    TRY(output_message(c, &created->base, &done, e));
    if (!done)
        printf("%s\n", c->output == OUTPUT_NAME ? created->name : output_id(created->name));
    fflush(stdout);
    return args->watch ? watch(c, created->name, e) : ST_OK;
}

/* ---- list, get ---- */

static void add_sweep(struct table *t, const void *message) {
    const Trainyard__V1__Sweep *s = message;
    char age[24], ran[24];
    output_between(s->create_time, NULL, age);
    output_between(s->create_time, s->end_time, ran);
    table_cell(t, "%s", output_id(s->name));
    table_cell(t, "%s", output_enum(&trainyard__v1__sweep__state__descriptor, (int)s->state));
    table_cell(t, "%d", s->trials);
    table_cell(t, "%d", s->created - s->ended);
    table_cell(t, "%d", s->ended);
    table_cell(t, "%d", s->failed);
    table_cell(t, "%d", s->stopped);
    table_cell(t, "%s", age);
    table_cell(t, "%s", ran);
    table_cell(t, "%s", s->reason);
}

static const struct output_columns sweep_columns = {
    { "SWEEP", "STATE", "TRIALS", "OPEN", "ENDED", "FAILED", "STOPPED", "AGE", "RAN", "REASON" }, add_sweep
};

static status_t list(struct cli *c, struct err *e) {
    Trainyard__V1__ListSweepsRequest request = TRAINYARD__V1__LIST_SWEEPS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    TRY(client_list(c, service, "ListSweeps", &request.base, CLIENT_ALL, &all, e));
    return output_list(c, all, &sweep_columns, e);
}

static status_t get(struct cli *c, const char *name, struct err *e) {
    Trainyard__V1__ListTrialsRequest request = TRAINYARD__V1__LIST_TRIALS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    bool done = false;
    request.name = (char *)(uintptr_t)name;
    TRY(client_list(c, service, "ListTrials", &request.base, CLIENT_ALL, &all, e));
    Trainyard__V1__ListTrialsResponse *answer = (Trainyard__V1__ListTrialsResponse *)all;
    if (!answer->sweep)
        return err_set(e, ST_INTERNAL, "the controller returned no sweep with its trials");
    sweep_table_sort(answer);
    TRY(output_message(c, all, &done, e));
    if (done)
        return ST_OK;
    if (c->output != OUTPUT_NAME)
        return sweep_table_trials(answer, e);
    for (size_t i = 0; i < answer->n_trials; i++)
        if (*answer->trials[i]->job)
            printf("%s\n", answer->trials[i]->job);
    return ST_OK;
}

/* ---- cancel, delete ---- */

static status_t cancel(struct cli *c, const char *name, struct err *e) {
    Trainyard__V1__CancelSweepRequest request = TRAINYARD__V1__CANCEL_SWEEP_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    bool done = false;
    TRY(call_named(c, "CancelSweep", &request.base, &request.name, name, &reply, e));
    const Trainyard__V1__Sweep *s = (Trainyard__V1__Sweep *)reply;
    TRY(output_message(c, reply, &done, e));
    if (!done && c->output == OUTPUT_NAME)
        printf("%s\n", s->name);
    else if (!done)
        printf("%s %s\n", s->name, output_enum(&trainyard__v1__sweep__state__descriptor, (int)s->state));
    return ST_OK;
}

static status_t delete_named(struct cli *c, const char *name, struct err *e) {
    Trainyard__V1__DeleteSweepRequest request = TRAINYARD__V1__DELETE_SWEEP_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    bool done = false;
    TRY(call_named(c, "DeleteSweep", &request.base, &request.name, name, &reply, e));
    TRY(output_message(c, reply, &done, e));
    if (!done)
        printf("sweeps/%s%s\n", output_id(name), c->output == OUTPUT_NAME ? "" : " is deleted");
    return ST_OK;
}

/* ---- the command ---- */

static status_t refuse_options(const struct sweep_args *args, struct err *e) {
    const bool given = args->set.n || args->name || args->request_id || args->code || args->watch || args->dry_run ||
                       args->wait_for_hosts || args->skip_check;
    return given ? err_set(e, ST_INVALID_ARGUMENT, "options belong to 'sweep create'") : ST_OK;
}

static status_t run_sweep(struct cli *c, const void *args_, char *const words[], struct err *e) {
    static const struct {
        const char *verb;
        status_t (*run)(struct cli *c, const char *name, struct err *e);
    } verbs[] = { { "get", get }, { "watch", watch }, { "cancel", cancel }, { "delete", delete_named } };
    const char *verb = words[0], *word = words[1];
    if (strcmp(verb, "create") == 0 && word)
        return create(c, args_, word, e);
    TRY(refuse_options(args_, e));
    if (strcmp(verb, "list") == 0 && !word)
        return list(c, e);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verb, verbs[i].verb) == 0 && word)
            return verbs[i].run(c, word, e);
    return err_set(e, ST_INVALID_ARGUMENT,
                   "usage: trainyard sweep create FILE | list | get SWEEP | watch SWEEP | cancel SWEEP | delete SWEEP");
}

static const struct option_row sweep_options[] = {
    { "set", 0, "PATH=VALUE",
      "create: change a field of the sweep; job.PATH=VALUE changes a field of its jobs; may be "
      "repeated",
      OPTION_LIST, offsetof(struct sweep_args, set), NULL },
    { "name", 0, "NAME", "create: the sweep's name, instead of the file's", OPTION_TEXT,
      offsetof(struct sweep_args, name), NULL },
    { "code", 0, "DIR", "create: the folder with the program's files, instead of the file's program.code", OPTION_TEXT,
      offsetof(struct sweep_args, code), NULL },
    { "dry-run", 0, NULL, "create: check the sweep and list its trials, and store nothing", OPTION_FLAG,
      offsetof(struct sweep_args, dry_run), NULL },
    { "wait-for-hosts", 0, NULL, "create: accept jobs that need more slots than the attached hosts have", OPTION_FLAG,
      offsetof(struct sweep_args, wait_for_hosts), NULL },
    { "skip-check", 0, NULL, "create: do not check the first trial on a host", OPTION_FLAG,
      offsetof(struct sweep_args, skip_check), NULL },
    { "watch", 'w', NULL, "create: then watch the sweep until it ends", OPTION_FLAG, offsetof(struct sweep_args, watch),
      NULL },
    { "request-id", 0, "ID", "create: a UUID: the same one creates no second sweep", OPTION_TEXT,
      offsetof(struct sweep_args, request_id), NULL },
    { 0 },
};

const struct command command_sweep = {
    .name = "sweep",
    .arguments = "create FILE [--set PATH=VALUE]... [--name N] [--code DIR] [--dry-run] [--watch] "
                 "[--wait-for-hosts] [--skip-check] [--request-id ID] | list | get SWEEP | watch SWEEP | "
                 "cancel SWEEP | delete SWEEP",
    .summary = "Runs many jobs of one spec with different values, and shows the best one.",
    .details = "docs/sweep.md lists every field of FILE. 'get' lists the trials, the best one first; -o name prints "
               "their jobs.\n'watch' exits with 0 if the sweep SUCCEEDED, 1 if it FAILED, 3 if it was CANCELLED. "
               "'cancel' also cancels the\njobs that have not ended. 'delete' leaves the jobs, which have the labels "
               "sweep=NAME and trial=NUMBER.",
    .example = "trainyard sweep create sweep.yaml --dry-run\ntrainyard sweep create sweep.yaml --watch\n"
               "trainyard sweep get rates\ntrainyard list -l sweep=rates",
    .options = sweep_options,
    .args_bytes = sizeof(struct sweep_args),
    .min_words = 1,
    .max_words = 2,
    .run = run_sweep,
};

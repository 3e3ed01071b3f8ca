/* trainyard validate, and the problems that `submit` prints.
 *
 * `validate` asks the controller, which applies the rules of the spec and lets a host check data, memory and
 * checkpoints. If no controller is named and none answers at the default address, or with --offline, this program
 * applies the rules itself (api/spec) and reports the rest as not checked. Both ways end in validate_show(): problems
 * go to stderr, one per line, with exit status 2; the layout and the plan, or with -o yaml the resolved spec, go to
 * stdout. */
#include "cli/validate.h"

#include "api/spec/file.h"
#include "api/spec/spec.h"
#include "cli/code/upload.h"
#include "cli/fork.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct validate_args {
    struct text_list set;
    const char *fork;
    bool offline, wait_for_hosts;
};

/* Part of a step. */
static const double NOTABLE_BUBBLE = 0.03;

static const ProtobufCServiceDescriptor *const jobs = &trainyard__v1__job_service__descriptor;

static const char *ending(int64_t n, const char *many) { return n == 1 ? "" : many; }

static void print_layout(const char *file, const Trainyard__V1__JobSpec *spec) {
    if (spec_is_program(spec)) {
        const int ranks = spec_world_size(spec), max = spec_max_world_size(spec);
        if (ranks < max)
            printf("%s is valid: an elastic program with %d to %d ranks\n", file, ranks, max);
        else
            printf("%s is valid: a program with %d rank%s\n", file, ranks, ending(ranks, "s"));
        return;
    }
    int64_t tokens = spec_tokens_per_step(spec);
    int ranks = spec_world_size(spec), batches = spec_micro_batches(spec);
    printf("%s is valid: %d rank%s, ", file, ranks, ending(ranks, "s"));
    if (batches)
        printf("%d micro-batch%s per step in %d lane%s, ", batches, ending(batches, "es"), spec->train->lanes,
               ending(spec->train->lanes, "s"));
    if (tokens)
        printf("%" PRId64 " token%s per step\n", tokens, ending(tokens, "s"));
    else
        printf("%d sample%s per step\n", spec->train->global_batch, ending(spec->train->global_batch, "s"));
}

static void print_plan(const Trainyard__V1__Plan *plan) {
    char peak[24], limit[24];
    output_bytes(plan->most_bytes, peak);
    output_bytes(plan->memory_bytes, limit);
    printf("micro_batch %d, lanes %d, recompute %s: at most %s per rank", plan->micro_batch, plan->lanes,
           plan->recompute, peak);
    if (plan->memory_bytes && plan->largest_micro_batch && plan->larger_exceeds_memory)
        printf("; micro_batch %d is the largest that fits into %s", plan->largest_micro_batch, limit);
    else if (plan->memory_bytes && plan->largest_micro_batch)
        printf("; micro_batch %d fits into %s and is the largest for global_batch %d in %d lane%s",
               plan->largest_micro_batch, limit, plan->global_batch, plan->lanes, ending(plan->lanes, "s"));
    if (plan->bubble > NOTABLE_BUBBLE)
        printf("; the pipeline's stages wait %.0f %% of a step, less with a smaller micro_batch", 100 * plan->bubble);
    if (*plan->note)
        printf(" (%s)", plan->note);
    putchar('\n');
}

void validate_print(const char *file, char *const *problems, size_t n) {
    for (size_t i = 0; i < n; i++) {
        fprintf(stderr, "trainyard: %s: ", file);
        output_text(stderr, problems[i]);
        fputc('\n', stderr);
    }
}

void validate_print_unchecked(const char *file, char *const *unchecked, size_t n) {
    for (size_t i = 0; i < n; i++) {
        fprintf(stderr, "trainyard: %s: not checked: ", file);
        output_text(stderr, unchecked[i]);
        fputc('\n', stderr);
    }
}

/* Problems go to stderr, the layout and the plan to stdout; with -o yaml the resolved spec, ready to be submitted. */
status_t validate_show(struct cli *c, const char *file, const Trainyard__V1__ValidateJobResponse *answer,
                       struct err *e) {
    bool done = false;
    c->exit_code = answer->n_problems ? EXIT_USAGE : EXIT_DONE;
    bool spec_alone = c->output == OUTPUT_YAML && answer->resolved && !answer->n_problems;
    TRY(output_message(c, spec_alone ? &answer->resolved->base : &answer->base, &done, e));
    validate_print(file, answer->problems, answer->n_problems);
    validate_print_unchecked(file, answer->unchecked, answer->n_unchecked);
    if (done || answer->n_problems || !answer->resolved)
        return ST_OK;
    print_layout(file, answer->resolved);
    if (answer->plan)
        print_plan(answer->plan);
    else if (*answer->plan_reason)
        printf("not planned: %s\n", answer->plan_reason);
    return ST_OK;
}

static status_t show_rules(struct cli *c, const char *file, Trainyard__V1__JobSpec *spec,
                           const struct spec_problems *problems, struct err *e) {
    Trainyard__V1__ValidateJobResponse answer = TRAINYARD__V1__VALIDATE_JOB_RESPONSE__INIT;
    char *lines[SPEC_PROBLEMS];
    for (size_t i = 0; i < problems->n; i++)
        lines[i] = problems->lines[i];
    answer.resolved = spec;
    answer.problems = lines;
    answer.n_problems = problems->n;
    return validate_show(c, file, &answer, e);
}

/* Checks only the rules of the spec, in this process. */
static status_t validate_here(struct cli *c, const char *file, const Trainyard__V1__JobSpec *given, const char *why,
                              struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    struct spec_problems problems = { 0 };
    status_t st = spec_resolve(given, &spec, &problems, e);
    if (st == ST_OK || problems.n)
        st = show_rules(c, file, spec, &problems, e);
    spec_problems_done(&problems);
    if (st == ST_OK && c->exit_code == EXIT_DONE)
        validate_print_unchecked(file, (char *[]){ (char *)(uintptr_t)why }, 1);
    return st;
}

static status_t request_validation(struct cli *c, const Trainyard__V1__ValidateJobRequest *request,
                                   ProtobufCMessage **ret, struct err *e) {
    return client_named(c) ? client_call(c, jobs, "ValidateJob", &request->base, ret, e)
                           : client_call_once(c, jobs, "ValidateJob", &request->base, ret, e);
}

status_t validate_ask(struct cli *c, const Trainyard__V1__CreateJobRequest *request,
                      Trainyard__V1__ValidateJobResponse **ret, struct err *e) {
    ProtobufCMessage *reply = NULL;
    Trainyard__V1__ValidateJobRequest same = TRAINYARD__V1__VALIDATE_JOB_REQUEST__INIT;
    same.spec = request->spec;
    same.fork = request->fork;
    same.wait_for_hosts = request->wait_for_hosts;
    same.skip_check = request->skip_check;
    TRY(request_validation(c, &same, &reply, e));
    *ret = (Trainyard__V1__ValidateJobResponse *)reply;
    return ST_OK;
}

status_t validate_refused(struct cli *c, const char *file, const Trainyard__V1__CreateJobRequest *request,
                          bool *ret_printed, struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__ValidateJobResponse *answer = NULL;
    TRY(validate_ask(c, request, &answer, e));
    validate_print(file, answer->problems, answer->n_problems);
    validate_print_unchecked(file, answer->unchecked, answer->n_unchecked);
    *ret_printed = answer->n_problems > 0;
    return ST_OK;
}

/* Asks the controller. An unreachable controller is an error only if the user has named it. */
static status_t validate_there(struct cli *c, const char *file, Trainyard__V1__JobSpec *given,
                               const struct validate_args *args, struct err *e) {
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    Trainyard__V1__ValidateJobRequest request = TRAINYARD__V1__VALIDATE_JOB_REQUEST__INIT;
    request.spec = given;
    request.fork = (char *)(uintptr_t)(args->fork ? args->fork : "");
    request.wait_for_hosts = args->wait_for_hosts;
    status_t st = request_validation(c, &request, &reply, e);
    if ((st == ST_UNAVAILABLE || st == ST_DEADLINE_EXCEEDED) && !args->fork && !client_named(c)) {
        struct err why = *e;
        st = err_prefix(&why, ST_OK, "data, memory and hosts, since no controller is named and ");
        return validate_here(c, file, given, why.msg, e);
    }
    TRY(st);
    return validate_show(c, file, (Trainyard__V1__ValidateJobResponse *)reply, e);
}

static status_t run_validate(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct validate_args *args = args_;
    char file[FORK_FILE_BYTES];
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *given = NULL;
    if (args->offline && args->fork)
        return err_set(e, ST_INVALID_ARGUMENT, "--offline: a fork is checked against its origin, by the controller");
    TRY(fork_or_file_read(c, "validate", args->fork, words[0], &given, file, e));
    TRY(spec_change(given, args->set.items, args->set.n, e));
    TRY(code_resolve(c, given, &(struct code_request){ .spec_file = words[0], .upload = false }, e));
    return args->offline ? validate_here(c, file, given, "data, memory and hosts (--offline)", e)
                         : validate_there(c, file, given, args, e);
}

static const struct option_row validate_options[] = {
    { "set", 0, "KEY.PATH=VALUE", "change a field of the file; may be repeated", OPTION_LIST,
      offsetof(struct validate_args, set), NULL },
    { "fork", 0, "JOB[@STEP]",
      "check as a fork of that job, as 'submit --fork' would create it; without FILE, with its spec", OPTION_TEXT,
      offsetof(struct validate_args, fork), NULL },
    { "wait-for-hosts", 0, NULL, "the job may need more slots than the attached hosts have", OPTION_FLAG,
      offsetof(struct validate_args, wait_for_hosts), NULL },
    { "offline", 0, NULL, "check only the rules of the spec, without a controller", OPTION_FLAG,
      offsetof(struct validate_args, offline), NULL },
    { 0 },
};

const struct command command_validate = {
    .name = "validate",
    .arguments = "[FILE] [--fork JOB[@STEP]] [--set KEY.PATH=VALUE]... [--wait-for-hosts] [--offline]",
    .summary = "Checks a job as 'submit' does and prints everything that is wrong with it; submits nothing.",
    .details =
        "Asks the same controller as all commands. If no controller is named and none answers, or with --offline, "
        "only\nthe rules of the spec are checked, and stderr says so. -o yaml prints the spec with every default "
        "filled in.\nExits with 2 if there is a problem, and with 5 if a named controller cannot be reached.",
    .example = "trainyard validate job.yaml\ntrainyard validate job.yaml --set parallel.data=4 -o yaml",
    .options = validate_options,
    .args_bytes = sizeof(struct validate_args),
    .min_words = 0,
    .max_words = 1,
    .run = run_validate,
};

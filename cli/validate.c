/* trainyard validate. */
#include "api/spec/file.h"
#include "api/spec/spec.h"
#include "cli/client.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/job.pb-c.h>

struct validate_args {
    struct text_list set;
};

static const char *ending(int64_t n, const char *many) { return n == 1 ? "" : many; }

static void print_layout(const char *file, const Trainyard__V1__JobSpec *spec) {
    int64_t tokens = spec_tokens_per_step(spec);
    int ranks = spec_world_size(spec), batches = spec_micro_batches(spec);
    printf("%s is good: %d rank%s, ", file, ranks, ending(ranks, "s"));
    if (batches)
        printf("%d micro-batch%s a step in %d lane%s, ", batches, ending(batches, "es"), spec->train->lanes,
               ending(spec->train->lanes, "s"));
    if (tokens)
        printf("%" PRId64 " tokens a step\n", tokens);
    else
        printf("%d samples a step\n", spec->train->global_batch);
}

static void print_plan(const Trainyard__V1__Plan *plan) {
    char most[24], room[24];
    output_bytes(plan->most_bytes, most);
    output_bytes(plan->memory_bytes, room);
    printf("micro_batch %d, lanes %d, recompute %s: at most %s a rank", plan->micro_batch, plan->lanes, plan->recompute,
           most);
    if (plan->memory_bytes && plan->largest_micro_batch)
        printf("; micro_batch %d is the largest that fits into %s", plan->largest_micro_batch, room);
    if (*plan->note)
        printf(" (%s)", plan->note);
    putchar('\n');
}

/* Problems one a line on stderr; what will be trained on stdout: as YAML the spec itself, to be submitted. */
static status_t show(struct cli *c, const char *file, const Trainyard__V1__ValidateJobResponse *answer, struct err *e) {
    bool done = false;
    c->exit_code = answer->n_problems ? EXIT_USAGE : EXIT_DONE;
    bool spec_alone = c->output == OUTPUT_YAML && answer->resolved && !answer->n_problems;
    TRY(output_message(c, spec_alone ? &answer->resolved->base : &answer->base, &done, e));
    for (size_t i = 0; i < answer->n_problems; i++) {
        fprintf(stderr, "trainyard: %s: ", file);
        output_text(stderr, answer->problems[i]);
        fputc('\n', stderr);
    }
    if (done || answer->n_problems || !answer->resolved)
        return ST_OK;
    print_layout(file, answer->resolved);
    if (answer->plan)
        print_plan(answer->plan);
    else if (*answer->plan_reason)
        printf("not planned: %s\n", answer->plan_reason);
    return ST_OK;
}

static status_t validate_here(struct cli *c, const char *file, const Trainyard__V1__JobSpec *given, struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    struct spec_problems problems = { 0 };
    char *lines[SPEC_PROBLEMS];
    status_t st = spec_resolve(given, &spec, &problems, e);
    if (st == ST_OK || problems.n) {
        Trainyard__V1__ValidateJobResponse answer = TRAINYARD__V1__VALIDATE_JOB_RESPONSE__INIT;
        for (size_t i = 0; i < problems.n; i++)
            lines[i] = problems.lines[i];
        answer.resolved = spec;
        answer.problems = lines;
        answer.n_problems = problems.n;
        st = show(c, file, &answer, e);
    }
    spec_problems_done(&problems);
    return st;
}

static status_t validate_there(struct cli *c, const char *file, Trainyard__V1__JobSpec *given, struct err *e) {
    Trainyard__V1__ValidateJobRequest request = TRAINYARD__V1__VALIDATE_JOB_REQUEST__INIT;
    request.spec = given;
    ProtobufCMessage *reply = NULL;
    TRY(client_call(c, &trainyard__v1__job_service__descriptor, "ValidateJob", &request.base, &reply, e));
    status_t st = show(c, file, (Trainyard__V1__ValidateJobResponse *)reply, e);
    protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

static status_t run_validate(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct validate_args *args = args_;
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *given = NULL;
    TRY(spec_file_read(words[0], &given, e));
    TRY(spec_change(given, args->set.items, args->set.n, e));
    const char *file = spec_file_name(words[0]);
    return c->controller ? validate_there(c, file, given, e) : validate_here(c, file, given, e);
}

static const struct option_row validate_options[] = {
    { "set", 0, "KEY.PATH=VALUE", "change a field of the file; may be given several times", OPTION_LIST,
      offsetof(struct validate_args, set), NULL },
    { 0 },
};

const struct command command_validate = {
    .name = "validate",
    .arguments = "FILE [--set KEY.PATH=VALUE]...",
    .summary = "Checks a job spec and tells everything that is wrong with it; submits nothing.",
    .details = "Checks by this program's own rules; with --controller, by that controller's. -o yaml prints the spec "
               "with every\n"
               "default filled in. Exits with 2 when there is a problem.",
    .example = "trainyard validate job.yaml\ntrainyard validate job.yaml --set parallel.data=4 -o yaml",
    .options = validate_options,
    .args_bytes = sizeof(struct validate_args),
    .least = 1,
    .most = 1,
    .run = run_validate,
};

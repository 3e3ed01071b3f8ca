/* trainyard validate. */
#include "api/spec/spec.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/spec_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/job.pb-c.h>

struct validate_args {
    struct text_list set;
};

/* Problems one a line on stderr; what will be trained on stdout. */
static status_t show(struct cli *c, const char *file, const Trainyard__V1__ValidateJobResponse *answer, struct err *e) {
    bool done = false;
    c->exit_code = answer->n_problems ? EXIT_USAGE : EXIT_DONE;
    TRY(output_message(c, &answer->base, &done, e));
    for (size_t i = 0; i < answer->n_problems; i++) {
        fprintf(stderr, "trainyard: %s: ", file);
        output_text(stderr, answer->problems[i]);
        fputc('\n', stderr);
    }
    if (done || answer->n_problems || !answer->resolved)
        return ST_OK;
    const Trainyard__V1__JobSpec *spec = answer->resolved;
    printf("%s is good: %d rank%s, %d micro-batch%s a step in %d lane%s, %" PRId64 " tokens a step\n", file,
           spec_world_size(spec), spec_world_size(spec) == 1 ? "" : "s", spec_micro_batches(spec),
           spec_micro_batches(spec) == 1 ? "" : "es", spec->train->lanes, spec->train->lanes == 1 ? "" : "s",
           spec_tokens_per_step(spec));
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
    TRY(spec_file_read(words[0], &args->set, NULL, &given, e));
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

/* trainyard cancel, pause, resume, retry, delete: commands that change the state of jobs. job_select_each finds the
 * jobs, and calls one function for each.
 *
 * The first four send the same request, a name and a request id, to their RPC. Their request types differ, so the
 * callers pass pointers to the two fields, and request_move() fills them in. `pause --wait` then polls the job until it
 * is neither PAUSING nor CANCELLING, and sets the exit status from the state that it reached. If `resume` or `retry` is
 * refused for a job that SUCCEEDED or was CANCELLED, the error is extended by the command that forks the job. */
#include "cli/client.h"
#include "cli/job_name.h"
#include "cli/job_select.h"
#include "cli/output.h"

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <trainyard/v1/job.pb-c.h>

enum { POLL_MS = 500 }; /* of a job that is PAUSING */

static const ProtobufCServiceDescriptor *const jobs = &trainyard__v1__job_service__descriptor;

static status_t show_moved(const struct cli *c, const ProtobufCMessage *reply, struct err *e) {
    const Trainyard__V1__Job *job = (const Trainyard__V1__Job *)reply;
    bool done = false;
    TRY(output_message(c, reply, &done, e));
    if (c->output == OUTPUT_NAME)
        printf("%s\n", job->name);
    else if (!done)
        printf("%s %s\n", output_id(job->name), output_enum(&trainyard__v1__job__state__descriptor, (int)job->state));
    return ST_OK;
}

/* Calls the method. ret_name, ret_id: the fields of the request for the name and the request id, filled in here. */
static status_t request_move(struct cli *c, const char *name, const char *method, const ProtobufCMessage *request,
                             char **ret_name, char **ret_id, ProtobufCMessage **ret, struct err *e) {
    char id[37];
    client_request_id(id);
    *ret_name = (char *)(uintptr_t)name;
    *ret_id = id;
    status_t st = client_call_again(c, jobs, method, request, ret, e);
    *ret_name = *ret_id = NULL;
    return st;
}

static status_t move_job(struct cli *c, const char *name, const char *method, const ProtobufCMessage *request,
                         char **ret_name, char **ret_id, struct err *e) {
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    TRY(request_move(c, name, method, request, ret_name, ret_id, &reply, e));
    return show_moved(c, reply, e);
}

/* ---- which jobs ---- */

struct move_args {
    struct job_selector selector;
    bool yes;  /* cancel, delete */
    bool wait; /* pause */
};

static const struct option_row move_options[] = { JOB_SELECTOR_ROWS(struct move_args, selector), { 0 } };

static const struct option_row asking_options[] = {
    JOB_SELECTOR_ROWS(struct move_args, selector),
    { "yes", 'y', NULL, "do not ask before several jobs are changed", OPTION_FLAG, offsetof(struct move_args, yes),
      NULL },
    { 0 },
};

#define MOVE_ARGUMENTS "JOB... | -l KEY=VALUE..."
#define SELECTOR_DETAILS                                                                                               \
    "Instead of JOB, options select jobs: all that match every option and are in a state for which the command is\n"   \
    "possible."
#define ASKING_DETAILS                                                                                                 \
    SELECTOR_DETAILS                                                                                                   \
    "\nBefore the command changes selected jobs, it shows them and asks. With --yes it does not ask; without a\n"      \
    "terminal it needs --yes."

enum { WORDS_MAX = 1000 };

static bool is_ended(Trainyard__V1__Job__State state) { return state >= TRAINYARD__V1__JOB__STATE__SUCCEEDED; }
static bool is_paused(Trainyard__V1__Job__State state) { return state == TRAINYARD__V1__JOB__STATE__PAUSED; }
static bool is_failed(Trainyard__V1__Job__State state) { return state == TRAINYARD__V1__JOB__STATE__FAILED; }

static bool may_cancel(Trainyard__V1__Job__State state) {
    return !is_ended(state) && state != TRAINYARD__V1__JOB__STATE__CANCELLING;
}

static bool may_pause(Trainyard__V1__Job__State state) {
    return may_cancel(state) && !is_paused(state) && state != TRAINYARD__V1__JOB__STATE__PAUSING;
}

/* ---- cancel ---- */

static status_t cancel(struct cli *c, const void *args, const char *name, struct err *e) {
    (void)args;
    Trainyard__V1__CancelJobRequest request = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    return move_job(c, name, "CancelJob", &request.base, &request.name, &request.request_id, e);
}

static status_t run_cancel(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct move_args *args = args_;
    static const struct job_action action = { "cancel", "cancelled", may_cancel, cancel, true };
    return job_select_each(c, words, &args->selector, args->yes, &action, args, e);
}

const struct command command_cancel = {
    .name = "cancel",
    .arguments = MOVE_ARGUMENTS,
    .summary = "Cancels jobs that have not ended.",
    .details = ASKING_DETAILS,
    .example =
        "trainyard cancel 42\ntrainyard cancel -l team=research\ntrainyard cancel --user ada --state QUEUED --yes",
    .options = asking_options,
    .args_bytes = sizeof(struct move_args),
    .max_words = WORDS_MAX,
    .run = run_cancel,
};

/* ---- pause ---- */

static bool is_leaving(const Trainyard__V1__Job *job) {
    return job->state == TRAINYARD__V1__JOB__STATE__PAUSING || job->state == TRAINYARD__V1__JOB__STATE__CANCELLING;
}

static bool has_left(const Trainyard__V1__Job *job) {
    return job->state == TRAINYARD__V1__JOB__STATE__PAUSED || job->state >= TRAINYARD__V1__JOB__STATE__SUCCEEDED;
}

/* Polls until the job uses no slots, and replaces *job by its newest state. */
static status_t wait_paused(struct cli *c, Trainyard__V1__Job **job, struct err *e) {
    Trainyard__V1__GetJobRequest request = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    while (is_leaving(*job)) {
        poll(NULL, 0, POLL_MS);
        ProtobufCMessage *reply = NULL;
        request.name = (*job)->name;
        TRY(client_call_waiting(c, jobs, "GetJob", &request.base, &reply, e));
        trainyard__v1__job__free_unpacked(*job, NULL);
        *job = (Trainyard__V1__Job *)reply;
    }
    if (!has_left(*job))
        return err_set(e, ST_FAILED_PRECONDITION, "somebody resumed job %s meanwhile", output_id((*job)->name));
    if (*(*job)->reason) {
        output_text(stderr, (*job)->reason);
        fputc('\n', stderr);
    }
    if ((*job)->state == TRAINYARD__V1__JOB__STATE__FAILED)
        c->exit_code = EXIT_FAILED;
    if ((*job)->state == TRAINYARD__V1__JOB__STATE__CANCELLED)
        c->exit_code = EXIT_CANCELLED;
    return ST_OK;
}

static status_t pause_job(struct cli *c, const void *args, const char *name, struct err *e) {
    Trainyard__V1__PauseJobRequest request = TRAINYARD__V1__PAUSE_JOB_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    TRY(request_move(c, name, "PauseJob", &request.base, &request.name, &request.request_id, &reply, e));
    CLEANUP(message_freep) Trainyard__V1__Job *job = (Trainyard__V1__Job *)reply;
    if (((const struct move_args *)args)->wait)
        TRY(wait_paused(c, &job, e));
    return show_moved(c, &job->base, e);
}

static status_t run_pause(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct move_args *args = args_;
    static const struct job_action action = { "pause", "paused", may_pause, pause_job, false };
    return job_select_each(c, words, &args->selector, args->yes, &action, args, e);
}

static const struct option_row pause_options[] = {
    JOB_SELECTOR_ROWS(struct move_args, selector),
    { "wait", 0, NULL, "return when the slots of the jobs are free, and report on stderr which step is kept",
      OPTION_FLAG, offsetof(struct move_args, wait), NULL },
    { 0 },
};

const struct command command_pause = {
    .name = "pause",
    .arguments = MOVE_ARGUMENTS " [--wait]",
    .summary = "Frees the slots of jobs until they are resumed, without losing a step.",
    .details =
        "A waiting job becomes PAUSED immediately. A running job becomes PAUSING: its ranks end their current step,\n"
        "write a checkpoint and end; then the job is PAUSED. Its reason (trainyard get) names the step, or, if the\n"
        "checkpoint could not be written within ten minutes, the older checkpoint from which the job will continue.\n"
        "A pause does not count against retry.max_restarts.\n\n" SELECTOR_DETAILS,
    .example = "trainyard pause 42 --wait\ntrainyard resume 42",
    .options = pause_options,
    .args_bytes = sizeof(struct move_args),
    .max_words = WORDS_MAX,
    .run = run_pause,
};

/* A job that SUCCEEDED or was CANCELLED can only continue as a fork: adds the command to the error. */
static status_t advise_fork(struct cli *c, const char *name, status_t st, struct err *e) {
    Trainyard__V1__GetJobRequest request = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    if (st != ST_FAILED_PRECONDITION)
        return st;
    request.name = (char *)(uintptr_t)name;
    if (client_call_once(c, &trainyard__v1__job_service__descriptor, "GetJob", &request.base, &reply, NULL) != ST_OK)
        return st;
    const Trainyard__V1__Job__State state = ((Trainyard__V1__Job *)reply)->state;
    if (state == TRAINYARD__V1__JOB__STATE__SUCCEEDED || state == TRAINYARD__V1__JOB__STATE__CANCELLED) {
        struct err said = *e;
        return err_set(e, st, "%s; 'trainyard submit --fork %s' creates a new job that continues from its checkpoint",
                       said.msg, output_id(name));
    }
    return st;
}

static status_t resume(struct cli *c, const void *args, const char *name, struct err *e) {
    (void)args;
    Trainyard__V1__ResumeJobRequest request = TRAINYARD__V1__RESUME_JOB_REQUEST__INIT;
    return advise_fork(c, name, move_job(c, name, "ResumeJob", &request.base, &request.name, &request.request_id, e),
                       e);
}

static status_t run_resume(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct move_args *args = args_;
    static const struct job_action action = { "resume", "resumed", is_paused, resume, false };
    return job_select_each(c, words, &args->selector, args->yes, &action, args, e);
}

const struct command command_resume = {
    .name = "resume",
    .arguments = MOVE_ARGUMENTS,
    .summary = "Continues PAUSED jobs from their newest good checkpoints.",
    .details =
        "The job is QUEUED at its old place: before all jobs of the same priority that were submitted later. It ends\n"
        "with the same weights as a job that was never paused.\n\n" SELECTOR_DETAILS,
    .example = "trainyard resume 42",
    .options = move_options,
    .args_bytes = sizeof(struct move_args),
    .max_words = WORDS_MAX,
    .run = run_resume,
};

static status_t retry(struct cli *c, const void *args, const char *name, struct err *e) {
    (void)args;
    Trainyard__V1__RetryJobRequest request = TRAINYARD__V1__RETRY_JOB_REQUEST__INIT;
    return advise_fork(c, name, move_job(c, name, "RetryJob", &request.base, &request.name, &request.request_id, e), e);
}

static status_t run_retry(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct move_args *args = args_;
    static const struct job_action action = { "retry", "retried", is_failed, retry, false };
    return job_select_each(c, words, &args->selector, args->yes, &action, args, e);
}

const struct command command_retry = {
    .name = "retry",
    .arguments = MOVE_ARGUMENTS,
    .summary = "Continues FAILED jobs from their newest good checkpoints.",
    .details = "The job is QUEUED again, and its restarts are counted from 0.\n\n" SELECTOR_DETAILS,
    .example = "trainyard retry 42\ntrainyard retry --name c-headers --since 1d",
    .options = move_options,
    .args_bytes = sizeof(struct move_args),
    .max_words = WORDS_MAX,
    .run = run_retry,
};

static status_t delete_job(struct cli *c, const void *args, const char *name, struct err *e) {
    (void)args;
    Trainyard__V1__DeleteJobRequest request = TRAINYARD__V1__DELETE_JOB_REQUEST__INIT;
    request.name = (char *)(uintptr_t)name;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    TRY(client_call_again(c, jobs, "DeleteJob", &request.base, &reply, e));
    bool done = false;
    TRY(output_message(c, reply, &done, e));
    if (!done)
        printf("%s%s\n", c->output == OUTPUT_NAME ? name : output_id(name), c->output == OUTPUT_NAME ? "" : " deleted");
    return ST_OK;
}

static status_t run_delete(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct move_args *args = args_;
    static const struct job_action action = { "delete", "deleted", is_ended, delete_job, true };
    return job_select_each(c, words, &args->selector, args->yes, &action, args, e);
}

const struct command command_delete = {
    .name = "delete",
    .arguments = MOVE_ARGUMENTS,
    .summary = "Deletes ended jobs with their metrics, logs, events and checkpoints.",
    .details =
        "Refused while the job has not ended (cancel it first), while a job exists that started from one of its\n"
        "checkpoints (delete that job first), and while one of its checkpoints is pinned. This cannot be "
        "undone.\n\n" ASKING_DETAILS,
    .example = "trainyard delete 42\ntrainyard delete --state FAILED --before 30d",
    .options = asking_options,
    .args_bytes = sizeof(struct move_args),
    .max_words = WORDS_MAX,
    .run = run_delete,
};

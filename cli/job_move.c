/* trainyard cancel, pause, resume, retry, delete. */
#include "cli/client.h"
#include "cli/output.h"

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <trainyard/v1/job.pb-c.h>

enum { LOOK_AGAIN_MS = 500 }; /* at a job that is PAUSING */

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

/* request: of the method, with a name and a request id, which these fill in. */
static status_t ask_move(struct cli *c, const char *word, const char *method, const ProtobufCMessage *request,
                         char **ret_name, char **ret_id, ProtobufCMessage **ret, struct err *e) {
    char name[80], id[37];
    TRY(client_job_name(word, name, e));
    client_request_id(id);
    *ret_name = name;
    *ret_id = id;
    status_t st = client_call_again(c, jobs, method, request, ret, e);
    *ret_name = *ret_id = NULL;
    return st;
}

static status_t move_job(struct cli *c, const char *word, const char *method, const ProtobufCMessage *request,
                         char **ret_name, char **ret_id, struct err *e) {
    ProtobufCMessage *reply = NULL;
    TRY(ask_move(c, word, method, request, ret_name, ret_id, &reply, e));
    status_t st = show_moved(c, reply, e);
    protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

static status_t run_cancel(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    Trainyard__V1__CancelJobRequest request = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    return move_job(c, words[0], "CancelJob", &request.base, &request.name, &request.request_id, e);
}

const struct command command_cancel = {
    .name = "cancel",
    .arguments = "JOB",
    .summary = "Cancels a job that has not ended.",
    .example = "trainyard cancel 42",
    .args_bytes = 1,
    .least = 1,
    .most = 1,
    .run = run_cancel,
};

static bool is_leaving(const Trainyard__V1__Job *job) {
    return job->state == TRAINYARD__V1__JOB__STATE__PAUSING || job->state == TRAINYARD__V1__JOB__STATE__CANCELLING;
}

static bool has_left(const Trainyard__V1__Job *job) {
    return job->state == TRAINYARD__V1__JOB__STATE__PAUSED || job->state >= TRAINYARD__V1__JOB__STATE__SUCCEEDED;
}

/* Until it has left its slots; *job becomes what it is then. */
static status_t wait_paused(struct cli *c, Trainyard__V1__Job **job, struct err *e) {
    Trainyard__V1__GetJobRequest request = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    while (is_leaving(*job)) {
        poll(NULL, 0, LOOK_AGAIN_MS);
        ProtobufCMessage *reply = NULL;
        request.name = (*job)->name;
        TRY(client_call_waiting(c, jobs, "GetJob", &request.base, &reply, e));
        trainyard__v1__job__free_unpacked(*job, NULL);
        *job = (Trainyard__V1__Job *)reply;
    }
    if (!has_left(*job))
        return err_set(e, ST_FAILED_PRECONDITION, "job %s was resumed meanwhile", output_id((*job)->name));
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

struct pause_args {
    bool wait;
};

static status_t run_pause(struct cli *c, const void *args, char *const words[], struct err *e) {
    Trainyard__V1__PauseJobRequest request = TRAINYARD__V1__PAUSE_JOB_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    TRY(ask_move(c, words[0], "PauseJob", &request.base, &request.name, &request.request_id, &reply, e));
    Trainyard__V1__Job *job = (Trainyard__V1__Job *)reply;
    status_t st = ((const struct pause_args *)args)->wait ? wait_paused(c, &job, e) : ST_OK;
    if (st == ST_OK)
        st = show_moved(c, &job->base, e);
    trainyard__v1__job__free_unpacked(job, NULL);
    return st;
}

static const struct option_row pause_options[] = {
    { "wait", 0, NULL, "return when it has left its slots, and tell on stderr what is kept", OPTION_FLAG,
      offsetof(struct pause_args, wait), NULL },
    { 0 },
};

const struct command command_pause = {
    .name = "pause",
    .arguments = "JOB [--wait]",
    .summary = "Lets a job leave its slots until it is resumed, without losing a step.",
    .details =
        "A job that waits is PAUSED at once. One that runs is PAUSING: its ranks end the step they are at, write a\n"
        "checkpoint and leave; then it is PAUSED. The job's reason (trainyard get) says after which step, or, where\n"
        "that checkpoint could not be written within ten minutes, from which older one it will go on.\n"
        "Does not count against retry.max_restarts.",
    .example = "trainyard pause 42 --wait\ntrainyard resume 42",
    .options = pause_options,
    .args_bytes = sizeof(struct pause_args),
    .least = 1,
    .most = 1,
    .run = run_pause,
};

static status_t run_resume(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    Trainyard__V1__ResumeJobRequest request = TRAINYARD__V1__RESUME_JOB_REQUEST__INIT;
    return move_job(c, words[0], "ResumeJob", &request.base, &request.name, &request.request_id, e);
}

const struct command command_resume = {
    .name = "resume",
    .arguments = "JOB",
    .summary = "Lets a PAUSED job go on from its newest good checkpoint.",
    .details =
        "It is QUEUED at its old place: before all of its priority that were submitted after it. Its weights become\n"
        "those of a job that was never paused.",
    .example = "trainyard resume 42",
    .args_bytes = 1,
    .least = 1,
    .most = 1,
    .run = run_resume,
};

static status_t run_retry(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    Trainyard__V1__RetryJobRequest request = TRAINYARD__V1__RETRY_JOB_REQUEST__INIT;
    return move_job(c, words[0], "RetryJob", &request.base, &request.name, &request.request_id, e);
}

const struct command command_retry = {
    .name = "retry",
    .arguments = "JOB",
    .summary = "Lets a FAILED job go on from its newest good checkpoint.",
    .example = "trainyard retry 42",
    .args_bytes = 1,
    .least = 1,
    .most = 1,
    .run = run_retry,
};

static status_t run_delete(struct cli *c, const void *args, char *const words[], struct err *e) {
    char name[80];
    (void)args;
    Trainyard__V1__DeleteJobRequest request = TRAINYARD__V1__DELETE_JOB_REQUEST__INIT;
    TRY(client_job_name(words[0], name, e));
    request.name = name;
    ProtobufCMessage *reply = NULL;
    TRY(client_call_again(c, jobs, "DeleteJob", &request.base, &reply, e));
    bool done = false;
    status_t st = output_message(c, reply, &done, e);
    protobuf_c_message_free_unpacked(reply, NULL);
    if (st == ST_OK && !done)
        printf("%s%s\n", c->output == OUTPUT_NAME ? name : output_id(name), c->output == OUTPUT_NAME ? "" : " deleted");
    return st;
}

const struct command command_delete = {
    .name = "delete",
    .arguments = "JOB",
    .summary = "Deletes a job that has ended, with its metrics, logs, events and checkpoints.",
    .details =
        "Refused while the job has not ended (cancel it first), while a job that began with one of its checkpoints\n"
        "is there (delete that one first), and while one of them is pinned. There is no way back.",
    .example = "trainyard delete 42",
    .args_bytes = 1,
    .least = 1,
    .most = 1,
    .run = run_delete,
};

/* trainyard logs. */
#include "base/clock.h"
#include "base/limits.h"
#include "cli/client.h"
#include "cli/job_check.h"
#include "cli/job_name.h"
#include "cli/output.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <trainyard/v1/log.pb-c.h>

enum {
    /* How long a lost connection is redialled with -f. */
    PATIENCE_MS = 30 * 60 * 1000,
    /* The same without -f, and before the first lines: enough for a restart of the controller. */
    FIRST_PATIENCE_MS = 5000,
};

struct logs_args {
    bool follow;
    int64_t rank, attempt;
};

struct tail {
    struct cli *c;
    const char *job;
    const struct logs_args *args;
    char cursor[256]; /* of the last lines printed */
    bool received;
    bool reported; /* that the controller is unreachable */
};

static void print_line(const Trainyard__V1__LogLine *line) {
    char when[OUTPUT_TIME_BYTES];
    output_time(line->time, when);
    printf("%s %d/%d %s ", when, line->attempt, line->rank, line->stream);
    output_text(stdout, line->text);
    putchar('\n');
}

static status_t print_lines(struct tail *t, const Trainyard__V1__TailLogsResponse *lines, struct err *e) {
    t->received = true;
    snprintf(t->cursor, sizeof t->cursor, "%s", lines->cursor);
    if (t->c->output == OUTPUT_JSON)
        return output_json_line(&lines->base, e);
    for (size_t i = 0; i < lines->n_lines; i++)
        print_line(lines->lines[i]);
    fflush(stdout);
    return ST_OK;
}

static status_t tail_once(struct tail *t, char ret_reason[RPC_REASON_BYTES], struct err *e) {
    Trainyard__V1__TailLogsRequest request = TRAINYARD__V1__TAIL_LOGS_REQUEST__INIT;
    request.job = (char *)t->job;
    request.follow = t->args->follow;
    request.cursor = t->cursor;
    if (t->args->rank != OPTION_ABSENT) {
        request._rank_case = TRAINYARD__V1__TAIL_LOGS_REQUEST___RANK_RANK;
        request.rank = (int32_t)t->args->rank;
    }
    if (t->args->attempt != OPTION_ABSENT) {
        request._attempt_case = TRAINYARD__V1__TAIL_LOGS_REQUEST___ATTEMPT_ATTEMPT;
        request.attempt = (int32_t)t->args->attempt;
    }
    CLEANUP(rpc_stream_closep) struct rpc_stream *stream = NULL;
    ret_reason[0] = '\0';
    TRY(client_stream(t->c, &trainyard__v1__log_service__descriptor, "TailLogs", &request.base, &stream, e));
    for (;;) {
        const ProtobufCMessage *message = NULL;
        status_t st = rpc_stream_next(stream, &message, e);
        if (st != ST_OK || !message) {
            snprintf(ret_reason, RPC_REASON_BYTES, "%s", rpc_stream_reason(stream));
            return st;
        }
        TRY(print_lines(t, (const Trainyard__V1__TailLogsResponse *)message, e));
    }
}

static status_t run_logs(struct cli *c, const void *args, char *const words[], struct err *e) {
    struct tail t = { .c = c, .args = args };
    char name[JOB_NAME_BYTES];
    TRY(job_name_find(c, words[0], name, e));
    t.job = name;
    TRY(job_check_rank(c, name, t.args->rank, t.args->attempt, e));
    int64_t begun_ms = clock_mono_ms(), patience_ms = FIRST_PATIENCE_MS;
    for (;;) {
        char reason[RPC_REASON_BYTES];
        t.received = false;
        status_t st = tail_once(&t, reason, e);
        if (t.received) {
            begun_ms = clock_mono_ms();
            patience_ms = t.args->follow ? PATIENCE_MS : FIRST_PATIENCE_MS;
            t.reported = false;
        }
        if (!client_waits(st, reason, begun_ms, patience_ms))
            return st;
        if (!t.reported)
            client_report_absence(c, e);
        t.reported = true;
        poll(NULL, 0, REDIAL_FIRST_MS * 5);
    }
}

static const struct option_row logs_options[] = {
    { "follow", 'f', NULL, "follow the output until the job has ended", OPTION_FLAG, offsetof(struct logs_args, follow),
      NULL },
    { "rank", 0, "R", "only this rank's lines", OPTION_INT, offsetof(struct logs_args, rank), NULL },
    { "attempt", 0, "A", "only this attempt's lines", OPTION_INT, offsetof(struct logs_args, attempt), NULL },
    { 0 },
};

const struct command command_logs = {
    .name = "logs",
    .arguments = "JOB [-f] [--rank R] [--attempt A]",
    .summary = "Prints the output of a job's workers: time, attempt/rank, stream, text.",
    .example = "trainyard logs 42 -f --rank 0",
    .options = logs_options,
    .args_bytes = sizeof(struct logs_args),
    .min_words = 1,
    .max_words = 1,
    .run = run_logs,
};

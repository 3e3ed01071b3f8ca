/* trainyard audit: the audit log of the controller, newest first. */
#include "cli/client.h"
#include "cli/job_name.h"
#include "cli/output.h"
#include "cli/time_option.h"

#include <inttypes.h>
#include <string.h>
#include <trainyard/v1/audit.pb-c.h>

static const ProtobufCServiceDescriptor *const audits = &trainyard__v1__audit_service__descriptor;

struct audit_args {
    const char *since, *user, *job;
    bool failed;
    int64_t limit;
};

static void add_row(struct table *t, const void *message) {
    const Trainyard__V1__AuditEntry *row = message;
    char time[OUTPUT_TIME_BYTES];
    output_time(row->time, time);
    table_cell(t, "%s", time);
    table_cell(t, "%s", *row->caller ? row->caller : "-");
    table_cell(t, "%s", *row->address ? row->address : "-");
    table_cell(t, "%s", row->method);
    table_cell(t, "%s", *row->object ? row->object : "-");
    table_cell(t, "%s", row->result);
    if (row->unrecorded > 0)
        table_cell(t, "%s (and %" PRId64 " failed calls before it without an entry)", row->message, row->unrecorded);
    else
        table_cell(t, "%s", row->message);
}

static const struct output_columns columns = { { "TIME", "CALLER", "ADDRESS", "CALL", "OBJECT", "RESULT", "MESSAGE" },
                                               add_row };

/* A job that was deleted is in the log all the same, so that a number is not looked up. */
static status_t read_job(struct cli *c, const char *word, char ret[JOB_NAME_BYTES], struct err *e) {
    if (word[strspn(word, "0123456789")] != '\0')
        return job_name_find(c, word, ret, e);
    snprintf(ret, JOB_NAME_BYTES, "%s", word);
    return ST_OK;
}

static status_t run_audit(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct audit_args *args = args_;
    Trainyard__V1__ListAuditEntriesRequest request = TRAINYARD__V1__LIST_AUDIT_ENTRIES_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    Google__Protobuf__Timestamp since;
    char job[JOB_NAME_BYTES] = "";
    (void)words;
    if (args->limit < 1)
        return err_set(e, ST_INVALID_ARGUMENT, "--limit: %" PRId64 " is not above 0", args->limit);
    if (c->output == OUTPUT_NAME)
        return err_set(e, ST_INVALID_ARGUMENT, "-o name: entries of the audit log have no names");
    if (args->since) {
        TRY(time_option_read("since", args->since, &since, e));
        request.since = &since;
    }
    if (args->job)
        TRY(read_job(c, args->job, job, e));
    request.job = job;
    if (args->user)
        request.caller = (char *)(uintptr_t)args->user;
    request.failed = args->failed;
    TRY(client_list(c, audits, "ListAuditEntries", &request.base, args->limit, &all, e));
    return output_list(c, all, &columns, e);
}

static const struct option_row options[] = {
    { "since", 0, "TIME", "not older: a duration such as 3d, or a time in RFC 3339", OPTION_TEXT,
      offsetof(struct audit_args, since), NULL },
    { "user", 0, "CALLER", "calls of this caller: the name of a token, or of a user at a unix socket", OPTION_TEXT,
      offsetof(struct audit_args, user), NULL },
    { "job", 0, "JOB", "calls about this job and its checkpoints", OPTION_TEXT, offsetof(struct audit_args, job),
      NULL },
    { "failed", 0, NULL, "calls that were refused or failed", OPTION_FLAG, offsetof(struct audit_args, failed), NULL },
    { "limit", 'n', "N", "at most N entries", OPTION_INT, offsetof(struct audit_args, limit), "100" },
    { 0 },
};

const struct command command_audit = {
    .name = "audit",
    .arguments = "[--since TIME] [--user CALLER] [--job JOB] [--failed] [--limit N]",
    .summary = "Lists who changed what, from where, and which calls were refused, newest first.",
    .details = "Needs the role ADMIN. An entry must match all options. Entries are kept for the --audit-days of the "
               "controller,\nalso those about jobs that were deleted: give such a job's number.",
    .example = "trainyard audit --since 1d --failed\n"
               "trainyard audit --job 42\n"
               "trainyard audit --user ci --limit 1000 -o json | jq -r '.entries[].method'",
    .options = options,
    .args_bytes = sizeof(struct audit_args),
    .run = run_audit,
};

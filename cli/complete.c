/* complete: what a shell offers for an unfinished command line.
 *
 * The scripts of `trainyard completion` call `trainyard complete WORD...`: the words after `trainyard`, the last one
 * unfinished. Each line of the answer is a candidate; `CANDIDATE<TAB>TEXT` also explains it, and the line `:files` asks
 * for the names of files. What is offered follows from the command's rows:
 *
 *   the first word                  commands
 *   a word that begins with -       the command's options
 *   the value of an option          by its name in help: FILE and DIR files, STATE, ROLE and FORMAT their values,
 *                                   JOB jobs, KEY.PATH=VALUE the fields of a spec
 *   any other word                  by the first word of the command's arguments: JOB, EXECUTOR, FILE, or a|b|c itself
 *
 * A controller that does not answer within CALL_MS has no jobs: completion never reports an error. */
#include "api/codec/message.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/output.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <trainyard/v1/executor.pb-c.h>
#include <trainyard/v1/spec.pb-c.h>

enum { CALL_MS = 1000, JOBS = 100, WORD_BYTES = 128 };

#define FILES ":files"

static void offer(const char *candidate, const char *text) {
    printf("%s%s%.80s\n", candidate, *text ? "\t" : "", text);
}

static void offer_if(const char *typed, const char *candidate, const char *text) {
    if (strncmp(candidate, typed, strlen(typed)) == 0)
        offer(candidate, text);
}

/* ---- the controller's jobs and executors ---- */

static void offer_jobs(struct cli *c, const char *typed) {
    Trainyard__V1__ListJobsRequest request = TRAINYARD__V1__LIST_JOBS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    char text[WORD_BYTES];
    request.page_size = JOBS;
    if (client_open(c, NULL) != ST_OK || rpc_call_unary(client_channel(c), &trainyard__v1__job_service__descriptor,
                                                        "ListJobs", &request.base, CALL_MS, &reply, NULL) != ST_OK)
        return;
    const Trainyard__V1__ListJobsResponse *list = (Trainyard__V1__ListJobsResponse *)reply;
    for (size_t i = 0; i < list->n_jobs; i++) {
        const Trainyard__V1__Job *job = list->jobs[i];
        const char *id = strchr(job->name, '/');
        snprintf(text, sizeof text, "%s %s", output_enum(&trainyard__v1__job__state__descriptor, (int)job->state),
                 job->display_name);
        offer_if(typed, id ? id + 1 : job->name, text);
    }
}

static void offer_executors(struct cli *c, const char *typed) {
    Trainyard__V1__ListExecutorsRequest request = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.page_size = JOBS;
    if (client_open(c, NULL) != ST_OK || rpc_call_unary(client_channel(c), &trainyard__v1__executor_service__descriptor,
                                                        "ListExecutors", &request.base, CALL_MS, &reply, NULL) != ST_OK)
        return;
    const Trainyard__V1__ListExecutorsResponse *list = (Trainyard__V1__ListExecutorsResponse *)reply;
    for (size_t i = 0; i < list->n_executors; i++) {
        const char *id = strchr(list->executors[i]->name, '/');
        offer_if(typed, id ? id + 1 : list->executors[i]->name, list->executors[i]->hostname);
    }
}

/* ---- fields of a spec ---- */

/* typed: "train.op" offers train.optimizer. and so on: a message ends in a dot, a field in =. */
static void offer_fields(const char *typed) {
    const ProtobufCMessageDescriptor *message = &trainyard__v1__job_spec__descriptor;
    const char *last = typed;
    for (const char *dot; message && (dot = strchr(last, '.')); last = dot + 1) {
        char name[WORD_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)(dot - last), last);
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(message, name);
        message = f && f->type == PROTOBUF_C_TYPE_MESSAGE && !field_is_repeated(f) ? f->descriptor : NULL;
    }
    for (unsigned i = 0; message && i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &message->fields[i];
        char path[2 * WORD_BYTES];
        const bool opens = f->type == PROTOBUF_C_TYPE_MESSAGE && !field_is_repeated(f);
        snprintf(path, sizeof path, "%.*s%s%s", (int)(last - typed), typed, f->name, opens ? "." : "=");
        offer_if(typed, path, "");
    }
}

/* ---- values ---- */

static void offer_names(const char *typed, const char *const names[]) {
    for (size_t i = 0; names[i]; i++)
        offer_if(typed, names[i], "");
}

static void offer_enum(const char *typed, const ProtobufCEnumDescriptor *d) {
    for (unsigned i = 0; i < d->n_values; i++)
        if (d->values[i].value != 0) /* 0 is "not given" */
            offer_if(typed, output_enum(d, d->values[i].value), "");
}

/* "pin|unpin CHECKPOINT | list": pin, unpin and list, the first word of each alternative. */
static void offer_alternatives(const char *typed, const char *arguments) {
    for (const char *at = arguments; at; at = strchr(at, '|')) {
        char word[WORD_BYTES];
        at += strspn(at, "| ");
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, "| "), at);
        offer_if(typed, word, "");
    }
}

/* kind: a word in capital letters, as help has it. */
static void offer_kind(struct cli *c, const char *kind, const char *typed) {
    static const char *const formats[] = { "table", "json", "yaml", "name", NULL };
    static const char *const roles[] = { "VIEWER", "USER", "ADMIN", "EXECUTOR", NULL };
    if (strncmp(kind, "JOB", 3) == 0)
        offer_jobs(c, typed);
    else if (strncmp(kind, "EXECUTOR", 8) == 0)
        offer_executors(c, typed);
    else if (strncmp(kind, "FILE", 4) == 0 || strncmp(kind, "[FILE", 5) == 0 || strcmp(kind, "DIR") == 0)
        puts(FILES);
    else if (strcmp(kind, "STATE") == 0)
        offer_enum(typed, &trainyard__v1__job__state__descriptor);
    else if (strcmp(kind, "FORMAT") == 0)
        offer_names(typed, formats);
    else if (strcmp(kind, "ROLE") == 0)
        offer_names(typed, roles);
    else if (strncmp(kind, "KEY.PATH", 8) == 0)
        offer_fields(typed);
    else if (islower((unsigned char)*kind))
        offer_alternatives(typed, kind);
}

static void offer_options(const char *typed, const struct option_row *rows) {
    for (; rows && rows->name; rows++) {
        char name[WORD_BYTES];
        snprintf(name, sizeof name, "--%s", rows->name);
        if (rows->about) /* others are internal */
            offer_if(typed, name, rows->about);
    }
}

/* The row of an option whose value is the next word; NULL: the word is no such option. */
static const struct option_row *row_before(const char *word, const struct option_row *rows) {
    for (; rows && rows->name; rows++)
        if (rows->value && ((word[0] == '-' && word[1] == '-' && strcmp(word + 2, rows->name) == 0) ||
                            (rows->letter && word[0] == '-' && word[1] == rows->letter && word[2] == '\0')))
            return rows;
    return NULL;
}

static const struct command *find(const struct command *const table[], const char *name) {
    for (size_t i = 0; table[i]; i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

static void offer_commands(const struct command *const table[], const char *typed) {
    for (size_t i = 0; table[i]; i++)
        offer_if(typed, table[i]->name, table[i]->summary);
    offer_if(typed, "help", "help of a command");
    offer_if(typed, "version", "this program's version");
}

void complete(struct cli *c, const struct command *const table[], int n, char *const words[]) {
    const char *typed = n > 0 ? words[n - 1] : "";
    const struct command *command = n > 1 ? find(table, words[0]) : NULL;
    if (n <= 1 || (n == 2 && strcmp(words[0], "help") == 0)) {
        offer_commands(table, typed);
        return;
    }
    if (!command)
        return;
    const struct option_row *row = row_before(words[n - 2], command->options);
    if (!row)
        row = row_before(words[n - 2], arguments_shared(command));
    if (row) {
        offer_kind(c, row->value, typed);
    } else if (*typed == '-') {
        offer_options(typed, command->options);
        offer_options(typed, arguments_shared(command));
    } else if (n == 2 || !islower((unsigned char)*command->arguments)) { /* a verb comes first */
        offer_kind(c, command->arguments, typed);
    }
}

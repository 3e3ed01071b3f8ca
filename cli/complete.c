/* complete: what a shell offers for an unfinished command line.
 *
 * The scripts of `trainyard completion` call `trainyard complete WORD...`: the words after `trainyard`, the last one
 * unfinished. Each line of the answer is a candidate; `CANDIDATE<TAB>TEXT` also explains it, and the line `:files` asks
 * for the names of files. What is offered follows from the command's rows:
 *
 *   the first word                  commands
 *   a word that begins with -       the command's options
 *   the value of an option          by its name in help: FILE and DIR files, STATE, ROLE, FORMAT, ORDER, COLUMNS their
 *                                   values, JOB jobs, CONTEXT contexts, KEY=VALUE labels of jobs, KEY.PATH=VALUE the
 *                                   fields of a spec and their values, PATH=VALUE those of a sweep
 *   any other word                  by the first word of the command's arguments: JOB, EXECUTOR, SWEEP, FILE, or a|b|c
 *                                   itself; behind such a verb, by the word that follows the verb in the arguments
 *
 * A job is offered by its number, or by its name if the word does not begin with a digit.
 *
 * A controller that does not answer within CALL_MS has no jobs: completion never reports an error. */
#include "api/codec/field_option.h"
#include "api/codec/message.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/list.h"
#include "cli/output.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <trainyard/v1/executor.pb-c.h>
#include <trainyard/v1/spec.pb-c.h>
#include <trainyard/v1/sweep.pb-c.h>

enum { CALL_MS = 1000, JOBS = 100, SWEEPS = 100, WORD_BYTES = 128 };

#define FILES ":files"

static void offer(const char *candidate, const char *text) {
    printf("%s%s%.80s\n", candidate, *text ? "\t" : "", text);
}

static void offer_if(const char *typed, const char *candidate, const char *text) {
    if (strncmp(candidate, typed, strlen(typed)) == 0)
        offer(candidate, text);
}

/* ---- the controller's jobs, executors and sweeps ---- */

static bool ask_jobs(struct cli *c, ProtobufCMessage **ret) {
    Trainyard__V1__ListJobsRequest request = TRAINYARD__V1__LIST_JOBS_REQUEST__INIT;
    request.page_size = JOBS;
    return client_open(c, NULL) == ST_OK && rpc_call_unary(client_channel(c), &trainyard__v1__job_service__descriptor,
                                                           "ListJobs", &request.base, CALL_MS, ret, NULL) == ST_OK;
}

static void offer_jobs(struct cli *c, const char *typed) {
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    char text[WORD_BYTES];
    const bool by_name = *typed && !isdigit((unsigned char)*typed) && strncmp(typed, "jobs/", strlen(typed)) != 0;
    if (!ask_jobs(c, &reply))
        return;
    const Trainyard__V1__ListJobsResponse *list = (Trainyard__V1__ListJobsResponse *)reply;
    for (size_t i = 0; i < list->n_jobs; i++) {
        const Trainyard__V1__Job *job = list->jobs[i];
        const char *state = output_enum(&trainyard__v1__job__state__descriptor, (int)job->state);
        snprintf(text, sizeof text, "%s %s", state, by_name ? output_id(job->name) : job->display_name);
        offer_if(typed, by_name ? job->display_name : output_id(job->name), text);
    }
}

static void offer_labels(struct cli *c, const char *typed) {
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    if (!ask_jobs(c, &reply))
        return;
    const Trainyard__V1__ListJobsResponse *list = (Trainyard__V1__ListJobsResponse *)reply;
    for (size_t i = 0; i < list->n_jobs; i++)
        for (size_t j = 0; list->jobs[i]->spec && j < list->jobs[i]->spec->n_labels; j++) {
            const Trainyard__V1__JobSpec__LabelsEntry *label = list->jobs[i]->spec->labels[j];
            char text[3 * WORD_BYTES];
            snprintf(text, sizeof text, "%s=%s", label->key, label->value);
            offer_if(typed, text, "");
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

static void offer_sweeps(struct cli *c, const char *typed) {
    Trainyard__V1__ListSweepsRequest request = TRAINYARD__V1__LIST_SWEEPS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.page_size = SWEEPS;
    if (client_open(c, NULL) != ST_OK || rpc_call_unary(client_channel(c), &trainyard__v1__sweep_service__descriptor,
                                                        "ListSweeps", &request.base, CALL_MS, &reply, NULL) != ST_OK)
        return;
    const Trainyard__V1__ListSweepsResponse *list = (Trainyard__V1__ListSweepsResponse *)reply;
    for (size_t i = 0; i < list->n_sweeps; i++)
        offer_if(typed, output_id(list->sweeps[i]->name),
                 output_enum(&trainyard__v1__sweep__state__descriptor, (int)list->sweeps[i]->state));
}

static void offer_contexts(const char *typed) {
    CLEANUP(message_freep) Trainyard__Cli__Contexts *all = NULL;
    if (contexts_read(&all, NULL) != ST_OK)
        return;
    for (size_t i = 0; i < all->n_contexts; i++)
        offer_if(typed, all->contexts[i]->name, all->contexts[i]->controller);
}

/* ---- fields of a spec or a sweep ---- */

/* What a text has under the name of f: the message of a sweep's `job` is another field. */
static const ProtobufCFieldDescriptor *meant_by(const ProtobufCMessageDescriptor *message,
                                                const ProtobufCFieldDescriptor *f) {
    const ProtobufCFieldDescriptor *mapping = f ? field_mapping(message, f) : NULL;
    return mapping ? mapping : f;
}

static bool opens(const ProtobufCFieldDescriptor *f) {
    return f->type == PROTOBUF_C_TYPE_MESSAGE && !field_is_repeated(f);
}

/* The message of the field behind the last dot of n bytes of the path, and where that field begins. NULL: the path is
 * wrong. */
static const ProtobufCMessageDescriptor *message_of(const ProtobufCMessageDescriptor *message, const char *path,
                                                    size_t n, const char **ret_last) {
    const char *last = path;
    for (const char *dot; message && (dot = memchr(last, '.', n - (size_t)(last - path))); last = dot + 1) {
        char name[WORD_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)(dot - last), last);
        const ProtobufCFieldDescriptor *f = meant_by(message,
                                                     protobuf_c_message_descriptor_get_field_by_name(message, name));
        message = f && opens(f) ? f->descriptor : NULL;
    }
    *ret_last = last;
    return message;
}

/* typed: "train.precision=b" offers train.precision=bf16. */
static void offer_values(const ProtobufCMessageDescriptor *root, const char *typed, const char *equals) {
    const char *last, *const truth[] = { "true", "false" };
    char name[WORD_BYTES], text[3 * WORD_BYTES];
    const ProtobufCMessageDescriptor *message = message_of(root, typed, (size_t)(equals - typed), &last);
    snprintf(name, sizeof name, "%.*s", (int)(equals - last), last);
    const ProtobufCFieldDescriptor *f = message ? protobuf_c_message_descriptor_get_field_by_name(message, name) : NULL;
    if (!f)
        return;
    const Trainyard__V1__SpecField *option = field_option(message, (unsigned)(f - message->fields));
    const bool is_bool = f->type == PROTOBUF_C_TYPE_BOOL && !field_is_repeated(f);
    const size_t n = is_bool ? 2 : option ? option->n_choices : 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%.*s=%s", (int)(equals - typed), typed, is_bool ? truth[i] : option->choices[i]);
        offer_if(typed, text, "");
    }
}

/* typed: "train.op" offers train.optimizer. and so on: a message ends in a dot, a field in =. */
static void offer_fields(const ProtobufCMessageDescriptor *root, const char *typed) {
    const char *equals = strchr(typed, '='), *last;
    if (equals) {
        offer_values(root, typed, equals);
        return;
    }
    const ProtobufCMessageDescriptor *message = message_of(root, typed, strlen(typed), &last);
    for (unsigned i = 0; message && i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &message->fields[i];
        const Trainyard__V1__SpecField *option = field_option(message, i);
        char path[2 * WORD_BYTES];
        if (field_mapped(message, f)) /* it has the other one's name */
            continue;
        snprintf(path, sizeof path, "%.*s%s%s", (int)(last - typed), typed, f->name,
                 opens(meant_by(message, f)) ? "." : "=");
        offer_if(typed, path, option ? option->help : "");
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

/* typed: "job,na" offers job,name. */
static void offer_columns(const char *typed) {
    const char *comma = strrchr(typed, ',');
    const int kept = comma ? (int)(comma + 1 - typed) : 0;
    for (size_t i = 0; list_column(i); i++) {
        char text[3 * WORD_BYTES];
        snprintf(text, sizeof text, "%.*s%s", kept, typed, list_column(i));
        offer_if(typed, text, "");
    }
}

/* "use CONTEXT | delete CONTEXT": the word behind the verb; "" if none follows. */
static const char *behind_verb(const char *arguments, const char *verb) {
    const size_t n = strlen(verb);
    for (const char *at = arguments; n > 0 && (at = strstr(at, verb)); at += n)
        if ((at == arguments || strchr("| ", at[-1])) && (at[n] == '\0' || strchr("| ", at[n]))) {
            at += n;
            at += strcspn(at, " ");
            at += strspn(at, " ");
            return *at == '|' || islower((unsigned char)*at) ? "" : at;
        }
    return "";
}

/* "pin|unpin CHECKPOINT | list": pin, unpin and list, the first word of each alternative, once. */
static void offer_alternatives(const char *typed, const char *arguments) {
    char before[WORD_BYTES] = "";
    for (const char *at = arguments; at; at = strchr(at, '|')) {
        char word[WORD_BYTES];
        at += strspn(at, "| ");
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, "| "), at);
        if (strcmp(word, before) != 0)
            offer_if(typed, word, "");
        memcpy(before, word, sizeof before);
    }
}

/* kind: a word in capital letters, as help has it. */
static void offer_kind(struct cli *c, const char *kind, const char *typed) {
    static const char *const formats[] = { "table", "json", "yaml", "name", NULL };
    static const char *const roles[] = { "VIEWER", "USER", "ADMIN", "EXECUTOR", NULL };
    static const char *const orders[] = { "created", "started", "ended", "name", "state", "user", NULL };
    if (strncmp(kind, "JOB", 3) == 0)
        offer_jobs(c, typed);
    else if (strncmp(kind, "EXECUTOR", 8) == 0)
        offer_executors(c, typed);
    else if (strncmp(kind, "SWEEP", 5) == 0)
        offer_sweeps(c, typed);
    else if (strncmp(kind, "FILE", 4) == 0 || strncmp(kind, "[FILE", 5) == 0 || strcmp(kind, "DIR") == 0)
        puts(FILES);
    else if (strncmp(kind, "CONTEXT", 7) == 0)
        offer_contexts(typed);
    else if (strcmp(kind, "STATE") == 0)
        offer_enum(typed, &trainyard__v1__job__state__descriptor);
    else if (strcmp(kind, "FORMAT") == 0)
        offer_names(typed, formats);
    else if (strcmp(kind, "ROLE") == 0)
        offer_names(typed, roles);
    else if (strcmp(kind, "ORDER") == 0)
        offer_names(typed, orders);
    else if (strcmp(kind, "COLUMNS") == 0)
        offer_columns(typed);
    else if (strcmp(kind, "KEY=VALUE") == 0)
        offer_labels(c, typed);
    else if (strncmp(kind, "KEY.PATH", 8) == 0)
        offer_fields(&trainyard__v1__job_spec__descriptor, typed);
    else if (strcmp(kind, "PATH=VALUE") == 0)
        offer_fields(&trainyard__v1__sweep_spec__descriptor, typed);
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
    offer_if(typed, "help", "Prints the page of a command.");
    offer_if(typed, "version", "Prints the version of this program.");
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
    } else if (n == 3) {
        offer_kind(c, behind_verb(command->arguments, words[1]), typed);
    }
}

/* trainyard queue create, set, list, delete.
 *
 * The first word selects the operation, the second is the queue's name. `set` sends only the settings that options
 * name, so that two people who change different settings do not undo each other. A limit is a number of slots or
 * `none`. */
#include "cli/client.h"
#include "cli/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/queue.pb-c.h>

static const ProtobufCServiceDescriptor *const queues = &trainyard__v1__queue_service__descriptor;

struct queue_args {
    int64_t weight, max_priority;
    const char *cohort;
    const char *quota_cpu, *quota_cuda, *borrow_cpu, *borrow_cuda, *lend_cpu, *lend_cuda, *user_cpu, *user_cuda;
};

/* The message of a create or set. */
struct settings {
    Trainyard__V1__QueueSettings all;
    Trainyard__V1__SlotLimits cpu, cuda;
    bool any;
};

static status_t read_number(const char *option, int64_t value, int *to, int *to_case, int number, struct settings *s,
                            struct err *e) {
    if (value == OPTION_ABSENT)
        return ST_OK;
    if (value < INT32_MIN || value > INT32_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: %" PRId64 " is out of range", option, value);
    *to = (int)value;
    *to_case = number;
    s->any = true;
    return ST_OK;
}

static status_t read_limit(const char *option, const char *text, int *to, int *to_case, int number, struct settings *s,
                           struct err *e) {
    if (!text)
        return ST_OK;
    char *end;
    errno = 0;
    const bool none = strcmp(text, "none") == 0;
    const long value = none ? -1 : strtol(text, &end, 10);
    if (!none && (errno || end == text || *end || value < 0 || value > INT32_MAX))
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: '%s' is not a number of slots or 'none'", option, text);
    *to = (int)value;
    *to_case = number;
    s->any = true;
    return ST_OK;
}

#define READ_LIMIT(name, kind, NAME)                                                                                   \
    TRY(read_limit(#name "-" #kind, args->name##_##kind, &ret->kind.name, (int *)&ret->kind._##name##_case,            \
                   TRAINYARD__V1__SLOT_LIMITS___##NAME##_##NAME, ret, e))

static status_t read_settings(const struct queue_args *args, struct settings *ret, struct err *e) {
    *ret = (struct settings){ .all = TRAINYARD__V1__QUEUE_SETTINGS__INIT,
                              .cpu = TRAINYARD__V1__SLOT_LIMITS__INIT,
                              .cuda = TRAINYARD__V1__SLOT_LIMITS__INIT };
    TRY(read_number("weight", args->weight, &ret->all.weight, (int *)&ret->all._weight_case,
                    TRAINYARD__V1__QUEUE_SETTINGS___WEIGHT_WEIGHT, ret, e));
    TRY(read_number("max-priority", args->max_priority, &ret->all.max_priority, (int *)&ret->all._max_priority_case,
                    TRAINYARD__V1__QUEUE_SETTINGS___MAX_PRIORITY_MAX_PRIORITY, ret, e));
    if (args->cohort) {
        ret->all.cohort = strcmp(args->cohort, "none") == 0 ? (char *)"" : (char *)args->cohort;
        ret->all._cohort_case = TRAINYARD__V1__QUEUE_SETTINGS___COHORT_COHORT;
        ret->any = true;
    }
    READ_LIMIT(quota, cpu, QUOTA);
    READ_LIMIT(quota, cuda, QUOTA);
    READ_LIMIT(borrow, cpu, BORROW);
    READ_LIMIT(borrow, cuda, BORROW);
    READ_LIMIT(lend, cpu, LEND);
    READ_LIMIT(lend, cuda, LEND);
    READ_LIMIT(user, cpu, USER);
    READ_LIMIT(user, cuda, USER);
    ret->all.cpu = &ret->cpu;
    ret->all.cuda = &ret->cuda;
    return ST_OK;
}

static const char *limit_text(const Trainyard__V1__SlotLimits *l, int value, char ret[16]) {
    if (!l || value < 0)
        return "-";
    snprintf(ret, 16, "%d", value);
    return ret;
}

#define CELL_LIMIT(t, x, name)                                                                                         \
    do {                                                                                                               \
        char cpu_[16], cuda_[16];                                                                                      \
        table_cell((t), "%s+%s", limit_text((x)->cpu, (x)->cpu ? (x)->cpu->name : -1, cpu_),                           \
                   limit_text((x)->cuda, (x)->cuda ? (x)->cuda->name : -1, cuda_));                                    \
    } while (0)

static void add_row(struct table *t, const void *message) {
    const Trainyard__V1__Queue *q = message;
    static const Trainyard__V1__QueueSettings defaults = TRAINYARD__V1__QUEUE_SETTINGS__INIT;
    const Trainyard__V1__QueueSettings *x = q->settings ? q->settings : &defaults;
    table_cell(t, "%s", q->name);
    table_cell(t, "%d", q->settings ? x->weight : 1);
    table_cell(t, "%s", q->settings && *x->cohort ? x->cohort : "-");
    if (q->settings && x->max_priority < 1000000)
        table_cell(t, "%d", x->max_priority);
    else
        table_cell(t, "-");
    CELL_LIMIT(t, x, quota);
    CELL_LIMIT(t, x, borrow);
    CELL_LIMIT(t, x, lend);
    CELL_LIMIT(t, x, user);
    table_cell(t, "%" PRId64 "+%" PRId64, q->cpu_slots_used, q->cuda_slots_used);
    table_cell(t, "%.1f+%.1f", q->cpu_slots_average, q->cuda_slots_average);
    table_cell(t, "%s", q->settings ? "yes" : "no");
}

static const struct output_columns columns = { { "QUEUE", "WEIGHT", "COHORT", "MAX PRIORITY", "QUOTA", "BORROW", "LEND",
                                                 "USER", "USED", "MEAN", "CREATED" },
                                               add_row };

static status_t list(struct cli *c, struct err *e) {
    Trainyard__V1__ListQueuesRequest request = TRAINYARD__V1__LIST_QUEUES_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    TRY(client_list(c, queues, "ListQueues", &request.base, CLIENT_ALL, &all, e));
    return output_list(c, all, &columns, e);
}

static status_t show(const struct cli *c, const char *name, const char *what, const ProtobufCMessage *reply,
                     struct err *e) {
    bool done = false;
    if (c->output == OUTPUT_NAME) {
        printf("%s\n", name);
        return ST_OK;
    }
    TRY(output_message(c, reply, &done, e));
    if (!done)
        printf("%s %s\n", name, what);
    return ST_OK;
}

static status_t create(struct cli *c, const struct queue_args *args, const char *name, struct err *e) {
    Trainyard__V1__CreateQueueRequest request = TRAINYARD__V1__CREATE_QUEUE_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    struct settings settings;
    TRY(read_settings(args, &settings, e));
    request.name = (char *)name;
    request.settings = &settings.all;
    TRY(client_call_once(c, queues, "CreateQueue", &request.base, &reply, e));
    return show(c, name, "created", reply, e);
}

static status_t set(struct cli *c, const struct queue_args *args, const char *name, struct err *e) {
    Trainyard__V1__UpdateQueueRequest request = TRAINYARD__V1__UPDATE_QUEUE_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    struct settings settings;
    TRY(read_settings(args, &settings, e));
    if (!settings.any)
        return err_set(e, ST_INVALID_ARGUMENT, "queue set %s: no option says what to change", name);
    request.name = (char *)name;
    request.settings = &settings.all;
    TRY(client_call_again(c, queues, "UpdateQueue", &request.base, &reply, e));
    return show(c, name, "changed", reply, e);
}

static status_t delete_named(struct cli *c, const char *name, struct err *e) {
    Trainyard__V1__DeleteQueueRequest request = TRAINYARD__V1__DELETE_QUEUE_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.name = (char *)name;
    TRY(client_call_once(c, queues, "DeleteQueue", &request.base, &reply, e));
    return show(c, name, "deleted", reply, e);
}

static status_t run_queue(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct queue_args *args = args_;
    const char *verb = words[0], *name = words[1];
    struct settings settings;
    const bool changes = strcmp(verb, "create") == 0 || strcmp(verb, "set") == 0;
    TRY(read_settings(args, &settings, e));
    if (!changes && settings.any)
        return err_set(e, ST_INVALID_ARGUMENT, "the options of settings belong to 'queue create' and 'queue set'");
    if (strcmp(verb, "create") == 0 && name)
        return create(c, args, name, e);
    if (strcmp(verb, "set") == 0 && name)
        return set(c, args, name, e);
    if (strcmp(verb, "list") == 0 && !name)
        return list(c, e);
    if (strcmp(verb, "delete") == 0 && name)
        return delete_named(c, name, e);
    return err_set(e, ST_INVALID_ARGUMENT,
                   "usage: trainyard queue create NAME [OPTION]... | set NAME OPTION... | list | delete NAME");
}

#define LIMIT(option, member, text)                                                                                    \
    { option, 0, "N", text, OPTION_TEXT, offsetof(struct queue_args, member), NULL }

static const struct option_row queue_options[] = {
    { "weight", 'w', "N", "its share of the slots relative to other queues, 1 to 1000", OPTION_INT,
      offsetof(struct queue_args, weight), NULL },
    { "cohort", 0, "NAME", "queues of one cohort lend free slots to each other; none: it belongs to none", OPTION_TEXT,
      offsetof(struct queue_args, cohort), NULL },
    { "max-priority", 0, "N", "jobs of a higher priority count as this one", OPTION_INT,
      offsetof(struct queue_args, max_priority), NULL },
    LIMIT("quota-cpu", quota_cpu, "CPU slots that its jobs may use, or none"),
    LIMIT("quota-cuda", quota_cuda, "GPU slots that its jobs may use, or none"),
    LIMIT("borrow-cpu", borrow_cpu, "CPU slots of its cohort that they may use as well, or none"),
    LIMIT("borrow-cuda", borrow_cuda, "GPU slots of its cohort that they may use as well, or none"),
    LIMIT("lend-cpu", lend_cpu, "CPU slots of its quota that its cohort may use, or none"),
    LIMIT("lend-cuda", lend_cuda, "GPU slots of its quota that its cohort may use, or none"),
    LIMIT("user-cpu", user_cpu, "CPU slots that the jobs of one user may use, or none"),
    LIMIT("user-cuda", user_cuda, "GPU slots that the jobs of one user may use, or none"),
    { 0 },
};

const struct command command_queue = {
    .name = "queue",
    .arguments = "create NAME [OPTION]... | set NAME OPTION... | list | delete NAME",
    .summary = "Creates, changes, lists or deletes queues: weights, quotas, limits of users.",
    .details =
        "A job waits in the queue that its spec names. 'none' removes a limit. 'set' changes the settings that\n"
        "options name; jobs that run keep their slots. A queue with jobs that have not ended cannot be deleted.\n"
        "Pairs of numbers in the list are CPU and GPU slots; MEAN is what the queue has used before, as its share\n"
        "counts it. 'trainyard queues' counts the jobs of each queue.",
    .example = "trainyard queue create research --weight 3 --quota-cuda 32 --cohort lab\n"
               "trainyard queue set research --user-cuda 8",
    .options = queue_options,
    .args_bytes = sizeof(struct queue_args),
    .min_words = 1,
    .max_words = 2,
    .run = run_queue,
};

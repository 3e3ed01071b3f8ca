/* trainyard executors, drain, undrain.
 *
 * The last column of `executors` joins, in this order: jobs that failed on the host, why the host gets no more ranks,
 * its devices, and why it has none. `drain` and `undrain` accept a host's name in place of an executor's id: the list
 * of executors is searched for the id, then for the only executor on that host, ignoring lost ones if another is there.
 * `drain --wait` polls the list until the executor has no rank, and fails if somebody undrains it meanwhile. */
#include "cli/client.h"
#include "cli/output.h"
#include "cli/user_name.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/executor.pb-c.h>
#include <unistd.h>

static const ProtobufCServiceDescriptor *const service = &trainyard__v1__executor_service__descriptor;

static const char *state_name(const Trainyard__V1__Executor *x) {
    return output_enum(&trainyard__v1__executor__state__descriptor, (int)x->state);
}

/* ---- executors ---- */

/* "drained 3m12s ago by ops@desk: new disk" */
static void drain_text(const Trainyard__V1__Drain *drain, char *ret, size_t n) {
    char ago[24];
    output_between(drain->time, NULL, ago);
    snprintf(ret, n, "drained %s ago%s%s%s%s", ago, *drain->requester ? " by " : "", drain->requester,
             *drain->reason ? ": " : "", drain->reason);
}

/* Why the executor gets no more ranks. */
static void out_of_use_text(const Trainyard__V1__Executor *x, char *ret, size_t n) {
    char ago[24];
    *ret = '\0';
    if (x->drain)
        drain_text(x->drain, ret, n);
    if (!x->detach_time)
        return;
    output_between(x->detach_time, NULL, ago);
    size_t used = strlen(ret);
    snprintf(ret + used, n - used, "%s%s %s ago", used ? "; " : "",
             x->state == TRAINYARD__V1__EXECUTOR__STATE__LEAVING ? "stopping" : "disconnected", ago);
}

/* The host has no GPU and no driver, which is not a fault; -o json contains the loader's message. */
static bool is_cpu_host(const Trainyard__V1__Executor *x) {
    return x->n_devices == 0 && strncmp(x->reason, "no NVIDIA driver: ", 18) == 0;
}

/* "failed 3 jobs, job 7 12s ago: data.text.files[0]: ..." */
static void fault_text(const Trainyard__V1__HostFault *fault, char *ret, size_t n) {
    char ago[24];
    output_between(fault->time, NULL, ago);
    snprintf(ret, n, "failed %d job%s, job %s %s ago: %s; ", fault->jobs, fault->jobs == 1 ? "" : "s",
             output_id(fault->job), ago, fault->reason);
}

static void add_row(struct table *t, const void *message) {
    const Trainyard__V1__Executor *x = message;
    char last_seen[24], out_of_use[840], fault[800] = "", devices[1024] = "";
    size_t used = 0;
    output_between(x->heartbeat_time, NULL, last_seen);
    for (size_t i = 0; i < x->n_devices && used < sizeof devices; i++) {
        const Trainyard__V1__Device *d = x->devices[i];
        bool out = d->state == TRAINYARD__V1__DEVICE__STATE__QUARANTINED;
        used += (size_t)snprintf(devices + used, sizeof devices - used, "%s%s %d %s%s%s%s", i ? ", " : "", d->kind,
                                 d->index, d->model, out ? " (quarantined: " : "", out ? d->reason : "",
                                 out ? ")" : "");
    }
    table_cell(t, "%s", output_id(x->name));
    table_cell(t, "%s", state_name(x));
    table_cell(t, "%s", x->hostname);
    table_cell(t, "%d/%d", x->slots_used, x->slots);
    if (x->cores > 0)
        table_cell(t, "%d", x->cores);
    else
        table_cell(t, "-");
    table_cell(t, "%s", x->version);
    table_cell(t, "%s ago", last_seen);
    const char *reason = is_cpu_host(x) ? "none" : x->reason;
    out_of_use_text(x, out_of_use, sizeof out_of_use);
    if (x->fault)
        fault_text(x->fault, fault, sizeof fault);
    table_cell(t, "%s%s%s%s%s%s", fault, out_of_use, *out_of_use && (*devices || *reason) ? "; " : "", devices,
               *devices && *reason ? "; " : "", reason);
}

static const struct output_columns columns = {
    { "EXECUTOR", "STATE", "HOST", "SLOTS", "CORES", "VERSION", "LAST SEEN", "DEVICES" }, add_row
};

static status_t list_all(struct cli *c, ProtobufCMessage **ret, struct err *e) {
    Trainyard__V1__ListExecutorsRequest request = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
    return client_list(c, service, "ListExecutors", &request.base, CLIENT_ALL, ret, e);
}

static status_t run_executors(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    (void)words;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    TRY(list_all(c, &all, e));
    return output_list(c, all, &columns, e);
}

const struct command command_executors = {
    .name = "executors",
    .arguments = "",
    .summary = "Lists the hosts that run jobs: state, slots in use, cores, last heartbeat, GPUs.",
    .details =
        "A DRAINING host gets no more ranks and still runs some; a DRAINED host runs none. A drained host that was\n"
        "LOST is drained again when it returns. A host that is DISCONNECTED (its stream has ended) or LEAVING (its\n"
        "agent is stopping) gets no more ranks until it attaches again; if it does not, it becomes LOST.",
    .example = "trainyard executors",
    .args_bytes = 1,
    .run = run_executors,
};

/* ---- drain, undrain ---- */

enum { POLL_MS = 500, NAME_BYTES = 80 };

/* The executor with this id, else the only executor on a host of this name; lost executors count only if
 * there is no other. */
static status_t choose(const Trainyard__V1__ListExecutorsResponse *all, const char *word, const char **ret,
                       struct err *e) {
    const char *found = NULL, *lost = NULL, *second = NULL;
    int n_lost = 0;
    for (size_t i = 0; i < all->n_executors; i++) {
        const Trainyard__V1__Executor *x = all->executors[i];
        if (strcmp(output_id(x->name), word) == 0) {
            *ret = x->name;
            return ST_OK;
        }
        if (strcmp(x->hostname, word) != 0)
            continue;
        if (x->state == TRAINYARD__V1__EXECUTOR__STATE__LOST) {
            lost = x->name;
            n_lost++;
            continue;
        }
        second = found ? x->name : second;
        found = found ? found : x->name;
    }
    if (second || (!found && n_lost > 1))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "host %.80s has several executors: give an id from 'trainyard executors'", word);
    *ret = found ? found : lost;
    return *ret ? ST_OK : err_set(e, ST_NOT_FOUND, "there is no executor with the id or host name '%.80s'", word);
}

static status_t executor_name(struct cli *c, const char *word, char ret[NAME_BYTES], struct err *e) {
    const char *name = word;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    if (strncmp(word, "executors/", 10) != 0) {
        TRY(list_all(c, &all, e));
        TRY(choose((Trainyard__V1__ListExecutorsResponse *)all, word, &name, e));
    }
    if (snprintf(ret, NAME_BYTES, "%s", name) >= NAME_BYTES)
        return err_set(e, ST_NOT_FOUND, "there is no executor '%.40s...': the name is too long", word);
    return ST_OK;
}

static status_t show_one(const struct cli *c, const Trainyard__V1__Executor *x, struct err *e) {
    bool done = false;
    TRY(output_message(c, &x->base, &done, e));
    if (c->output == OUTPUT_NAME)
        printf("%s\n", x->name);
    else if (!done)
        printf("%s %s, %d of %d slots in use\n", output_id(x->name), state_name(x), x->slots_used, x->slots);
    return ST_OK;
}

/* "user@host", recorded as the person to ask about the drain. */
static void requester(char *ret, size_t n) {
    char host[65] = "";
    char user[USER_NAME_BYTES];
    user_name(user);
    gethostname(host, sizeof host - 1);
    snprintf(ret, n, "%s%s%s", user, *user && *host ? "@" : "", host);
}

/* Moves the executor out of the list; NULL if the list does not contain it. */
static Trainyard__V1__Executor *take_one(Trainyard__V1__ListExecutorsResponse *all, const char *name) {
    for (size_t i = 0; i < all->n_executors; i++)
        if (strcmp(all->executors[i]->name, name) == 0) {
            Trainyard__V1__Executor *x = all->executors[i];
            all->executors[i] = all->executors[--all->n_executors];
            return x;
        }
    return NULL;
}

/* Polls until the executor runs no rank, and replaces *x by its newest state. A lost host counts as empty. */
static status_t wait_empty(struct cli *c, const char *name, Trainyard__V1__Executor **x, struct err *e) {
    for (int reported_ranks = 0; (*x)->slots_used > 0 && (*x)->drain; poll(NULL, 0, POLL_MS)) {
        if ((*x)->slots_used != reported_ranks)
            fprintf(stderr, "%s: %d rank%s left\n", output_id(name), (*x)->slots_used,
                    (*x)->slots_used == 1 ? "" : "s");
        reported_ranks = (*x)->slots_used;
        CLEANUP(message_freep) ProtobufCMessage *all = NULL;
        Trainyard__V1__ListExecutorsRequest request = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
        TRY(client_list_waiting(c, service, "ListExecutors", &request.base, CLIENT_ALL, &all, e));
        trainyard__v1__executor__free_unpacked(*x, NULL);
        *x = take_one((Trainyard__V1__ListExecutorsResponse *)all, name);
        if (!*x)
            return err_set(e, ST_NOT_FOUND, "%s does not exist", name);
    }
    return (*x)->drain ? ST_OK : err_set(e, ST_FAILED_PRECONDITION, "somebody undrained %s meanwhile", name);
}

struct drain_args {
    const char *reason;
    bool now, wait;
};

static status_t run_drain(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct drain_args *args = args_;
    char name[NAME_BYTES], who[160];
    TRY(executor_name(c, words[0], name, e));
    requester(who, sizeof who);
    Trainyard__V1__DrainExecutorRequest request = TRAINYARD__V1__DRAIN_EXECUTOR_REQUEST__INIT;
    request.name = name;
    request.reason = args->reason ? (char *)args->reason : request.reason;
    request.requester = who;
    request.now = args->now;
    ProtobufCMessage *reply = NULL;
    TRY(client_call_again(c, service, "DrainExecutor", &request.base, &reply, e));
    CLEANUP(message_freep) Trainyard__V1__Executor *x = (Trainyard__V1__Executor *)reply;
    if (args->wait)
        TRY(wait_empty(c, name, &x, e));
    return show_one(c, x, e);
}

static const struct option_row drain_options[] = {
    { "reason", 0, "TEXT", "shown in 'executors' and to waiting jobs", OPTION_TEXT, offsetof(struct drain_args, reason),
      NULL },
    { "now", 0, NULL, "its jobs write a checkpoint after their step and continue elsewhere", OPTION_FLAG,
      offsetof(struct drain_args, now), NULL },
    { "wait", 0, NULL, "return when the host runs no rank", OPTION_FLAG, offsetof(struct drain_args, wait), NULL },
    { 0 },
};

const struct command command_drain = {
    .name = "drain",
    .arguments = "EXECUTOR [--reason TEXT] [--now] [--wait]",
    .summary = "Takes a host out of use: the host gets no more ranks until it is undrained.",
    .details =
        "EXECUTOR is an id from 'trainyard executors', or the name of a host with one executor. Running jobs continue\n"
        "to their end, and the host is DRAINING until then; an attempt that fails meanwhile restarts elsewhere. With\n"
        "--now the attempts end after their current step, with a checkpoint, and continue on other hosts: no step is\n"
        "lost and no restart is counted. The drain survives restarts of the host and of the controller. Draining "
        "again\n"
        "changes the reason, or adds --now.",
    .example = "trainyard drain host-1 --reason 'new disk'\ntrainyard drain host-1 --now --wait && ssh host-1 reboot",
    .options = drain_options,
    .args_bytes = sizeof(struct drain_args),
    .min_words = 1,
    .max_words = 1,
    .run = run_drain,
};

static status_t run_undrain(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    char name[NAME_BYTES];
    TRY(executor_name(c, words[0], name, e));
    Trainyard__V1__UndrainExecutorRequest request = TRAINYARD__V1__UNDRAIN_EXECUTOR_REQUEST__INIT;
    request.name = name;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    TRY(client_call_again(c, service, "UndrainExecutor", &request.base, &reply, e));
    return show_one(c, (Trainyard__V1__Executor *)reply, e);
}

const struct command command_undrain = {
    .name = "undrain",
    .arguments = "EXECUTOR",
    .summary = "Ends a drain: waiting jobs are placed on the host immediately.",
    .example = "trainyard undrain host-1",
    .args_bytes = 1,
    .min_words = 1,
    .max_words = 1,
    .run = run_undrain,
};

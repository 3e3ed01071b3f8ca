/* trainyard executors, drain, undrain. */
#include "cli/client.h"
#include "cli/output.h"

#include <poll.h>
#include <pwd.h>
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

static void add_row(struct table *t, const Trainyard__V1__Executor *x) {
    char heard[24], drained[800] = "", devices[1024] = "";
    size_t used = 0;
    output_between(x->heartbeat_time, NULL, heard);
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
    table_cell(t, "%s", x->version);
    table_cell(t, "%s ago", heard);
    if (x->drain)
        drain_text(x->drain, drained, sizeof drained);
    table_cell(t, "%s%s%s%s%s", drained, *drained && (*devices || *x->reason) ? "; " : "", devices,
               *devices && *x->reason ? "; " : "", x->reason);
}

static status_t show(const struct cli *c, const Trainyard__V1__ListExecutorsResponse *all, struct err *e) {
    static const char *const heads[] = { "EXECUTOR", "STATE", "HOST", "SLOTS", "VERSION", "HEARD", "DEVICES", NULL };
    bool done = false;
    TRY(output_message(c, &all->base, &done, e));
    for (size_t i = 0; c->output == OUTPUT_NAME && i < all->n_executors; i++)
        printf("%s\n", all->executors[i]->name);
    if (done || c->output == OUTPUT_NAME)
        return ST_OK;
    struct table t;
    table_init(&t, heads);
    for (size_t i = 0; i < all->n_executors; i++)
        add_row(&t, all->executors[i]);
    status_t st = output_table(&t, e);
    table_done(&t);
    return st;
}

static status_t list_all(struct cli *c, ProtobufCMessage **ret, struct err *e) {
    Trainyard__V1__ListExecutorsRequest request = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
    return client_list(c, service, "ListExecutors", &request.base, CLIENT_ALL, ret, e);
}

static status_t run_executors(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    (void)words;
    ProtobufCMessage *all = NULL;
    TRY(list_all(c, &all, e));
    status_t st = show(c, (Trainyard__V1__ListExecutorsResponse *)all, e);
    protobuf_c_message_free_unpacked(all, NULL);
    return st;
}

const struct command command_executors = {
    .name = "executors",
    .arguments = "",
    .summary = "Lists the hosts that run jobs: state, slots in use, when they were last heard.",
    .details =
        "DRAINING hosts get no more ranks and still have some; DRAINED ones have none. A host that is LOST and was\n"
        "drained is so again when it comes back.",
    .example = "trainyard executors",
    .args_bytes = 1,
    .run = run_executors,
};

/* ---- drain, undrain ---- */

enum { LOOK_AGAIN_MS = 500, NAME_BYTES = 80 };

/* Whose id it is, else the only one on a host of that name; of several there the one that is not lost. */
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
                       "several executors are on host %.80s: give an id of 'trainyard executors'", word);
    *ret = found ? found : lost;
    return *ret ? ST_OK : err_set(e, ST_NOT_FOUND, "no executor has the id or the host '%.80s'", word);
}

static status_t executor_name(struct cli *c, const char *word, char ret[NAME_BYTES], struct err *e) {
    const char *name = word;
    ProtobufCMessage *all = NULL;
    status_t st = ST_OK;
    if (strncmp(word, "executors/", 10) != 0) {
        TRY(list_all(c, &all, e));
        st = choose((Trainyard__V1__ListExecutorsResponse *)all, word, &name, e);
    }
    if (st == ST_OK && snprintf(ret, NAME_BYTES, "%s", name) >= NAME_BYTES)
        st = err_set(e, ST_NOT_FOUND, "no executor has so long a name: '%.40s...'", word);
    if (all)
        protobuf_c_message_free_unpacked(all, NULL);
    return st;
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

/* Whom to ask about it. */
static void requester(char *ret, size_t n) {
    char host[65] = "";
    const struct passwd *user = getpwuid(geteuid());
    gethostname(host, sizeof host - 1);
    snprintf(ret, n, "%s%s%s", user ? user->pw_name : "", user && *host ? "@" : "", host);
}

/* A copy of its element of the list; NULL when it is not there. */
static Trainyard__V1__Executor *take_one(Trainyard__V1__ListExecutorsResponse *all, const char *name) {
    for (size_t i = 0; i < all->n_executors; i++)
        if (strcmp(all->executors[i]->name, name) == 0) {
            Trainyard__V1__Executor *x = all->executors[i];
            all->executors[i] = all->executors[--all->n_executors];
            return x;
        }
    return NULL;
}

/* Until no rank is there; *x becomes what is so then. A lost host has none that could write anything. */
static status_t wait_empty(struct cli *c, const char *name, Trainyard__V1__Executor **x, struct err *e) {
    for (int told = 0; (*x)->slots_used > 0 && (*x)->drain; poll(NULL, 0, LOOK_AGAIN_MS)) {
        if ((*x)->slots_used != told)
            fprintf(stderr, "%s: %d rank%s left\n", output_id(name), (*x)->slots_used,
                    (*x)->slots_used == 1 ? "" : "s");
        told = (*x)->slots_used;
        ProtobufCMessage *all = NULL;
        Trainyard__V1__ListExecutorsRequest request = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
        TRY(client_list_waiting(c, service, "ListExecutors", &request.base, CLIENT_ALL, &all, e));
        trainyard__v1__executor__free_unpacked(*x, NULL);
        *x = take_one((Trainyard__V1__ListExecutorsResponse *)all, name);
        protobuf_c_message_free_unpacked(all, NULL);
        if (!*x)
            return err_set(e, ST_NOT_FOUND, "%s does not exist", name);
    }
    return (*x)->drain ? ST_OK : err_set(e, ST_FAILED_PRECONDITION, "%s was undrained meanwhile", name);
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
    Trainyard__V1__Executor *x = (Trainyard__V1__Executor *)reply;
    status_t st = args->wait ? wait_empty(c, name, &x, e) : ST_OK;
    if (st == ST_OK)
        st = show_one(c, x, e);
    if (x)
        trainyard__v1__executor__free_unpacked(x, NULL);
    return st;
}

static const struct option_row drain_options[] = {
    { "reason", 0, "TEXT", "for whoever wonders: 'executors' and jobs that wait tell it", OPTION_TEXT,
      offsetof(struct drain_args, reason), NULL },
    { "now", 0, NULL, "what runs there writes a checkpoint after its step and goes on elsewhere", OPTION_FLAG,
      offsetof(struct drain_args, now), NULL },
    { "wait", 0, NULL, "return when no rank is left there", OPTION_FLAG, offsetof(struct drain_args, wait), NULL },
    { 0 },
};

const struct command command_drain = {
    .name = "drain",
    .arguments = "EXECUTOR [--reason TEXT] [--now] [--wait]",
    .summary = "Takes a host out of use: it gets no more ranks until it is undrained.",
    .details =
        "EXECUTOR is an id of 'trainyard executors', or the name of a host that has one executor.\n"
        "What runs there goes on to its end, and the host is DRAINING until then; a job whose attempt fails meanwhile\n"
        "goes on elsewhere. With --now the attempts end after the step that they are at, with a checkpoint, and go on "
        "on\n"
        "other hosts: no step is lost and no restart is counted. The mark outlasts restarts of the host and of the\n"
        "controller. Draining again changes the reason, or adds --now.",
    .example = "trainyard drain host-1 --reason 'new disk'\ntrainyard drain host-1 --now --wait && ssh host-1 reboot",
    .options = drain_options,
    .args_bytes = sizeof(struct drain_args),
    .least = 1,
    .most = 1,
    .run = run_drain,
};

static status_t run_undrain(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    char name[NAME_BYTES];
    TRY(executor_name(c, words[0], name, e));
    Trainyard__V1__UndrainExecutorRequest request = TRAINYARD__V1__UNDRAIN_EXECUTOR_REQUEST__INIT;
    request.name = name;
    ProtobufCMessage *reply = NULL;
    TRY(client_call_again(c, service, "UndrainExecutor", &request.base, &reply, e));
    status_t st = show_one(c, (Trainyard__V1__Executor *)reply, e);
    protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

const struct command command_undrain = {
    .name = "undrain",
    .arguments = "EXECUTOR",
    .summary = "Gives a drained host back: jobs that wait are placed there at once.",
    .example = "trainyard undrain host-1",
    .args_bytes = 1,
    .least = 1,
    .most = 1,
    .run = run_undrain,
};

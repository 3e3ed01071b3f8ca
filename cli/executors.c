/* trainyard executors. */
#include "cli/client.h"
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/executor.pb-c.h>

static void add_row(struct table *t, const Trainyard__V1__Executor *x) {
    char heard[24], devices[1024] = "";
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
    table_cell(t, "%s", output_enum(&trainyard__v1__executor__state__descriptor, (int)x->state));
    table_cell(t, "%s", x->hostname);
    table_cell(t, "%d/%d", x->slots_used, x->slots);
    table_cell(t, "%s", x->version);
    table_cell(t, "%s ago", heard);
    table_cell(t, "%s%s%s", devices, *devices && *x->reason ? "; " : "", x->reason);
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

static status_t run_executors(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)args;
    (void)words;
    Trainyard__V1__ListExecutorsRequest request = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
    ProtobufCMessage *all = NULL;
    TRY(client_list(c, &trainyard__v1__executor_service__descriptor, "ListExecutors", &request.base, CLIENT_ALL, &all,
                    e));
    status_t st = show(c, (Trainyard__V1__ListExecutorsResponse *)all, e);
    protobuf_c_message_free_unpacked(all, NULL);
    return st;
}

const struct command command_executors = {
    .name = "executors",
    .arguments = "",
    .summary = "Lists the hosts that run jobs: state, slots in use, when they were last heard.",
    .example = "trainyard executors",
    .args_bytes = 1,
    .run = run_executors,
};

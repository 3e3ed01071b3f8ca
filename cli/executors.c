/* trainyard executors. */
#include "base/limits.h"
#include "cli/client.h"
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/executor.pb-c.h>

enum { MOST_EXECUTORS = 100000 };

/* Moves the executors of `page` behind those of `all`. */
static status_t join(Trainyard__V1__ListExecutorsResponse *all, Trainyard__V1__ListExecutorsResponse *page,
                     struct err *e) {
    size_t n = all->n_executors + page->n_executors;
    Trainyard__V1__Executor **grown = realloc(all->executors, (n ? n : 1) * sizeof *grown);
    if (!grown)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %zu executors", n);
    all->executors = grown;
    for (size_t i = 0; i < page->n_executors; i++)
        grown[all->n_executors++] = page->executors[i];
    page->n_executors = 0;
    return ST_OK;
}

static status_t list_all(struct cli *c, Trainyard__V1__ListExecutorsResponse *all, struct err *e) {
    Trainyard__V1__ListExecutorsRequest request = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
    char token[256] = "";
    request.page_size = LIMIT_PAGE_SIZE;
    request.page_token = token;
    do {
        ProtobufCMessage *reply = NULL;
        TRY(client_call(c, &trainyard__v1__executor_service__descriptor, "ListExecutors", &request.base, &reply, e));
        Trainyard__V1__ListExecutorsResponse *page = (Trainyard__V1__ListExecutorsResponse *)reply;
        snprintf(token, sizeof token, "%s", page->next_page_token);
        status_t st = join(all, page, e);
        protobuf_c_message_free_unpacked(reply, NULL);
        TRY(st);
    } while (*token && all->n_executors < MOST_EXECUTORS);
    return ST_OK;
}

static void add_row(struct table *t, const Trainyard__V1__Executor *x) {
    char heard[24], devices[160] = "";
    size_t used = 0;
    output_between(x->heartbeat_time, NULL, heard);
    for (size_t i = 0; i < x->n_devices && used < sizeof devices; i++)
        used += (size_t)snprintf(devices + used, sizeof devices - used, "%s%s %s", i ? ", " : "", x->devices[i]->kind,
                                 x->devices[i]->model);
    table_cell(t, "%s", output_id(x->name));
    table_cell(t, "%s", output_enum(&trainyard__v1__executor__state__descriptor, (int)x->state));
    table_cell(t, "%s", x->hostname);
    table_cell(t, "%d/%d", x->slots_used, x->slots);
    table_cell(t, "%s", x->version);
    table_cell(t, "%s ago", heard);
    table_cell(t, "%s", *devices ? devices : x->reason);
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
    Trainyard__V1__ListExecutorsResponse *all = malloc(sizeof *all);
    if (!all)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the executors");
    trainyard__v1__list_executors_response__init(all);
    status_t st = list_all(c, all, e);
    if (st == ST_OK)
        st = show(c, all, e);
    trainyard__v1__list_executors_response__free_unpacked(all, NULL);
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

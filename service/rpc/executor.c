#include "service/store/executor.h"

#include "api/rpc/access.h"
#include "base/limits.h"
#include "service/rpc/convert_executor.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/services.h"

#include <stdio.h>
#include <string.h>

/* The list is ordered by id, so the page token is the last id of the page. */
static status_t list_executors(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListExecutorsRequest *in = (const void *)request;
    int size;
    TRY(page_size(in->page_size, &size, e));
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_executor *rows;
    size_t n;
    TRY(store_executor_list(controller_store(service), m, in->page_token, size, &rows, &n, e));
    Trainyard__V1__ListExecutorsResponse out = TRAINYARD__V1__LIST_EXECUTORS_RESPONSE__INIT;
    out.executors = arena_alloc(a, n, sizeof *out.executors);
    out.n_executors = n;
    for (size_t i = 0; i < out.n_executors; i++)
        out.executors[i] = convert_executor(a, &rows[i]);
    if (n == (size_t)size)
        out.next_page_token = (char *)rows[n - 1].id;
    rpc_reply(call, &out.base);
    return ST_OK;
}

static status_t reply_executor(struct controller *c, struct rpc_call *call, const char *id, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_executor row;
    TRY(store_executor_get(controller_store(c), m, id, &row, e));
    const Trainyard__V1__Executor *x = convert_executor(a, &row);
    rpc_reply(call, &x->base);
    return ST_OK;
}

enum { MAX_REASON_BYTES = 500, MAX_REQUESTER_BYTES = 200 }; /* as documented in the proto */

static status_t check_length(const char *field, const char *text, size_t max_bytes, struct err *e) {
    return strlen(text) <= max_bytes ? ST_OK
                                     : err_set(e, ST_INVALID_ARGUMENT, "%s: has more than %zu bytes", field, max_bytes);
}

/* "ops (alice@desk)": the name of the caller's token, then the name that the request gives. */
static void requester(const char *caller, const char *said, char *ret, size_t n) {
    const bool both = *caller && *said;
    snprintf(ret, n, "%s%s%s%s", caller, both ? " (" : "", said, both ? ")" : "");
}

static status_t drain_executor(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__DrainExecutorRequest *in = (const void *)request;
    const char *id;
    TRY(name_executor(in->name, &id, e));
    TRY(check_length("reason", in->reason, MAX_REASON_BYTES, e));
    TRY(check_length("requester", in->requester, MAX_REQUESTER_BYTES, e));
    char who[RPC_CALLER_BYTES + MAX_REQUESTER_BYTES + 4];
    requester(rpc_caller(call), in->requester, who, sizeof who);
    const deadline_ms_t deadline = rpc_deadline(call, UNARY_DEADLINE_MS);
    TRY(rpc_found(call, controller_drain(service, id, in->reason, who, in->now, deadline, e), "EXECUTOR_NOT_FOUND"));
    return reply_executor(service, call, id, e);
}

static status_t undrain_executor(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const char *id;
    TRY(name_executor(((const Trainyard__V1__UndrainExecutorRequest *)request)->name, &id, e));
    const deadline_ms_t deadline = rpc_deadline(call, UNARY_DEADLINE_MS);
    TRY(rpc_found(call, controller_undrain(service, id, deadline, e), "EXECUTOR_NOT_FOUND"));
    return reply_executor(service, call, id, e);
}

static const struct rpc_method methods[] = {
    { .name = "ListExecutors", .kind = RPC_UNARY, .unary = list_executors },
    { .name = "DrainExecutor", .kind = RPC_UNARY, .unary = drain_executor },
    { .name = "UndrainExecutor", .kind = RPC_UNARY, .unary = undrain_executor },
};

const struct rpc_service rpc_executor_service = { &trainyard__v1__executor_service__descriptor, methods,
                                                  sizeof methods / sizeof *methods };

#include "service/store/executor.h"

#include "service/rpc/convert_executor.h"
#include "service/rpc/page.h"
#include "service/rpc/services.h"

/* The token is the last id of the page: ids are what the list is ordered by. */
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
    out.n_executors = n;
    out.executors = arena_alloc(a, n, sizeof *out.executors);
    for (size_t i = 0; i < n; i++)
        out.executors[i] = convert_executor(a, &rows[i]);
    if (n == (size_t)size)
        out.next_page_token = (char *)rows[n - 1].id;
    rpc_reply(call, &out.base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "ListExecutors", .kind = RPC_UNARY, .unary = list_executors },
};

const struct rpc_service rpc_executor_service = { &trainyard__v1__executor_service__descriptor, methods,
                                                  sizeof methods / sizeof *methods };

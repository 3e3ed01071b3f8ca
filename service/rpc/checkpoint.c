#include "service/store/checkpoint.h"

#include "service/rpc/convert_checkpoint.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/services.h"
#include "service/store/job.h"

static status_t list_checkpoints(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListCheckpointsRequest *in = (const void *)request;
    struct store *s = controller_store(service);
    int64_t job, before;
    int size;
    TRY(name_job(in->parent, &job, e));
    TRY(page_size(in->page_size, &size, e));
    TRY(page_token_read(in->page_token, in->parent, &before, e));
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_job row;
    TRY(rpc_found(call, store_job_get(s, m, job, &row, e), "JOB_NOT_FOUND"));
    struct store_checkpoint *rows;
    size_t n;
    TRY(store_checkpoint_list(s, m, job, before, size, &rows, &n, e));
    Trainyard__V1__ListCheckpointsResponse out = TRAINYARD__V1__LIST_CHECKPOINTS_RESPONSE__INIT;
    out.checkpoints = arena_alloc(a, n, sizeof *out.checkpoints);
    out.n_checkpoints = n;
    for (size_t i = 0; i < out.n_checkpoints; i++)
        out.checkpoints[i] = convert_checkpoint(a, &rows[i]);
    char token[PAGE_TOKEN_BYTES];
    if (n == (size_t)size) {
        page_token_write(rows[n - 1].id, in->parent, token);
        out.next_page_token = token;
    }
    rpc_reply(call, &out.base);
    return ST_OK;
}

static status_t reply_checkpoint(void *service, struct rpc_call *call, int64_t job, int64_t id, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_checkpoint row;
    TRY(rpc_found(call, store_checkpoint_get(controller_store(service), m, job, id, &row, e), "CHECKPOINT_NOT_FOUND"));
    const Trainyard__V1__Checkpoint *k = convert_checkpoint(a, &row);
    rpc_reply(call, &k->base);
    return ST_OK;
}

static status_t get_checkpoint(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    int64_t job, id;
    TRY(name_checkpoint(((const Trainyard__V1__GetCheckpointRequest *)request)->name, &job, &id, e));
    return reply_checkpoint(service, call, job, id, e);
}

/* Replies with the row after a change whose status is st. NOT_FOUND, of the change or of the read, means that the
 * checkpoint does not exist. */
static status_t changed(void *service, struct rpc_call *call, int64_t job, int64_t id, status_t st, struct err *e) {
    TRY(rpc_found(call, st, "CHECKPOINT_NOT_FOUND"));
    return reply_checkpoint(service, call, job, id, e);
}

static status_t pin_checkpoint(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__PinCheckpointRequest *in = (const void *)request;
    int64_t job, id;
    TRY(name_checkpoint(in->name, &job, &id, e));
    return changed(service, call, job, id, controller_checkpoint_pin(service, job, id, in->pinned, e), e);
}

static status_t delete_checkpoint(void *service, struct rpc_call *call, const ProtobufCMessage *request,
                                  struct err *e) {
    int64_t job, id;
    TRY(name_checkpoint(((const Trainyard__V1__DeleteCheckpointRequest *)request)->name, &job, &id, e));
    return changed(service, call, job, id, controller_checkpoint_delete(service, job, id, e), e);
}

static const struct rpc_method methods[] = {
    { .name = "ListCheckpoints", .kind = RPC_UNARY, .unary = list_checkpoints },
    { .name = "GetCheckpoint", .kind = RPC_UNARY, .unary = get_checkpoint },
    { .name = "PinCheckpoint", .kind = RPC_UNARY, .unary = pin_checkpoint },
    { .name = "DeleteCheckpoint", .kind = RPC_UNARY, .unary = delete_checkpoint },
    { .name = "GetCheckpointLinks", .kind = RPC_UNARY, .unary = rpc_checkpoint_links },
    { .name = "VerifyCheckpoint",
      .kind = RPC_SERVER_STREAM,
      .events = { .open = rpc_verify_open, .work = rpc_verify_work, .done = rpc_verify_done } },
    { .name = "Sample",
      .kind = RPC_SERVER_STREAM,
      .events = { .open = rpc_sample_open, .work = rpc_sample_work, .done = rpc_sample_done } },
};

const struct rpc_service rpc_checkpoint_service = { &trainyard__v1__checkpoint_service__descriptor, methods,
                                                    sizeof methods / sizeof *methods };

/* GetCheckpointLinks: a client reads a checkpoint in a store itself, so that no bulk data pass through the service. */
#include "base/alloc.h"
#include "base/clock.h"
#include "service/controller/store_keys.h"
#include "service/controller/store_links.h"
#include "service/rpc/arena.h"
#include "service/rpc/name.h"
#include "service/rpc/services.h"
#include "service/store/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/checkpoint.pb-c.h>

enum { VALID_S = 3600 };

static char *secret_text(const Trainyard__V1__AttemptStart *clear, const char *field) {
    for (size_t i = 0; i < clear->n_secrets; i++)
        if (strcmp(clear->secrets[i]->variable, field) == 0)
            return alloc_format("%.*s", (int)clear->secrets[i]->value.len, clear->secrets[i]->value.data);
    return alloc_copy_text("");
}

static void secret_free(char *text) {
    explicit_bzero(text, strlen(text));
    free(text);
}

static char *endpoint_of(const Trainyard__V1__S3Store *s3, const char *region) {
    return *s3->endpoint ? alloc_copy_text(s3->endpoint) : alloc_format("https://s3.%s.amazonaws.com", region);
}

static void link_add(Trainyard__V1__CheckpointLinks *out, struct arena *a, const struct store_link_keys *keys,
                     const char *directory, const char *file) {
    Trainyard__V1__CheckpointLinks__Link *link = arena_message(a, &trainyard__v1__checkpoint_links__link__descriptor);
    CLEANUP(freep) char *uri = alloc_format("%s/%s", directory, file);
    CLEANUP(freep) char *url = store_link(keys, uri);
    link->file = (char *)(uintptr_t)file;
    link->url = arena_printf(a, "%s", url);
    out->links[out->n_links++] = link;
}

static void links_fill(Trainyard__V1__CheckpointLinks *out, struct arena *a, const struct store_checkpoint *row,
                       const struct store_link_keys *keys) {
    out->endpoint = arena_printf(a, "%s", keys->endpoint);
    out->links = alloc_zeroed(2 * (size_t)row->shards + 1, sizeof *out->links);
    for (int rank = 0; rank < row->shards; rank++) {
        link_add(out, a, keys, row->directory, arena_printf(a, "rank-%d.safetensors", rank));
        link_add(out, a, keys, row->directory, arena_printf(a, "rank-%d.json", rank));
    }
    link_add(out, a, keys, row->directory, "manifest.json");
}

static void reply(struct rpc_call *call, const struct store_checkpoint *row, const struct store_keys *keys) {
    CLEANUP(arena_freep) struct arena *a = arena_new();
    Trainyard__V1__CheckpointLinks out = TRAINYARD__V1__CHECKPOINT_LINKS__INIT;
    const Trainyard__V1__S3Store *s3 = keys->spec->stores->s3;
    const char *region = s3->region && *s3->region ? s3->region : "us-east-1";
    CLEANUP(freep) char *endpoint = endpoint_of(s3, region);
    char *access_key = secret_text(&keys->clear, "s3.access_key");
    char *secret_key = secret_text(&keys->clear, "s3.secret_key");
    links_fill(&out, a, row,
               &(struct store_link_keys){ .endpoint = endpoint,
                                          .region = region,
                                          .access_key = access_key,
                                          .secret_key = secret_key,
                                          .now_s = clock_wall_us() / 1000000,
                                          .valid_s = VALID_S });
    secret_free(access_key);
    secret_free(secret_key);
    rpc_reply(call, &out.base);
    free(out.links);
}

status_t rpc_checkpoint_links(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    struct controller *c = service;
    const char *name = ((const Trainyard__V1__GetCheckpointLinksRequest *)request)->name;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_checkpoint row;
    struct store_keys keys;
    int64_t job, id;
    TRY(name_checkpoint(name, &job, &id, e));
    TRY(rpc_found(call, store_checkpoint_get(controller_store(c), m, job, id, &row, e), "CHECKPOINT_NOT_FOUND"));
    if (row.state != STORE_CHECKPOINT_COMMITTED || strncmp(row.directory, "s3://", 5) != 0)
        return err_set(e, ST_FAILED_PRECONDITION, "%s is not COMMITTED, or not in a store", name);
    status_t st = store_keys_of_job(controller_store(c), controller_keyring(c), job, &keys, e);
    if (st == ST_OK && (!keys.spec->stores || !keys.spec->stores->s3))
        st = err_set(e, ST_FAILED_PRECONDITION, "the spec of jobs/%lld names no store", (long long)job);
    if (st == ST_OK)
        reply(call, &row, &keys);
    store_keys_done(&keys);
    return st;
}

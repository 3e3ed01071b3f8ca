/* AuditService: the entries of the audit log. audit_log.c writes them. */
#include "service/store/audit.h"

#include "api/codec/timestamp.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/services.h"

#include <stdio.h>
#include <string.h>
#include <trainyard/v1/audit.pb-c.h>

static Trainyard__V1__AuditEntry *convert_entry(struct arena *a, const struct store_audit *row) {
    Trainyard__V1__AuditEntry *t = arena_message(a, &trainyard__v1__audit_entry__descriptor);
    t->time = convert_timestamp(a, row->time_us);
    t->caller = (char *)row->caller;
    t->address = (char *)row->address;
    t->certificate = (char *)row->certificate;
    t->method = (char *)row->method;
    t->object = (char *)row->object;
    t->request_id = (char *)row->request_id;
    t->result = (char *)row->result;
    t->message = (char *)row->message;
    t->unrecorded = row->unrecorded;
    return t;
}

/* The place where a page ends: the time and the number of its last entry. */
enum { PLACE = 2 };

static status_t read_page(const Trainyard__V1__ListAuditEntriesRequest *in, const char *filter,
                          struct store_audit_page *ret, struct err *e) {
    int64_t place[PLACE] = { 0 };
    *ret = (struct store_audit_page){ .caller = in->caller, .failed = in->failed };
    TRY(page_size(in->page_size, &ret->limit, e));
    if (*in->job)
        TRY(name_job(in->job, &ret->job, e));
    if (in->since && timestamp_to_us(in->since, &ret->since_us, e) != ST_OK)
        return err_prefix(e, ST_INVALID_ARGUMENT, "since: ");
    TRY(page_token_read_all(in->page_token, filter, place, PLACE, e));
    ret->time_us = place[0];
    ret->entry = place[1];
    return ST_OK;
}

static status_t list_entries(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListAuditEntriesRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_audit_page page;
    struct store_audit *rows;
    size_t n;
    char token[PAGE_TOKEN_BYTES];
    const char *filter = arena_printf(a, "%s\n%s\n%d\n%lld", in->caller, in->job, in->failed,
                                      in->since ? (long long)in->since->seconds : 0);
    TRY(read_page(in, filter, &page, e));
    TRY(store_audit_list(controller_store(service), m, &page, &rows, &n, e));
    Trainyard__V1__ListAuditEntriesResponse out = TRAINYARD__V1__LIST_AUDIT_ENTRIES_RESPONSE__INIT;
    out.entries = arena_alloc(a, n, sizeof *out.entries);
    out.n_entries = n;
    for (size_t i = 0; i < n; i++)
        out.entries[i] = convert_entry(a, &rows[i]);
    if (n == (size_t)page.limit) {
        page_token_write_all((int64_t[PLACE]){ rows[n - 1].time_us, rows[n - 1].entry }, PLACE, filter, token);
        out.next_page_token = token;
    }
    rpc_reply(call, &out.base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "ListAuditEntries", .kind = RPC_UNARY, .unary = list_entries },
};

const struct rpc_service rpc_audit_service = { &trainyard__v1__audit_service__descriptor, methods,
                                               sizeof methods / sizeof *methods };

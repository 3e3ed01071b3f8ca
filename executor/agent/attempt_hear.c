/* What a rank says. */
#include "base/clock.h"
#include "base/limits.h"
#include "executor/agent/attempt.h"
#include "executor/agent/child.h"
#include "executor/agent/report.h"

#include <stdlib.h>
#include <string.h>

void rank_moved(struct rank *r) { r->moved_ms = r->seen_ms = clock_mono_ms(); }

static void rank_address(struct rank *r, const ProtobufCBinaryData *address) {
    if (address->len > LIMIT_RENDEZVOUS_BYTES) {
        child_end(r->child, 0, 0, "offered an address that is too long and was killed");
        return;
    }
    uint8_t *copy = malloc(address->len + 1);
    if (!copy) {
        child_end(r->child, 0, 0, "was killed: its executor has no memory for its address");
        return;
    }
    if (address->len)
        memcpy(copy, address->data, address->len);
    free(r->address.data);
    r->address = (ProtobufCBinaryData){ .data = copy, .len = address->len };
    rank_tell_offer(r);
}

void rank_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct rank *r = ctx;
    r->seen_ms = clock_mono_ms(); /* of whatever it says: its sign of life waits behind its records */
    switch (record->record_case) {
    case TRAINYARD__V1__WORKER_RECORD__RECORD_ADDRESS:
        rank_moved(r);
        rank_address(r, &record->address->address);
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_JOINED:
        rank_moved(r);
        message_free(r->joined);
        r->joined = message_copy(&record->joined->base);
        if (r->joined)
            rank_tell_ready(r);
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_ALIVE:
        if (record->alive->progress != r->progress || record->alive->waiting_for_spool)
            rank_moved(r);
        r->progress = record->alive->progress;
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_END:
        message_free(r->word);
        r->word = message_copy(&record->end->base);
        break;
    default: break;
    }
}

void rank_spooled(void *ctx, bool urgent) {
    struct rank *r = ctx;
    report_wake(r->attempt->owner->agent->report, urgent);
}

#include "service/store/report_split.h"

#include <stdio.h>

enum { DROPPED_TEXT = 512 };

bool report_refused(status_t st) {
    switch (st) {
    case ST_OK:
    case ST_UNAVAILABLE:
    case ST_DEADLINE_EXCEEDED:
    case ST_ABORTED:
    case ST_CANCELLED:
    case ST_RESOURCE_EXHAUSTED: return false; /* a full disk has nothing to do with a record */
    default: return true;
    }
}

static status_t write_record(struct store_report *r, report_write_fn *write, const struct store_batch *b, size_t at,
                             struct store_batch_result *ret, struct err *e) {
    struct store_batch one = *b;
    one.records += at;
    one.first_sequence += (int64_t)at;
    if (at > 0)
        one.lost = 0;
    one.n = 1;
    struct err why = { "" };
    status_t st = write(r, &one, 1, ret, &why);
    if (!report_refused(st))
        return st == ST_OK ? ST_OK : err_set(e, st, "%s", why.msg);
    char text[DROPPED_TEXT];
    snprintf(text, sizeof text, "record %lld of rank %d was dropped: %s", (long long)one.first_sequence, b->rank,
             why.msg);
    struct store_record dropped = { .kind = STORE_RECORD_NOTICE,
                                    .time_us = one.records->time_us,
                                    .notice = { .kind = "records_dropped", .message = text } };
    one.records = &dropped;
    return write(r, &one, 1, ret, e);
}

static void add_result(struct store_batch_result *sum, const struct store_batch_result *one) {
    sum->fenced = one->fenced;
    sum->gap = one->gap;
    sum->sequence = one->sequence;
    sum->lost += one->lost;
    sum->last_event = one->last_event;
    if (one->step > sum->step)
        sum->step = one->step;
    for (int i = 0; i < one->n_committed && sum->n_committed < STORE_COMMITTED_PER_BATCH; i++)
        sum->committed[sum->n_committed++] = one->committed[i];
}

static status_t write_records(struct store_report *r, report_write_fn *write, const struct store_batch *b,
                              struct store_batch_result *ret, struct err *e) {
    *ret = (struct store_batch_result){ 0 };
    for (size_t at = 0; at < b->n; at++) {
        struct store_batch_result one = { 0 };
        TRY(write_record(r, write, b, at, &one, e));
        add_result(ret, &one);
        if (one.fenced || one.gap)
            break;
    }
    return ST_OK;
}

status_t report_write_split(struct store_report *r, report_write_fn *write, const struct store_batch *batches, size_t n,
                            struct store_batch_result *results, struct err *e) {
    for (size_t i = 0; i < n; i++) {
        status_t st = write(r, &batches[i], 1, &results[i], e);
        if (report_refused(st) && batches[i].n > 0)
            st = write_records(r, write, &batches[i], &results[i], e);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

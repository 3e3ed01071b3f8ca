/* A packed ReportBatch as the store wants it. Private to the ingest. */
#ifndef SERVICE_CONTROLLER_INGEST_DECODE_H
#define SERVICE_CONTROLLER_INGEST_DECODE_H

#include "base/status.h"
#include "service/store/report.h"

#include <trainyard/v1/dispatch.pb-c.h>

/* One batch while it is being written: its records point into the message. */
struct decoded {
    Trainyard__V1__ReportBatch *message;
    struct store_record *records;
};

/* DATA_LOSS for bytes that are no batch. On success done must follow. */
MUST_CHECK status_t ingest_decode(const void *packed, size_t n, struct decoded *ret, struct store_batch *ret_batch,
                                  struct err *e);
void ingest_decoded_done(struct decoded *d);

#endif

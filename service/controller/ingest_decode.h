/* Decodes the records of a report batch for the store. Private to the ingest. */
#ifndef SERVICE_CONTROLLER_INGEST_DECODE_H
#define SERVICE_CONTROLLER_INGEST_DECODE_H

#include "base/status.h"
#include "service/store/report.h"

#include <trainyard/v1/dispatch.pb-c.h>

/* The decoded records of a batch. `records` points into the messages. */
struct decoded {
    Trainyard__V1__WorkerRecord **messages; /* [n] */
    size_t n;
    struct store_record *records; /* [n]; NULL: nothing is decoded */
};

/* Decodes each record of the batch, which wire_check has passed (service/rpc/dispatch.c). *ret_batch borrows the batch
 * and *ret. On success the caller calls ingest_decoded_done. INVALID_ARGUMENT: a record cannot be decoded. */
MUST_CHECK status_t ingest_decode(const Trainyard__V1__ReportBatch *batch, struct decoded *ret,
                                  struct store_batch *ret_batch, struct err *e);
void ingest_decoded_done(struct decoded *d);

#endif

/* A request to a host to read a checkpoint, for a sample or a verification. */
#ifndef SERVICE_RPC_SAMPLE_REQUEST_H
#define SERVICE_RPC_SAMPLE_REQUEST_H

#include "service/controller/controller.h"
#include "service/controller/store_keys.h"
#include "service/store/checkpoint.h"

/* Sets the directory; for a checkpoint in a store also the spec of its job and the keys of that store, which
 * store_keys_done overwrites, also after an error. Borrows from the row and from the keys. */
MUST_CHECK status_t sample_request_set(struct controller *c, const struct store_checkpoint *row,
                                       struct store_keys *keys, Trainyard__V1__WorkerSample *ret, struct err *e);

#endif

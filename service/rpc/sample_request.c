#include "service/rpc/sample_request.h"

#include <string.h>

status_t sample_request_set(struct controller *c, const struct store_checkpoint *row, struct store_keys *keys,
                            Trainyard__V1__WorkerSample *ret, struct err *e) {
    *keys = (struct store_keys){ .clear = TRAINYARD__V1__ATTEMPT_START__INIT };
    ret->directory = (char *)(uintptr_t)row->directory;
    if (strncmp(row->directory, "s3://", 5) != 0)
        return ST_OK;
    TRY(store_keys_of_job(controller_store(c), controller_keyring(c), row->job, keys, e));
    ret->spec = keys->spec;
    ret->secrets = keys->clear.secrets;
    ret->n_secrets = keys->clear.n_secrets;
    return ST_OK;
}

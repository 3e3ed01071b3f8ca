#include "service/rpc/convert_checkpoint.h"

#include "service/rpc/convert_job.h"
#include "service/rpc/convert_state.h"

Trainyard__V1__Checkpoint *convert_checkpoint(struct arena *a, const struct store_checkpoint *row) {
    Trainyard__V1__Checkpoint *k = arena_message(a, &trainyard__v1__checkpoint__descriptor);
    k->name = arena_printf(a, "jobs/%lld/checkpoints/%lld", (long long)row->job, (long long)row->id);
    k->attempt = row->attempt;
    k->step = row->step;
    k->state = convert_checkpoint_state(row->state);
    k->bytes = row->bytes;
    k->shards = row->shards;
    k->directory = (char *)row->directory;
    k->weights_sha256 = (char *)row->weights_sha256;
    k->create_time = convert_timestamp(a, row->create_time_us);
    k->commit_time = convert_timestamp(a, row->commit_time_us);
    k->unreadable_time = convert_timestamp(a, row->unreadable_time_us);
    k->pinned = row->pinned;
    k->reason = (char *)row->reason;
    if (row->has_validation_loss) {
        k->_validation_loss_case = TRAINYARD__V1__CHECKPOINT___VALIDATION_LOSS_VALIDATION_LOSS;
        k->validation_loss = row->validation_loss;
    }
    return k;
}

/* Hosts whose agent lacks a feature that a job needs: agents of an older release. The job gets no ranks there until the
 * agent is upgraded, which attaches again. Usually no executor lacks anything, and then nothing is walked. */
#include "service/scheduler/state.h"

uint32_t job_lacks(const struct job *job, const struct executor *ex) { return job->needs & ~ex->features; }

void job_capacity_without_lacking(const struct scheduler *s, const struct job *job, struct capacity *capacity) {
    if ((job->needs & ~capacity->features) == 0)
        return;
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        const bool gang_only = job->world_size > 1 && job->slot == SCHEDULER_SLOT_CUDA && ex->single_rank;
        if (!job_lacks(job, ex))
            continue;
        if (executor_detachment(ex) == SCHEDULER_DETACHED_STREAM_ENDED && !ex->drained && !gang_only &&
            !job_avoids(job, ex)) /* else it is subtracted already */
            capacity->detached -= ex->slots[job->slot];
        if (executor_availability_for(ex, job) != SCHEDULER_HOST_LACKS)
            continue;
        capacity->free -= executor_free(ex, job->slot, job->world_size);
        capacity->slots -= ex->slots[job->slot];
        capacity->lacking += ex->slots[job->slot];
        capacity->lacking_at = capacity->lacking_at ? capacity->lacking_at : ex;
    }
}

/* What a rank's process needs of its host beside the arena, before it is allocated: from its plan, the configuration,
 * the data and the kernels. And what the process has used in the end.
 *
 *     struct host_memory_facts facts = host_memory_facts_of(config, kernels, data_bytes);
 *     const struct host_memory_rule rule = host_memory_rule_of(&facts);
 *
 * The figures are those of the largest moment of a run: a checkpoint is being written while the rank trains, and an
 * evaluation has its batch. Snapshot, data and batches are exact; kernels, communication, plans and program are
 * estimates with constants that were measured (tests/host_memory.py compares the sum with processes). */
#ifndef ENGINE_RUN_HOST_MEMORY_H
#define ENGINE_RUN_HOST_MEMORY_H

#include "base/status.h"
#include "engine/plan/host_memory.h"
#include "engine/run/engine_config.h"

#include <stdint.h>

struct kernels;
struct plan;

struct host_memory_facts {
    const struct kernels *kernels; /* borrowed; for the memory of their calls */
    size_t data_bytes, program_bytes, opening_bytes;
    int threads;
    int workers, ahead; /* of the loader: given threads, and batches that are made ahead */
    bool checkpoints;   /* snapshots are taken */
    bool device;        /* the arena is the memory of a device, not of the host */
    bool own;           /* of the plan's rank; false: of the data rank of its stage that needs most */
};

struct host_memory_facts host_memory_facts_of(const struct engine_config *config, const struct kernels *kernels,
                                              size_t data_bytes);
/* For the fullest data rank of a plan's stage. facts: borrowed as long as the rule is used. */
struct host_memory_rule host_memory_rule_of(const struct host_memory_facts *facts);

/* For the plan's rank itself. rule: one of these. */
void host_memory_of_rank(const struct host_memory_rule *rule, const struct plan *plan, struct host_memory *ret);

/* Memory that a plan occupies, in bytes. */
size_t host_memory_of_plan(const struct plan *plan);

/* Of this process: the largest that it had resident, and how the pages that it has now are backed. */
struct host_memory_used {
    int64_t peak_bytes, anonymous_bytes, file_bytes;
};
MUST_CHECK status_t host_memory_measure(struct host_memory_used *ret, struct err *e);

#endif

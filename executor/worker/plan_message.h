/* What `trainyard-train plan` says, as the message Plan (plan.proto), and as a table made from that message alone. */
#ifndef EXECUTOR_WORKER_PLAN_MESSAGE_H
#define EXECUTOR_WORKER_PLAN_MESSAGE_H

#include "base/bytes.h"
#include "executor/engine/plan/report.h"
#include "executor/engine/run/engine.h"

#include <trainyard/v1/plan.pb-c.h>

struct plan_facts {
    const struct plan_report *report;
    const struct engine_config *config;
    const struct plan_profile *profile;
    const char *note; /* what --ranks changed; "" */
    size_t memory_bytes;
    int largest_micro_batch;
    int tokens_per_sample; /* 0: the model reads none */
};

/* RESOURCE_EXHAUSTED. */
MUST_CHECK status_t plan_message_make(const struct plan_facts *facts, Trainyard__V1__Plan **ret, struct err *e);
Trainyard__V1__Plan *plan_message_free(Trainyard__V1__Plan *plan);
CLEANUP_DEFINE(Trainyard__V1__Plan *, plan_message_free)
MUST_CHECK status_t plan_message_table(const Trainyard__V1__Plan *plan, struct bytes *ret, struct err *e);

#endif

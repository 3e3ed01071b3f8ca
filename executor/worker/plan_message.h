/* The output of `trainyard-train plan`: the message Plan (plan.proto), and a table made from that message alone. */
#ifndef EXECUTOR_WORKER_PLAN_MESSAGE_H
#define EXECUTOR_WORKER_PLAN_MESSAGE_H

#include "base/bytes.h"
#include "engine/plan/cost/bucket_choice.h"
#include "engine/plan/cost/plan_report.h"
#include "engine/run/engine.h"

#include <trainyard/v1/plan.pb-c.h>

/* A plan with more spans has none: the message is part of a record. */
#define PLAN_MESSAGE_SPANS_MAX 2048

struct plan_facts {
    const struct plan_report *report;
    const struct engine_config *config;
    const struct plan_profile *profile;
    const char *note; /* what --ranks changed; "" */
    struct bucket_choice buckets;
    size_t memory_bytes;
    int largest_micro_batch;
    bool larger_exceeds_memory;
    int tokens_per_sample; /* 0: the model reads none */
};

Trainyard__V1__Plan *plan_message_make(const struct plan_facts *facts);
MUST_CHECK status_t plan_message_table(const Trainyard__V1__Plan *plan, struct bytes *ret, struct err *e);

#endif

#include "service/store/report_seconds.h"

#include <string.h>

/* 31 years: no interval and no sum is longer, so that sums over ranks and attempts do not overflow. */
#define MAX_US INT64_C(1000000000000000)

static void add(int64_t *sum, int64_t us) { *sum = *sum < MAX_US - us ? *sum + us : MAX_US; }

/* The interval that ends now; the next one begins. */
static int64_t interval_end(struct rank_time *t, int64_t now_us) {
    int64_t us;
    if (__builtin_sub_overflow(now_us, t->until_us, &us) || us < 0)
        us = 0;
    t->until_us = now_us;
    return us < MAX_US ? us : MAX_US;
}

static void start_end(struct rank_time *t, int64_t now_us) { t->begun_us = t->until_us = now_us; }

static const double *value_of(const struct store_record *record, const char *name) {
    for (size_t i = 0; i < record->metrics.n; i++)
        if (strcmp(record->metrics.names[i], name) == 0)
            return &record->metrics.values[i];
    return NULL;
}

/* Moves the seconds of a metric from the rest of an interval to a sum. */
static void part_add(int64_t *sum, int64_t *rest_us, const double *seconds) {
    int64_t us = 0;
    if (seconds && *seconds > 0)
        us = *seconds * 1e6 < (double)*rest_us ? (int64_t)(*seconds * 1e6 + 0.5) : *rest_us;
    *rest_us -= us;
    add(sum, us);
}

static void step_add(struct rank_time *t, bool of_program, int64_t repeats_until, const struct store_record *record) {
    const double *data = value_of(record, "data_wait_seconds");
    if (of_program ? record->metrics.per_rank : !(record->metrics.per_rank && data))
        return; /* the other rows are samples of devices, and rank 0's row for the whole gang of a model */
    if (t->begun_us == 0) {
        start_end(t, record->time_us);
        return;
    }
    int64_t rest = interval_end(t, record->time_us);
    if (record->metrics.step <= repeats_until) {
        add(&t->repeated_us, rest);
        return;
    }
    if (!of_program) {
        part_add(&t->checkpoint_us, &rest, value_of(record, "checkpoint_stall_seconds"));
        part_add(&t->data_us, &rest, data);
        part_add(&t->waiting_us, &rest, value_of(record, "communication_wait_seconds"));
    }
    add(&t->compute_us, rest);
}

void report_seconds_add(struct rank_time *t, bool of_program, int64_t repeats_until,
                        const struct store_record *record) {
    switch (record->kind) {
    case STORE_RECORD_JOINED:
        t->joined_us = record->time_us;
        if (!of_program && t->begun_us == 0)
            start_end(t, record->time_us);
        break;
    case STORE_RECORD_METRICS: step_add(t, of_program, repeats_until, record); break;
    case STORE_RECORD_END:
        if (t->begun_us != 0)
            add(!of_program && record->end.as_asked ? &t->checkpoint_us : &t->compute_us,
                interval_end(t, record->time_us));
        break;
    default: break;
    }
}

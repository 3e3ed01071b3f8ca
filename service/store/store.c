#include "service/store/store.h"

#include "service/store/pool.h"
#include "service/store/schema.h"
#include "service/store/state.h"

static const struct sql PING = { "ping", "SELECT 1" };

const char *store_job_state_name(int state) {
    static const char *const names[] = { "UNKNOWN", "QUEUED", "STARTING",   "RUNNING",   "RESTARTING", "PREEMPTING",
                                         "PAUSING", "PAUSED", "CANCELLING", "SUCCEEDED", "FAILED",     "CANCELLED" };
    return names[state >= 1 && state <= STORE_JOB_CANCELLED ? state : 0];
}

const char *store_sweep_state_name(int state) {
    static const char *const names[] = { "UNKNOWN", "RUNNING", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED" };
    return names[state >= 1 && state <= STORE_SWEEP_CANCELLED ? state : 0];
}

status_t store_open(const struct store_options *options, struct store **ret, struct err *e) {
    CLEANUP(store_closep) struct store *s = store_new(options);
    TRY(STORE_READ(s, c, schema_check(c, e), e));
    *ret = take_ptr(&s);
    return ST_OK;
}

status_t store_ping(struct store *s, struct err *e) {
    return STORE_READ(s, c, sql_execute(c, &PING, NULL, NULL, e), e);
}

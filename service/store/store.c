#include "service/store/store.h"

#include "service/store/migrate.h"
#include "service/store/pool.h"
#include "service/store/schema.h"
#include "service/store/state.h"

static const struct sql PING = { "ping", "SELECT 1" };

const char *store_job_state_name(int state) {
    static const char *const names[] = { "UNKNOWN", "QUEUED", "STARTING",   "RUNNING",   "RESTARTING", "PREEMPTING",
                                         "PAUSING", "PAUSED", "CANCELLING", "SUCCEEDED", "FAILED",     "CANCELLED" };
    return names[state >= 1 && state <= STORE_JOB_CANCELLED ? state : 0];
}

static status_t check_schema(struct connection *c, struct err *e) {
    int found = 0, wanted = store_schema_version();
    TRY(schema_version(c, &found, e));
    if (found < wanted)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the database has schema %d and this program needs %d: run `trainyard-controller migrate`",
                       found, wanted);
    if (found > wanted)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the database has schema %d, newer than this program's %d: use a newer program", found, wanted);
    return ST_OK;
}

status_t store_open(const struct store_options *options, struct store **ret, struct err *e) {
    CLEANUP(store_closep) struct store *s = store_new(options);
    TRY(STORE_READ(s, c, check_schema(c, e), e));
    *ret = take_ptr(&s);
    return ST_OK;
}

status_t store_ping(struct store *s, struct err *e) {
    return STORE_READ(s, c, sql_execute(c, &PING, NULL, NULL, e), e);
}

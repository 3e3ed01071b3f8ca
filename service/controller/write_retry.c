#include "base/log.h"
#include "service/controller/state.h"

#define WRITE_FIRST_PAUSE_MS 50
#define WRITE_MAX_PAUSE_MS   1000
/* A write that waits is logged at the first try, at this one, and each time that their number has doubled since. */
#define WRITE_LOG_TRIES 32

static bool is_logged(int tries) { return tries == 1 || (tries >= WRITE_LOG_TRIES && (tries & (tries - 1)) == 0); }

enum write_result write_retry(struct controller *c, status_t st, const struct err *e, int *tries) {
    if (st == ST_OK)
        return WRITE_DONE;
    ++*tries;
    /* Errors that may pass, such as an unreachable PostgreSQL: the write is repeated. */
    bool unreachable = st == ST_UNAVAILABLE || st == ST_DEADLINE_EXCEEDED || st == ST_RESOURCE_EXHAUSTED ||
                       st == ST_ABORTED;
    if (st == ST_FAILED_PRECONDITION) {
        /* The epoch may be over because PostgreSQL restarted and dropped the lock's connection. */
        int64_t before = c->own_epoch;
        if (leadership_keep(c) && c->own_epoch == before)
            return WRITE_REFUSED;
    } else if (!unreachable) {
        return WRITE_REFUSED;
    } else if (is_logged(*tries)) {
        log_event(LOG_WARN, "database_write_waits", "reason", LOG_STR(e->msg), "tries", LOG_INT(*tries), NULL);
    }
    if (leadership_over(c))
        return WRITE_REFUSED;
    int64_t pause = WRITE_FIRST_PAUSE_MS;
    for (int i = 1; i < *tries && pause < WRITE_MAX_PAUSE_MS; i++)
        pause *= 2;
    leadership_pause(c, pause < WRITE_MAX_PAUSE_MS ? pause : WRITE_MAX_PAUSE_MS);
    if (unreachable)
        leadership_keep(c);
    return leadership_over(c) ? WRITE_REFUSED : WRITE_AGAIN;
}

#include "base/log.h"
#include "service/controller/state.h"

#define WRITE_FIRST_PAUSE_MS 50
#define WRITE_MOST_PAUSE_MS  1000

enum write_after write_judge(struct controller *c, status_t st, const struct err *e, int *tries) {
    if (st == ST_OK)
        return WRITE_DONE;
    ++*tries;
    bool away = st == ST_UNAVAILABLE || st == ST_DEADLINE_EXCEEDED || st == ST_RESOURCE_EXHAUSTED || st == ST_ABORTED;
    if (st == ST_FAILED_PRECONDITION) {
        /* The epoch may be over because PostgreSQL restarted and dropped the lock's connection. */
        int64_t before = c->own_epoch;
        if (lead_keep(c) && c->own_epoch == before)
            return WRITE_REFUSED;
    } else if (!away) {
        return WRITE_REFUSED;
    } else if (*tries == 1) {
        log_event(LOG_WARN, "database_write_waits", "reason", LOG_STR(e->msg), NULL);
    }
    if (lead_over(c))
        return WRITE_REFUSED;
    int64_t pause = WRITE_FIRST_PAUSE_MS;
    for (int i = 1; i < *tries && pause < WRITE_MOST_PAUSE_MS; i++)
        pause *= 2;
    lead_pause(c, pause < WRITE_MOST_PAUSE_MS ? pause : WRITE_MOST_PAUSE_MS);
    if (away)
        lead_keep(c);
    return lead_over(c) ? WRITE_REFUSED : WRITE_AGAIN;
}

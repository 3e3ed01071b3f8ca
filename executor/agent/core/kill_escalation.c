#include "executor/agent/core/kill_escalation.h"

#include <signal.h>
#include <stdio.h>

static void earlier(int64_t *at_ms, int64_t ms) {
    if (*at_ms == 0 || ms < *at_ms)
        *at_ms = ms;
}

void kill_escalation_request(struct kill_escalation *k, int64_t now_ms, int64_t term_ms, int64_t kill_ms,
                             const char *reason) {
    if (reason && !*k->reason)
        snprintf(k->reason, sizeof k->reason, "%s", reason);
    earlier(&k->kill_at_ms, now_ms + kill_ms);
    /* A KILL at once leaves no time for a TERM. */
    if (kill_ms > 0)
        earlier(&k->term_at_ms, now_ms + term_ms);
}

int kill_escalation_due(struct kill_escalation *k, int64_t now_ms) {
    if (k->kill_at_ms && now_ms >= k->kill_at_ms) {
        k->kill_at_ms = k->term_at_ms = 0;
        k->killed = true;
        return SIGKILL;
    }
    if (k->term_at_ms && now_ms >= k->term_at_ms) {
        k->term_at_ms = 0;
        return SIGTERM;
    }
    return 0;
}

int64_t kill_escalation_deadline_ms(const struct kill_escalation *k) {
    if (k->term_at_ms)
        return k->term_at_ms < k->kill_at_ms ? k->term_at_ms : k->kill_at_ms;
    return k->kill_at_ms ? k->kill_at_ms : INT64_MAX;
}

const char *kill_escalation_reason(const struct kill_escalation *k) {
    return k->killed && *k->reason ? k->reason : NULL;
}

/* How a process is ended: TERM at one time, KILL at a later one. Pure.
 *
 * The end of one process may be requested several times, each time with its own reason and times. The earliest time of
 * each signal counts, and the first reason is reported. */
#ifndef EXECUTOR_AGENT_CORE_KILL_ESCALATION_H
#define EXECUTOR_AGENT_CORE_KILL_ESCALATION_H

#include <stdbool.h>
#include <stdint.h>

/* From TERM to KILL: enough for a worker to leave the write of a checkpoint. */
enum { KILL_ESCALATION_MS = 2000 };

struct kill_escalation {            /* all zeros: nothing was requested */
    int64_t term_at_ms, kill_at_ms; /* 0: no such signal is due */
    bool killed;                    /* KILL was sent */
    char reason[120];
};

/* Asks for TERM in term_ms and for KILL in kill_ms; 0 is now. A kill_ms of 0 sends no TERM. reason completes "rank 1:
 * ...", e.g. "made no progress for 32 s and was killed"; NULL: the end needs no explanation. */
void kill_escalation_request(struct kill_escalation *k, int64_t now_ms, int64_t term_ms, int64_t kill_ms,
                             const char *reason);

/* The signal to send now: SIGKILL, SIGTERM or 0. Returns each signal once per due time. */
int kill_escalation_due(struct kill_escalation *k, int64_t now_ms);

/* The time of the next signal; INT64_MAX if none is due. */
int64_t kill_escalation_deadline_ms(const struct kill_escalation *k);

/* The first reason if KILL was sent, else NULL. */
const char *kill_escalation_reason(const struct kill_escalation *k);

#endif

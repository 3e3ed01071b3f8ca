/* The messages by which a program tells the supervisor that started it how it is: sd_notify(3) of systemd, which other
 * supervisors speak, too. The supervisor names its socket in $NOTIFY_SOCKET. Without one, nothing is sent.
 *
 * A watchdog: the supervisor kills the program if it is silent for $WATCHDOG_USEC. supervisor_watch sends a sign of
 * life only if the program's work has gone on since the last one. One thread uses it. */
#ifndef BASE_SUPERVISOR_H
#define BASE_SUPERVISOR_H

#include "base/cleanup.h"
#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

struct supervisor {
    int fd;             /* -1: no socket */
    int64_t every_ms;   /* 0: no watchdog; else a third of the time after which it bites */
    deadline_ms_t next; /* of a sign of life */
    int64_t beats;      /* as of the last one; -1: none yet */
};

/* Reads the environment and removes the variables from it, so that no child takes them for its own. Call it before
 * another thread starts. */
void supervisor_init(struct supervisor *s);
void supervisor_done(struct supervisor *s);

/* Sends one message, such as "READY=1". A message that the socket does not take at once is dropped. */
void supervisor_notify(const struct supervisor *s, const char *message);

/* Call it often. beats: a number that grows as the work goes on. */
void supervisor_watch(struct supervisor *s, int64_t beats, int64_t now_ms);

#endif

/* Work beside the loop: a thread that looks when it is asked to, when this controller begins to lead, every so often,
 * and again soon after a look that left something undone; never while it does not lead. Thread-safe. */
#ifndef SERVICE_CONTROLLER_CHORE_H
#define SERVICE_CONTROLLER_CHORE_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct chore;
/* A second, and twice as long after each further look that leaves something undone, up to the period. */
#define CHORE_AGAIN_MS 1000

/* all: a lead has begun, the period is over, or the look before left something undone; else somebody asked. Between its
 * parts it asks chore_goes_on. False: something is undone, since the database or a folder is away. */
typedef bool chore_look_t(struct chore *chore, void *ctx, int64_t epoch, bool all);

/* what: for the sentence when it cannot be opened. The first look comes after chore_lead. */
MUST_CHECK status_t chore_open(const char *what, int64_t period_ms, chore_look_t *look, void *ctx, struct chore **ret,
                               struct err *e);
/* Waits until a look that runs has noticed. */
struct chore *chore_close(struct chore *chore);
CLEANUP_DEFINE(struct chore *, chore_close)

void chore_lead(struct chore *chore, int64_t epoch); /* 0: leads no more */
void chore_ask(struct chore *chore);

/* The look of this epoch should go on: false once another epoch has begun, or the chore is being closed. */
bool chore_goes_on(struct chore *chore, int64_t epoch);

#endif

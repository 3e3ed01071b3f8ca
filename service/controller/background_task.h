/* A periodic task of the leading controller, on a thread of its own. It runs a pass when it is woken, when this
 * controller begins to lead, once per period, and soon after a pass that left something undone. It never runs while
 * this controller does not lead. Thread-safe. */
#ifndef SERVICE_CONTROLLER_BACKGROUND_TASK_H
#define SERVICE_CONTROLLER_BACKGROUND_TASK_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct background_task;
/* The pause after a pass that left something undone. It doubles after each further such pass, up to the period. */
#define BACKGROUND_TASK_RETRY_MS 1000

/* One pass. all: everything is due, because leadership has begun, the period is over or the last pass left something
 * undone; else the task was woken. A pass calls background_task_continues between its steps. Returns false if something
 * is undone, because the database or a folder is unreachable. */
typedef bool background_task_fn(struct background_task *background_task, void *ctx, int64_t epoch, bool all);

/* what: names the task in error messages. The first pass follows background_task_lead. */
MUST_CHECK status_t background_task_open(const char *what, int64_t period_ms, background_task_fn *pass, void *ctx,
                                         struct background_task **ret, struct err *e);
/* Waits until a running pass has ended. */
struct background_task *background_task_close(struct background_task *background_task);
CLEANUP_DEFINE(struct background_task *, background_task_close)

void background_task_lead(struct background_task *background_task, int64_t epoch); /* 0: no longer leads */
void background_task_wake(struct background_task *background_task);

/* False once another epoch has begun, or the task is being closed: the pass should end. */
bool background_task_continues(struct background_task *background_task, int64_t epoch);

#endif

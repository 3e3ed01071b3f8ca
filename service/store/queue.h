/* Queues: their settings, and their jobs that have not ended. A queue has a row if it was created; a job may also name
 * a queue without a row, which has the default settings. */
#ifndef SERVICE_STORE_QUEUE_H
#define SERVICE_STORE_QUEUE_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STORE_SLOT_CPU, STORE_SLOT_CUDA, STORE_SLOT_KINDS };

enum { STORE_MAX_QUEUES = 1000, STORE_QUEUE_MAX_PRIORITY = 1000000, STORE_QUEUE_NO_LIMIT = -1 };

/* The settings of a queue. The limits are slots, or STORE_QUEUE_NO_LIMIT. */
struct store_queue_settings {
    const char *cohort; /* "": none */
    int weight, max_priority;
    int quota[STORE_SLOT_KINDS], borrow[STORE_SLOT_KINDS], lend[STORE_SLOT_KINDS], user[STORE_SLOT_KINDS];
};
#define STORE_QUEUE_DEFAULTS                                                                                           \
    ((struct store_queue_settings){ .cohort = "",                                                                      \
                                    .weight = 1,                                                                       \
                                    .max_priority = STORE_QUEUE_MAX_PRIORITY,                                          \
                                    .quota = { -1, -1 },                                                               \
                                    .borrow = { -1, -1 },                                                              \
                                    .lend = { -1, -1 },                                                                \
                                    .user = { -1, -1 } })

struct store_queue_row {
    const char *name;
    struct store_queue_settings settings;
    double average[STORE_SLOT_KINDS]; /* the mean of the slots that it used, in which older use counts less, ... */
    int64_t average_age_ms;           /* so long ago, by the clock of the database */
};
/* ALREADY_EXISTS; RESOURCE_EXHAUSTED: there are STORE_MAX_QUEUES. */
MUST_CHECK status_t store_queue_create(struct store *s, int64_t epoch, const char *name,
                                       const struct store_queue_settings *settings, struct err *e);
/* Changes the settings: `change` gets those of the row, which is locked meanwhile, so that two calls do not undo each
 * other. It may run again after a lost connection; if it fails, the row stays. NOT_FOUND, as of the two functions
 * below. */
typedef status_t store_queue_change(const void *ctx, struct store_queue_settings *settings, struct err *e);
MUST_CHECK status_t store_queue_set(struct store *s, int64_t epoch, const char *name, store_queue_change *change,
                                    const void *ctx, struct err *e);
/* FAILED_PRECONDITION: jobs that have not ended name it. */
MUST_CHECK status_t store_queue_delete(struct store *s, int64_t epoch, const char *name, struct err *e);
MUST_CHECK status_t store_queue_get(struct store *s, struct store_memory *m, const char *name,
                                    struct store_queue_row *ret, struct err *e);
/* All rows, by name. */
MUST_CHECK status_t store_queue_all(struct store *s, struct store_memory *m, struct store_queue_row **ret,
                                    size_t *ret_n, struct err *e);
/* Stores what the queues used until now; names without a row are ignored. */
MUST_CHECK status_t store_queue_averages(struct store *s, int64_t epoch, const char *const *names, const double *cpu,
                                         const double *cuda, size_t n, struct err *e);

struct store_queue {
    const char *name;
    bool created; /* it has a row; else its settings are the defaults */
    struct store_queue_settings settings;
    double average[STORE_SLOT_KINDS]; /* as of its last update */
    int64_t waiting, running, paused; /* QUEUED; neither QUEUED nor PAUSED; PAUSED */
    int64_t used[STORE_SLOT_KINDS];   /* slots of ranks that have not ended, as store_executor_list counts them */
    int64_t wanted[STORE_SLOT_KINDS]; /* slots of QUEUED jobs */
    int64_t oldest, oldest_time_us;   /* the QUEUED job with the lowest id, and its create_time; 0: none */
};
/* The queues with a row or with jobs that have not ended, by name, those after `after` (NULL or "": from the first). */
MUST_CHECK status_t store_queue_list(struct store *s, struct store_memory *m, const char *after, int limit,
                                     struct store_queue **ret, size_t *ret_n, struct err *e);

#endif

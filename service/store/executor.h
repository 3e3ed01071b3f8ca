/* Executors, as their agents last described them. Leases are in the leader's memory; the time of the last heartbeat is
 * written from time to time, for users. */
#ifndef SERVICE_STORE_EXECUTOR_H
#define SERVICE_STORE_EXECUTOR_H

#include "service/store/state.h"
#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

struct store_device {
    const char *kind; /* cpu | cuda */
    int index;
    const char *model;
    int64_t memory_bytes;
    const char *uuid, *pci_bus_id;
    bool quarantined;
    const char *reason; /* if quarantined */
    const char *links;  /* one word for each device of the host, separated by spaces */
};
struct store_executor {
    const char *id;
    int64_t incarnation;
    enum store_executor_state state;
    const char *hostname, *address, *version;
    int slots;
    int cores;      /* of the host, shared by its ranks; 0: unknown */
    int slots_used; /* read only: open ranks of attempts that have not ended */
    const char *reason;
    int64_t attach_time_us, heartbeat_time_us; /* read only */
    /* Read only: a user drains it, so that it gets no new ranks. */
    int64_t drain_time_us; /* 0: not drained, and the rest is empty */
    const char *drain_reason, *drain_requester;
    bool drain_now; /* its ranks are preempted, too */
    /* Read only: since when it gets no new ranks because its stream has ended or its agent was asked to stop; 0: it is
     * attached, or lost. */
    int64_t detach_time_us;
    bool leaving; /* its agent was asked to stop */
    /* Read only: it has failed jobs (host_fault.h) and has run none since. */
    int64_t fault_time_us; /* of the last fault; 0: none, and the rest is empty */
    int64_t fault_job;
    int fault_jobs; /* how many different jobs in a row */
    const char *fault_reason;
    const struct store_device *devices;
    size_t n_devices;
    const char *token; /* store_executor_attach: the token with which it attaches; NULL or "": none */
};

/* Inserts or replaces the rows as ATTACHED now, in their order, in one transaction. FAILED_PRECONDITION, with nothing
 * written, if a newer incarnation of one has attached. PERMISSION_DENIED likewise, if the token of one may not speak
 * for it (token.h). */
MUST_CHECK status_t store_executor_attach(struct store *s, int64_t epoch, const struct store_executor *executors,
                                          size_t n, struct err *e);
/* Replaces the devices of an executor, after one was quarantined or released. FAILED_PRECONDITION if a newer
 * incarnation has attached, NOT_FOUND if the executor has never attached. */
MUST_CHECK status_t store_executor_devices(struct store *s, int64_t epoch, const char *id, int64_t incarnation,
                                           const struct store_device *devices, size_t n, struct err *e);
/* Stores that the streams of these incarnations have ended (leaving: their agents were asked to stop). An executor that
 * is lost or has attached again does not change. */
MUST_CHECK status_t store_executor_detached(struct store *s, int64_t epoch, const char *const *ids,
                                            const int64_t *incarnations, size_t n, bool leaving, struct err *e);
MUST_CHECK status_t store_executor_lost(struct store *s, int64_t epoch, const char *id, const char *reason,
                                        struct err *e);
/* Stores the last heartbeats of many executors. */
MUST_CHECK status_t store_executor_heartbeats(struct store *s, int64_t epoch, const char *const *ids,
                                              const int64_t *times_us, size_t n, struct err *e);
/* Drains an executor, or changes the drain: its start time stays, a reason other than "" replaces the old reason and
 * requester, and `now` stays set. NOT_FOUND if the executor has never attached. */
MUST_CHECK status_t store_executor_drain(struct store *s, int64_t epoch, const char *id, const char *reason,
                                         const char *requester, bool now, struct err *e);
/* Ends the drain, if there is one. NOT_FOUND as above. */
MUST_CHECK status_t store_executor_undrain(struct store *s, int64_t epoch, const char *id, struct err *e);
/* Deletes at most `limit` executors that have been LOST for more than `days` days. Drained ones are kept, because the
 * drain must last until they return, as are those with a placement of an open attempt. *ret_n: how many. */
MUST_CHECK status_t store_executor_forget(struct store *s, int64_t epoch, int days, int limit, int64_t *ret_n,
                                          struct err *e);
/* NOT_FOUND as above. */
MUST_CHECK status_t store_executor_get(struct store *s, struct store_memory *m, const char *id,
                                       struct store_executor *ret, struct err *e);
/* By id, those after `after` (NULL or "": from the first). */
MUST_CHECK status_t store_executor_list(struct store *s, struct store_memory *m, const char *after, int limit,
                                        struct store_executor **ret, size_t *ret_n, struct err *e);
/* The executors that a new leader loads: those that are ATTACHED or drained, the next `limit` by id after `after`. Only
 * id, state and the drain are set. Takes up to STORE_RECOVERY_TIMEOUT_MS. */
MUST_CHECK status_t store_executor_live(struct store *s, struct store_memory *m, const char *after, int limit,
                                        struct store_executor **ret, size_t *ret_n, struct err *e);
/* The executors with these ids, by id. An id that has never attached is left out. */
MUST_CHECK status_t store_executor_some(struct store *s, struct store_memory *m, const char *const *ids, size_t n,
                                        struct store_executor **ret, size_t *ret_n, struct err *e);
/* At most `limit` LOST executors except n ids, the most recently lost first. */
MUST_CHECK status_t store_executor_lost_list(struct store *s, struct store_memory *m, const char *const *but, size_t n,
                                             int limit, struct store_executor **ret, size_t *ret_n, struct err *e);
/* counts[state], 3 entries. */
MUST_CHECK status_t store_executor_counts(struct store *s, int64_t counts[3], struct err *e);

#endif

/* The hosts, as their agents last described them. Leases live in the leader's memory; the heartbeat's time is written
 * now and then, for people. */
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
    const char *reason; /* with quarantined */
    const char *links;  /* a word for each device of the host, between spaces */
};
struct store_executor {
    const char *id;
    int64_t incarnation;
    enum store_executor_state state;
    const char *hostname, *address, *version;
    int slots;
    int slots_used; /* read only: ranks of attempts that have not ended */
    const char *reason;
    int64_t attach_time_us, heartbeat_time_us; /* read only */
    /* Read only: a person has asked that it gets no more ranks. */
    int64_t drain_time_us; /* 0 = nobody has, and the rest is empty */
    const char *drain_reason, *drain_requester;
    bool drain_now; /* nor keeps those that it has */
    const struct store_device *devices;
    size_t n_devices;
};

/* Inserts or replaces the rows in their order, in one transaction: ATTACHED, now. FAILED_PRECONDITION, and nothing is
 * written, when a newer incarnation of one has attached. */
MUST_CHECK status_t store_executor_attach(struct store *s, int64_t epoch, const struct store_executor *executors,
                                          size_t n, struct err *e);
/* The devices of this start of it again, when one of them is quarantined or released. FAILED_PRECONDITION when a newer
 * incarnation has attached, NOT_FOUND when none ever has. */
MUST_CHECK status_t store_executor_devices(struct store *s, int64_t epoch, const char *id, int64_t incarnation,
                                           const struct store_device *devices, size_t n, struct err *e);
MUST_CHECK status_t store_executor_lost(struct store *s, int64_t epoch, const char *id, const char *reason,
                                        struct err *e);
/* Heartbeats of many at once. */
MUST_CHECK status_t store_executor_heard(struct store *s, int64_t epoch, const char *const *ids,
                                         const int64_t *times_us, size_t n, struct err *e);
/* Marks it as drained, or changes the mark: since when stays, a reason that is not "" replaces that which was given and
 * who gave it, and `now` is not taken back. NOT_FOUND when it has never attached. */
MUST_CHECK status_t store_executor_drain(struct store *s, int64_t epoch, const char *id, const char *reason,
                                         const char *requester, bool now, struct err *e);
/* Takes the mark away; one without it stays as it is. NOT_FOUND as above. */
MUST_CHECK status_t store_executor_undrain(struct store *s, int64_t epoch, const char *id, struct err *e);
/* NOT_FOUND as above. */
MUST_CHECK status_t store_executor_get(struct store *s, struct store_memory *m, const char *id,
                                       struct store_executor *ret, struct err *e);
/* By id; those after `after` (NULL or "" = from the first). */
MUST_CHECK status_t store_executor_list(struct store *s, struct store_memory *m, const char *after, int limit,
                                        struct store_executor **ret, size_t *ret_n, struct err *e);
/* Those of the ids that have ever attached, by id. */
MUST_CHECK status_t store_executor_some(struct store *s, struct store_memory *m, const char *const *ids, size_t n,
                                        struct store_executor **ret, size_t *ret_n, struct err *e);
/* At most `limit` of those that are LOST, but for n ids: the last to be lost first. */
MUST_CHECK status_t store_executor_lost_list(struct store *s, struct store_memory *m, const char *const *but, size_t n,
                                             int limit, struct store_executor **ret, size_t *ret_n, struct err *e);
/* counts[state], 3 entries. */
MUST_CHECK status_t store_executor_counts(struct store *s, int64_t counts[3], struct err *e);

#endif

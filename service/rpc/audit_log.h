/* The writer of the audit log: rpc_audit of api/rpc, with rows in the database.
 *
 * A call that changed something waits until its row is stored. A thread stores the rows of all calls that wait in
 * one statement, so that callers share a commit. A call that failed does not wait: its row is stored later, and a
 * controller records at most AUDIT_LOG_BURST failures at once and AUDIT_LOG_PER_S of them a second for long; the next
 * row of a failure counts the others. So callers without rights cannot fill the database. */
#ifndef SERVICE_RPC_AUDIT_LOG_H
#define SERVICE_RPC_AUDIT_LOG_H

#include "api/rpc/audit.h"
#include "base/cleanup.h"
#include "service/store/store.h"

#define AUDIT_LOG_BURST 64
#define AUDIT_LOG_PER_S 2

struct audit_log;

/* The store must stay open until audit_log_close. */
MUST_CHECK status_t audit_log_open(struct store *store, struct audit_log **ret, struct err *e);
/* For the server's config. The result is valid until audit_log_close. */
const struct rpc_audit *audit_log_rules(const struct audit_log *);
/* After rpc_server_close. Tries once to store the rows that wait. NULL is fine; returns NULL. */
struct audit_log *audit_log_close(struct audit_log *);
CLEANUP_DEFINE(struct audit_log *, audit_log_close)

#endif

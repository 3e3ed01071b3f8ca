/* One line for each call that has ended, as JSON in a file of bounded size, or in the log of the program:
 *
 *   {"time":"2026-11-24T10:11:04.123Z","service":"JobService","method":"GetJob","caller":"ann",
 *    "peer":"ipv4:10.0.0.7:41812","status":"OK","milliseconds":1.234,"request_id":"4f1c8a2e-1b"}
 *
 * A thread writes the lines, so that a slow disk delays no call. If ACCESS_LOG_WAITING lines wait, further ones are
 * dropped, as are lines that the file does not take; a later line counts them. A line never has a token, a message or
 * an argument of a call. */
#ifndef SERVICE_MAIN_ACCESS_LOG_H
#define SERVICE_MAIN_ACCESS_LOG_H

#include "api/rpc/server.h"
#include "base/cleanup.h"
#include "base/status.h"

#define ACCESS_LOG_WAITING 4096
/* Of the file, and of the previous one, FILE.1. */
#define ACCESS_LOG_BYTES (64LL << 20)

struct access_log;
/* path: of the file; "-": the log of the program. */
MUST_CHECK status_t access_log_open(const char *path, struct access_log **ret, struct err *e);
/* Writes what waits. No call may be added any more. */
struct access_log *access_log_close(struct access_log *l);
CLEANUP_DEFINE(struct access_log *, access_log_close)

/* For rpc_server_config.ended; ctx: the log. */
void access_log_add(void *ctx, const struct rpc_ended_call *call);

#endif

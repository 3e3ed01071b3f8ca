/* The one way a function of this project says that it failed: a status and one finished sentence.
 *
 *   status_t  a gRPC canonical code. The numbers are gRPC's, so api/rpc converts by a cast.
 *   struct err  the sentence for a person: complete, with the name of the thing and the reason, without a trailing
 *               full stop. Untouched on success, so one variable may serve a chain of calls.
 *
 * Rules: a function that can fail returns status_t as MUST_CHECK and takes `struct err *e` as its last parameter; `e`
 * may be NULL where the caller has no use for the sentence. Out-parameters (`ret_...`) are untouched on failure. A
 * failure that a peer, a file, a device or the clock can cause is a status; `assert` is for our own bugs only.
 * Libraries neither log nor exit: the caller gets the sentence and decides.
 *
 * Threads: a struct err belongs to one thread at a time; nothing here is shared. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    ST_OK = 0,
    ST_CANCELLED = 1,
    ST_UNKNOWN = 2,
    ST_INVALID_ARGUMENT = 3,
    ST_DEADLINE_EXCEEDED = 4,
    ST_NOT_FOUND = 5,
    ST_ALREADY_EXISTS = 6,
    ST_PERMISSION_DENIED = 7,
    ST_RESOURCE_EXHAUSTED = 8,
    ST_FAILED_PRECONDITION = 9, /* an illegal move, or fenced: stop, do not retry */
    ST_ABORTED = 10,            /* a lost race: the caller may start the whole operation again */
    ST_OUT_OF_RANGE = 11,
    ST_UNIMPLEMENTED = 12,
    ST_INTERNAL = 13,
    ST_UNAVAILABLE = 14, /* a peer is away: retry later; the operation may or may not have happened */
    ST_DATA_LOSS = 15,   /* a checksum or a format says that stored bytes are not what was written */
    ST_UNAUTHENTICATED = 16,
} status_t;

#define MUST_CHECK __attribute__((warn_unused_result))

/* 480 bytes: a path of 255, a reason and a number fit; longer sentences are cut and end in "...". */
struct err {
    char msg[480];
};

/* Writes the sentence into e (if not NULL) and returns st: `return err_set(e, ST_NOT_FOUND, "job %s does not exist",
 * id);` */
MUST_CHECK status_t err_set(struct err *e, status_t st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
MUST_CHECK status_t err_vset(struct err *e, status_t st, const char *fmt, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Puts a context before the sentence that is already there ("checkpoint step 40: " + "shard 1 is truncated"). */
MUST_CHECK status_t err_prefix(struct err *e, status_t st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* errno as a status: ENOENT -> NOT_FOUND, EACCES/EPERM -> PERMISSION_DENIED, ENOSPC/ENOMEM/EMFILE ->
 * RESOURCE_EXHAUSTED, EEXIST -> ALREADY_EXISTS, ECONNREFUSED/EPIPE/ECONNRESET -> UNAVAILABLE, ETIMEDOUT ->
 * DEADLINE_EXCEEDED, else INTERNAL. */
status_t status_of_errno(int errnum);

/* err_set with errno's status and its text: "open '/x': No such file or directory". Reads errno first thing. */
MUST_CHECK status_t err_errno(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* err_errno of a file, folder or device that cannot be opened or read for any reason (it is missing, its file system is
 * not mounted, the disk fails): PERMISSION_DENIED and RESOURCE_EXHAUSTED as status_of_errno says, else NOT_FOUND.
 * Another host may be able to read it. */
MUST_CHECK status_t err_unreadable(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "NOT_FOUND" etc.; "CODE_99" never happens: unknown values read as "UNKNOWN". Static storage. */
const char *status_name(status_t st);

/* For the rare failure that is deliberately dropped (a best-effort clean-up): says so in the code. */
static inline void status_ignore(status_t st) { (void)st; }

/* Returns the status of `call` to the caller unless it is ST_OK. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status_t try_st_ = (call);                                                                                     \
        if (try_st_ != ST_OK)                                                                                          \
            return try_st_;                                                                                            \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif

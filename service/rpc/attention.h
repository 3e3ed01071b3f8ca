/* What a person should look at, as sentences. */
#ifndef SERVICE_RPC_ATTENTION_H
#define SERVICE_RPC_ATTENTION_H

#include "service/rpc/arena.h"
#include "service/store/executor.h"
#include "service/store/store.h"

enum { ATTENTION_MAX = 16 };
struct attention {
    char *sentences[ATTENTION_MAX];
    size_t n;
};

/* What the state of an executor demands. */
void attention_add_executor(struct attention *ret, struct arena *a, const struct store_executor *x);
/* Jobs that have failed within the last day, and the first job that waits. queued: how many wait. */
MUST_CHECK status_t attention_add_jobs(struct attention *ret, struct arena *a, struct store *s, int64_t queued,
                                       struct err *e);
void attention_add(struct attention *ret, struct arena *a, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif

/* The token cache of this host (engine/data/token_cache.h), and the processes that encode texts into it. A rank asks
 * for a text that the cache lacks; a trainyard-worker encodes it. All ranks of the attempt that have asked for the same
 * text get its end, and the first one its reports. Ranks only read the cache: token_cache.h says why.
 *
 * Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_TEXT_ENCODERS_H
#define EXECUTOR_AGENT_TEXT_ENCODERS_H

#include "executor/agent/host.h"

#include <trainyard/v1/worker.pb-c.h>

struct text_encoders;

enum { TEXT_ENCODERS_MAX = 64 }; /* of a host: each rank waits for one at a time */

struct text_encoders_owner {
    void *ctx;
    void (*encoded)(void *ctx, int64_t job, int32_t attempt, int32_t rank, Trainyard__V1__TextEncoded *report);
};

/* Makes the folder of the cache: host->token_cache. Without one, ranks encode their texts in memory; the log says why.
 */
void text_encoders_open_cache(struct host *host);

struct text_encoders *text_encoders_new(const struct host *host, const struct text_encoders_owner *owner);
struct text_encoders *text_encoders_free(struct text_encoders *es); /* NULL is fine; returns NULL */

/* A rank asks for a text. It gets the end in any case, unless its attempt has ended; at once, with the reason, if it
 * waits for another text, or if the host encodes TEXT_ENCODERS_MAX. */
void text_encoders_start(struct text_encoders *es, int64_t job, int32_t attempt, int32_t rank,
                         const Trainyard__V1__EncodeText *text);
/* No text is being encoded. */
bool text_encoders_is_empty(const struct text_encoders *es);
/* The attempt has ended: its processes end too. What they were encoding is begun again by whoever needs it. */
void text_encoders_remove(struct text_encoders *es, int64_t job, int32_t attempt);

#endif

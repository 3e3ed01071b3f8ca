/* The tokens of a rank's texts, which ranks take from the token cache of the host (engine/data/token_cache.h).
 *
 * Before a rank joins its gang, it has each text encoded that the cache lacks: the gang waits an hour for a rank to
 * join, but only a minute for one that has. The agent starts a process for that (rank_encode.c) and reports to all
 * ranks of the attempt that have asked for the same text. What cannot be had from the cache is encoded by the engine of
 * the rank, in memory. */
#ifndef EXECUTOR_WORKER_TEXT_TOKENS_H
#define EXECUTOR_WORKER_TEXT_TOKENS_H

#include "engine/data/token_cache.h"
#include "executor/worker/control.h"
#include "executor/worker/emit.h"

struct engine_config;

struct text_tokens {
    struct token_cache cache; /* of the configuration, for as long as the engine is open */
    struct control *control;
    struct emitter *emitter;
    struct err why; /* why the cache lacks a text */
};

/* Prepares the texts of the configuration, and sets its cache; nothing if the host has none. CANCELLED: the rank was
 * asked to stop. Whatever else is wrong with the data, the engine reports when it opens them. */
MUST_CHECK status_t text_tokens_prepare(struct text_tokens *t, const Trainyard__V1__WorkerStart *start,
                                        struct engine_config *config, struct err *e);

#endif

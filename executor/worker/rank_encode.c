/* A process that encodes one text of a job into the token cache, and ends. It reads the data of the job as its ranks
 * do, below the same roots, and in a sandbox writes to the cache alone (worker_sandbox.c). It is none of the job's
 * ranks, whose records and files could make them do something else: it has parsed nothing but this text and its
 * tokenizer when it writes tokens that other jobs will read. */
#include "base/cleanup.h"
#include "engine/data/source.h"
#include "engine/data/token_cache.h"
#include "executor/worker/job_roots.h"
#include "executor/worker/rank.h"

static void on_notice(void *ctx, const char *kind, const char *message) {
    struct emitter *emitter = ctx;
    Trainyard__V1__TextEncoded report = TRAINYARD__V1__TEXT_ENCODED__INIT;
    report.event = (char *)(uintptr_t)kind;
    report.message = (char *)(uintptr_t)message;
    emitter_put(emitter, WORKER_RECORD(TEXT_ENCODED, text_encoded, &report));
}

static void on_progress(void *ctx) { emitter_progress(ctx); }

static status_t encode(const Trainyard__V1__WorkerEncode *given, const struct roots *roots, struct emitter *emitter,
                       struct err *e) {
    const Trainyard__V1__EncodeText *t = given->text;
    const struct token_cache cache = { .folder = given->token_cache,
                                       .max_bytes = given->token_cache_bytes,
                                       .writes = true,
                                       .required = true,
                                       .notice = on_notice,
                                       .ctx = emitter };
    const struct data_config config = { .kind = data_kind_find("text"),
                                        .roots = roots,
                                        .text = { .files = (const char *const *)t->files,
                                                  .n_files = (int)t->n_files,
                                                  .validation = (const char *const *)t->validation,
                                                  .n_validation = (int)t->n_validation,
                                                  .format = t->format,
                                                  .document = t->document,
                                                  .separator = t->separator,
                                                  .tokenizer = t->tokenizer } };
    const struct source_options options = { .context = 1,
                                            .threads = given->threads > 0 ? given->threads : 1,
                                            .token_cache = &cache,
                                            .progress = on_progress,
                                            .ctx = emitter };
    CLEANUP(source_closep) struct source *source = NULL;
    return source_open(&config, &options, &source, e);
}

void rank_encode(const Trainyard__V1__WorkerEncode *given, struct emitter *emitter, struct rank_end *ret) {
    struct job_roots roots;
    *ret = (struct rank_end){ .cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL };
    if (!given->text || !*given->token_cache) {
        status_ignore(err_set(&ret->why, ST_INTERNAL, "the order to encode names no text"));
        return;
    }
    job_roots_take(&(struct job_roots_given){ given->data_roots, given->n_data_roots, given->checkpoint_roots,
                                              given->n_checkpoint_roots, given->data_except, given->n_data_except },
                   &roots);
    job_roots_add_copies(&roots, given->data_cache);
    if (encode(given, &roots.copies, emitter, &ret->why) == ST_OK)
        *ret = (struct rank_end){ .cause = TRAINYARD__V1__WORKER_END__CAUSE__FINISHED };
    job_roots_done(&roots);
}

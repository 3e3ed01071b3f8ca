#include "executor/worker/text_tokens.h"

#include "base/limits.h"
#include "engine/run/engine.h"
#include "engine/run/job_model.h"

#include <string.h>

enum { TICK_MS = 500, RECORD_SPARE_BYTES = 1024 };

static char *text(const char *s) { return (char *)(uintptr_t)(s ? s : ""); }

static void on_notice(void *ctx, const char *kind, const char *message) {
    const struct text_tokens *t = ctx;
    Trainyard__V1__WorkerNotice notice = TRAINYARD__V1__WORKER_NOTICE__INIT;
    notice.kind = text(kind);
    notice.message = text(message);
    emitter_put(t->emitter, WORKER_RECORD(NOTICE, notice, &notice));
    emitter_log(t->emitter, "%s: %s", kind, message);
}

static void on_progress(void *ctx) {
    const struct text_tokens *t = ctx;
    emitter_progress(t->emitter);
}

/* ---- asking ---- */

/* Returns after the last report. */
static status_t reports_take(struct text_tokens *t, struct err *e) {
    for (;;) {
        Trainyard__V1__WorkerCommand *command = NULL;
        TRY(control_text(t->control, TICK_MS, &command, e));
        emitter_progress(t->emitter); /* this rank does not hang: the agent watches the process that encodes */
        if (!command)
            continue;
        const Trainyard__V1__TextEncoded *report = command->text_encoded;
        const bool last = report->last;
        const status_t st = last && *report->message ? err_set(e, ST_UNAVAILABLE, "%s", report->message) : ST_OK;
        if (!last)
            on_notice(t, report->event, report->message);
        trainyard__v1__worker_command__free_unpacked(command, NULL);
        if (last)
            return st;
    }
}

static status_t on_encode(void *ctx, const struct data_text *data, struct err *e) {
    struct text_tokens *t = ctx;
    Trainyard__V1__EncodeText order = TRAINYARD__V1__ENCODE_TEXT__INIT;
    order.files = (char **)(uintptr_t)data->files;
    order.n_files = (size_t)data->n_files;
    order.validation = (char **)(uintptr_t)data->validation;
    order.n_validation = (size_t)data->n_validation;
    order.format = data->format;
    order.document = text(data->document);
    order.separator = text(data->separator);
    order.tokenizer = text(data->tokenizer);
    if (trainyard__v1__encode_text__get_packed_size(&order) > LIMIT_RECORD_BYTES - RECORD_SPARE_BYTES)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the names of the %d files of the text have more than %d KiB",
                       data->n_files + data->n_validation, (LIMIT_RECORD_BYTES - RECORD_SPARE_BYTES) >> 10);
    emitter_log(t->emitter, "waiting until the text is encoded on this host");
    emitter_put(t->emitter, WORKER_RECORD(ENCODE_TEXT, encode_text, &order));
    return reports_take(t, e);
}

/* The engine does not ask again: the reason is that of text_tokens_prepare. */
static status_t on_missed(void *ctx, const struct data_text *data, struct err *e) {
    const struct text_tokens *t = ctx;
    (void)data;
    return err_set(e, ST_UNAVAILABLE, "%s", *t->why.msg ? t->why.msg : "the token cache does not have the text");
}

/* ---- before the rank joins ---- */

/* Others are not in the cache. */
static bool is_byte_pairs(const char *tokenizer) {
    return tokenizer && *tokenizer && strcmp(tokenizer, "char") != 0 && strcmp(tokenizer, "byte") != 0;
}

static bool has_texts(const struct data_config *data) {
    bool found = data->kind == data_kind_find("text") && is_byte_pairs(data->text.tokenizer);
    if (data->kind == data_kind_find("mixture"))
        for (int i = 0; i < data->mixture.n_sources; i++)
            found |= has_texts(&data->mixture.sources[i].data);
    return found;
}

status_t text_tokens_prepare(struct text_tokens *t, const Trainyard__V1__WorkerStart *start,
                             struct engine_config *config, struct err *e) {
    CLEANUP(source_closep) struct source *source = NULL;
    if (!*start->token_cache || !has_texts(&config->data))
        return ST_OK;
    t->cache = (struct token_cache){ .folder = start->token_cache,
                                     .max_bytes = start->token_cache_bytes,
                                     .required = true,
                                     .encode = on_encode,
                                     .notice = on_notice,
                                     .ctx = t };
    config->token_cache = &t->cache;
    if (job_model_source(config, on_progress, t, &source, &t->why) == ST_CANCELLED)
        return err_set(e, ST_CANCELLED, "%s", t->why.msg);
    t->cache.required = false;
    t->cache.encode = on_missed;
    return ST_OK;
}

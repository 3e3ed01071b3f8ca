#include "executor/program/redact_record.h"

#include "api/codec/message.h"

#include <stdlib.h>
#include <string.h>

#define RECORD(name) TRAINYARD__V1__WORKER_RECORD__RECORD_##name

/* The texts of a record that a program can have written. */
static char **texts_of(const Trainyard__V1__WorkerRecord *record, size_t *ret_n) {
    *ret_n = 1;
    switch (record->record_case) {
    case RECORD(METRICS): *ret_n = record->metrics->n_names; return record->metrics->names;
    case RECORD(NOTICE): return &record->notice->message;
    case RECORD(LOG): return &record->log->text;
    case RECORD(END): return &record->end->message;
    default: *ret_n = 0; return NULL;
    }
}

static bool finds(const struct redactor *r, char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (redact_finds(r, texts[i]))
            return true;
    return false;
}

ProtobufCMessage *redact_record(void *redactor, const Trainyard__V1__WorkerRecord *record) {
    const struct redactor *r = redactor;
    Trainyard__V1__WorkerRecord *copy = NULL;
    size_t n;
    char **texts = texts_of(record, &n);
    if (!finds(r, texts, n))
        return NULL;
    if (message_copy(&record->base, &copy, NULL) != ST_OK)
        abort(); /* without memory the record must not pass */
    texts = texts_of(copy, &n);
    for (size_t i = 0; i < n; i++)
        redact_text(r, texts[i]);
    return &copy->base;
}

struct redactor *redactor_of_attempt(const Trainyard__V1__AttemptStart *start) {
    struct redactor *r = redactor_new();
    for (size_t i = 0; i < start->n_secrets; i++)
        redactor_add(r, start->secrets[i]->value.data, start->secrets[i]->value.len);
    redactor_ready(r);
    return r;
}

static bool has_value(const Trainyard__V1__AttemptStart *start, const char *variable) {
    for (size_t i = 0; i < start->n_secrets; i++)
        if (strcmp(start->secrets[i]->variable, variable) == 0)
            return true;
    return false;
}

const char *secrets_lacking(const Trainyard__V1__AttemptStart *start) {
    const Trainyard__V1__ProgramSpec *program = start->spec ? start->spec->program : NULL;
    for (size_t i = 0; program && i < program->n_secrets; i++)
        if (!has_value(start, program->secrets[i]->key))
            return program->secrets[i]->key;
    return NULL;
}

void secrets_wipe(const Trainyard__V1__AttemptStart *start) {
    for (size_t i = 0; i < start->n_secrets; i++)
        if (start->secrets[i]->value.len > 0)
            explicit_bzero(start->secrets[i]->value.data, start->secrets[i]->value.len);
}

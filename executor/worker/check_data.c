#include "api/codec/message.h"
#include "api/spec/data_sources.h"
#include "api/spec/spec.h"
#include "base/cleanup.h"
#include "engine/run/job_model.h"
#include "executor/worker/check_parts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_READ = 8, SAMPLE_BYTES_MAX = 64 << 20, FIELD_BYTES = 128 };

/* ---- which field a sentence is about ---- */

/* The longest path of a field that the sentence names. */
static void note_named(const char *uri, const char *sentence, const char *field, size_t *longest,
                       char ret[FIELD_BYTES + 32]) {
    char path[PATH_MAX];
    if (spec_uri_path(uri, path, sizeof path, NULL) != ST_OK || strlen(path) <= *longest || !strstr(sentence, path))
        return;
    *longest = strlen(path);
    snprintf(ret, FIELD_BYTES + 32, "%s", field);
}

static void search_source(const struct data_sources_item *source, const char *sentence, size_t *longest,
                          char ret[FIELD_BYTES + 32]) {
    const ProtobufCMessage *m = source->message;
    char field[FIELD_BYTES + 32];
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        size_t n = 1;
        if (f->type != PROTOBUF_C_TYPE_STRING || (field_has_presence(f) && !field_is_set(m, f)))
            continue;
        char *const *uris = field_is_repeated(f) ? field_elements(m, f, &n) : field_value(m, f);
        for (size_t u = 0; u < n; u++) {
            int used = snprintf(field, sizeof field, "%s.%s", source->path, f->name);
            if (field_is_repeated(f))
                snprintf(field + used, sizeof field - (size_t)used, "[%zu]", u);
            note_named(uris[u], sentence, field, longest, ret);
        }
    }
}

/* "data.text.files[1]" where the sentence names that file, else "data.text". */
static void field_of(const Trainyard__V1__DataSpec *data, const char *sentence, char ret[FIELD_BYTES + 32]) {
    struct data_sources sources;
    size_t longest = 0;
    data_sources_of(data, &sources);
    snprintf(ret, FIELD_BYTES + 32, "%s", sources.n > 0 ? sources.items[0].path : "data");
    for (int i = 0; i < sources.n; i++)
        search_source(&sources.items[i], sentence, &longest, ret);
}

/* What another host's files may not have. */
static status_t judge_data(struct check *k, status_t st, const struct err *why, struct err *e) {
    char field[FIELD_BYTES + 32];
    if (st == ST_OK || st == ST_RESOURCE_EXHAUSTED || st == ST_INTERNAL)
        return check_judge(k, st, why, e);
    field_of(k->request->spec->data, why->msg, field);
    const bool prefixed = strncmp(why->msg, "data: ", 6) == 0; /* the field is known better here */
    check_problem(k, true, "%s: %s", field, why->msg + (prefixed ? 6 : 0));
    return ST_OK;
}

/* ---- some samples ---- */

static void batch_freep(struct batch *b) {
    for (int i = 0; i < BATCH_INPUTS; i++)
        free(b->of[i]);
}

/* Buffers for n samples; n becomes smaller if the samples are large. */
static status_t batch_make(const struct source *s, int *n, struct batch *ret, struct err *e) {
    int64_t max = 1;
    for (int i = 0; i < BATCH_INPUTS; i++)
        max = source_elements(s, (enum batch_input)i) > max ? source_elements(s, (enum batch_input)i) : max;
    while (*n > 1 && max * 4 * *n > SAMPLE_BYTES_MAX)
        *n /= 2;
    for (int i = 0; i < BATCH_INPUTS; i++) {
        const int64_t elements = source_elements(s, (enum batch_input)i);
        if (elements && !(ret->of[i] = malloc((size_t)elements * 4 * (size_t)*n)))
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %d samples of the data", *n);
    }
    return ST_OK;
}

/* Some of `there` samples from number `first` on. */
static status_t read_some(const struct source *s, enum source_split part, int64_t first, int64_t there, struct err *e) {
    int n = there < SAMPLES_READ ? (int)there : SAMPLES_READ;
    CLEANUP(batch_freep) struct batch batch = { { NULL } };
    if (n == 0)
        return ST_OK;
    TRY(batch_make(s, &n, &batch, e));
    return source_read(s, part, 0, first, n, &batch, e);
}

/* The first training sample of a mixture's source; -1: it has none among the first 2^40. */
static int64_t first_of(const struct source *s, int mixed) {
    int64_t low = 0, high = (int64_t)1 << 40;
    if (source_mixed_samples(s, mixed, high) == 0)
        return -1;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (source_mixed_samples(s, mixed, middle) > 0)
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* Samples from all over the split, which the sampler spreads, and some of each source of a mixture. */
static status_t read_samples(const struct source *s, enum source_split part, struct err *e) {
    const struct source_info *info = source_info(s);
    TRY(read_some(s, part, 0, info->samples[part], e));
    for (int i = 0; i < info->n_mixed; i++) {
        const int64_t first = part == SOURCE_TRAIN ? first_of(s, i) : info->mixed[i].first;
        if (first >= 0)
            TRY(read_some(s, part, first, part == SOURCE_TRAIN ? 1 : info->mixed[i].validation, e));
    }
    return ST_OK;
}

status_t check_data(struct check *k, const struct engine_config *c, struct source **ret, struct err *e) {
    CLEANUP(source_closep) struct source *source = NULL;
    struct err why = { "" };
    const int before = k->n_problems;
    TRY(judge_data(k, job_model_source(c, NULL, NULL, &source, &why), &why, e));
    for (int part = 0; source && part < SOURCE_SPLITS; part++)
        TRY(judge_data(k, read_samples(source, (enum source_split)part, &why), &why, e));
    if (k->n_problems == before)
        *ret = take_ptr(&source);
    return ST_OK;
}

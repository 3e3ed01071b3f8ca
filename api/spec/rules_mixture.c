/* A mixture: its names, what each source is, its tokenizer, and weights whose shares are exact. */
#include "api/spec/data_sources.h"
#include "api/spec/fields.h"
#include "api/spec/rules.h"
#include "base/shares.h"

#include <stdio.h>
#include <string.h>

enum { SOURCES_MAX = 32, SOURCE_NAME_CHARS = 32, PATH_BYTES = 96 };

typedef Trainyard__V1__MixtureData__SourcesEntry entry_t;

static bool check_source_name(const entry_t *entry, const entry_t *before, struct spec_problems *p) {
    if (!check_name(p, "data.mixture.sources", entry->key))
        return false;
    if (strlen(entry->key) > SOURCE_NAME_CHARS)
        problem_add(p, "data.mixture.sources.%s: the name has more than %d characters", entry->key, SOURCE_NAME_CHARS);
    else if (before && strcmp(before->key, entry->key) == 0) /* on the wire a map may repeat a key */
        problem_add(p, "data.mixture.sources.%s: given twice", entry->key);
    else
        return true;
    return false;
}

static bool check_tokenizer(const Trainyard__V1__MixtureData *m, const entry_t *entry, struct spec_problems *p) {
    const char *field;
    char *const *own = spec_value(data_sources_mixed(entry->value, &field), "tokenizer");
    if (!*m->tokenizer && entry->value->text) {
        problem_add(p, "data.mixture.tokenizer: must be given, since the source %s is text", entry->key);
        return false;
    }
    if (!own || strcmp(*own, m->tokenizer) == 0)
        return true;
    problem_add(p, "data.mixture.sources.%s.%s.tokenizer: all sources have that of data.mixture: leave it out",
                entry->key, field);
    return false;
}

static bool check_weight(double weight, const char *path, struct spec_problems *p) {
    struct err e;
    if (shares_check(weight, &e) == ST_OK)
        return true;
    problem_add(p, "%s: %s", path, e.msg);
    return false;
}

static bool check_source(const Trainyard__V1__MixtureData *m, size_t i, struct spec_problems *p) {
    const entry_t *entry = m->sources[i];
    if (!check_source_name(entry, i > 0 ? m->sources[i - 1] : NULL, p))
        return false;
    const Trainyard__V1__MixtureSource *source = entry->value;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "data.mixture.sources.%s", entry->key);
    if (source)
        rules_fields(&source->base, path, p);
    if (!source || !source->text == !source->tokens) {
        problem_add(p, "data.mixture.sources.%s: give exactly one of text, tokens", entry->key);
        return false;
    }
    if (!check_tokenizer(m, entry, p) || !rules_field_good(&source->base, "weight"))
        return false;
    snprintf(path, sizeof path, "data.mixture.sources.%s.weight", entry->key);
    return check_weight(source->weight, path, p);
}

static bool check_shares(const double *weights, int n, const char *path, struct spec_problems *p) {
    int64_t units[SOURCES_MAX], all;
    struct err e;
    if (shares_of(weights, n, units, &all, &e) == ST_OK)
        return true;
    problem_add(p, "%s: %s", path, e.msg);
    return false;
}

/* Both are sorted by name. */
static void check_weights(const Trainyard__V1__MixtureData *m, const Trainyard__V1__MixturePhase *phase,
                          const char *path, struct spec_problems *p) {
    double weights[SOURCES_MAX];
    for (size_t i = 0; i < m->n_sources || i < phase->n_weights; i++) {
        const char *ours = i < phase->n_weights ? phase->weights[i]->key : NULL,
                   *source = i < m->n_sources ? m->sources[i]->key : NULL;
        const int order = !ours ? 1 : !source ? -1 : strcmp(ours, source);
        if (order != 0) {
            problem_add(p, "%s.weights: %s", path,
                        order > 0 ? "must name every source" : "names no source, or one twice");
            return;
        }
        char one[PATH_BYTES + 64];
        snprintf(one, sizeof one, "%s.weights.%s", path, ours);
        weights[i] = phase->weights[i]->value;
        if (!check_weight(weights[i], one, p))
            return;
    }
    char list[PATH_BYTES + 16];
    snprintf(list, sizeof list, "%s.weights", path);
    check_shares(weights, (int)m->n_sources, list, p);
}

static void check_phases(const Trainyard__V1__MixtureData *m, struct spec_problems *p) {
    int64_t before = 0;
    for (size_t i = 0; i < m->n_phases; i++) {
        const Trainyard__V1__MixturePhase *phase = m->phases[i];
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "data.mixture.phases[%zu]", i);
        if (!rules_field_good(&phase->base, "from_sample") || !rules_field_good(&phase->base, "weights"))
            continue;
        if (phase->from_sample <= before)
            problem_add(p, "%s.from_sample: %lld is not behind the phase before it, %lld", path,
                        (long long)phase->from_sample, (long long)before);
        before = phase->from_sample;
        check_weights(m, phase, path, p);
    }
}

void rules_mixture(const Trainyard__V1__MixtureData *m, struct spec_problems *p) {
    double weights[SOURCES_MAX];
    bool good = rules_field_good(&m->base, "sources");
    for (size_t i = 0; good && i < m->n_sources; i++)
        good = check_source(m, i, p);
    if (!good) /* the walk over the fields has a line, or the source has */
        return;
    for (size_t i = 0; i < m->n_sources; i++)
        weights[i] = m->sources[i]->value->weight;
    if (check_shares(weights, (int)m->n_sources, "data.mixture.sources", p))
        check_phases(m, p);
}

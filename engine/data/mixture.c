/* Several sources of tokens as one: training sample i comes from the source that its phase's interleaving gives it
 * (interleave.h), and is the next sample of that source. So each source is read in its own order, each of its windows
 * once in each of its own epochs, and everything follows from i alone:
 *
 *   phase of i       the last one that begins at or before i; phase 0 begins at 0
 *   source, place    interleave_at(phase, i - first sample of the phase)
 *   sample of it     place + the samples of that source in all phases before
 *
 * The seed of a source follows from the job's seed and the source's name, so other sources change nothing about it.
 *
 * Validation samples are those of the first source, then those of the second, and so on. source_info says which belong
 * to which source, since an evaluation reports each source by itself. */
#include "base/alloc.h"
#include "base/sha256.h"
#include "base/shares.h"
#include "engine/data/interleave.h"
#include "engine/data/source_kind.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct phase {
    int64_t from_sample;
    int64_t before[DATA_SOURCES_MAX]; /* samples of each source in earlier phases */
    struct interleave *order;
};

struct mixture {
    struct source source;
    struct source *of[DATA_SOURCES_MAX];
    uint64_t key[DATA_SOURCES_MAX]; /* added to the job's seed */
    struct mixed_source mixed[DATA_SOURCES_MAX];
    int n;
    struct phase *phases;
    int n_phases;
};

/* ---- training samples ---- */

static const struct phase *phase_of(const struct mixture *m, int64_t sample) {
    int low = 0, high = m->n_phases;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (m->phases[middle].from_sample <= sample)
            low = middle;
        else
            high = middle;
    }
    return &m->phases[low];
}

static int64_t mixed_samples(const struct source *s, int mixed, int64_t sample) {
    const struct phase *p = phase_of((const struct mixture *)s, sample);
    return p->before[mixed] + interleave_count(p->order, sample - p->from_sample, mixed);
}

static int find_train(const struct mixture *m, int64_t sample, int64_t *ret_of_source) {
    const struct phase *p = phase_of(m, sample);
    const int s = interleave_at(p->order, sample - p->from_sample, ret_of_source);
    *ret_of_source += p->before[s];
    return s;
}

static int find_validation(const struct mixture *m, int64_t sample, int64_t *ret_of_source) {
    sample %= m->source.info.samples[SOURCE_VALIDATION];
    int s = 0;
    while (sample >= m->mixed[s].first + m->mixed[s].validation)
        s++;
    *ret_of_source = sample - m->mixed[s].first;
    return s;
}

static status_t read_samples(const struct source *source, enum source_split split, int64_t seed, int64_t first, int B,
                             const struct batch *to, struct err *e) {
    const struct mixture *m = (const struct mixture *)source;
    for (int b = 0; b < B; b++) {
        int64_t sample;
        const int s = (split == SOURCE_TRAIN ? find_train : find_validation)(m, first + b, &sample);
        struct batch one = { { NULL } };
        for (int i = 0; i < source->info.n_inputs; i++) {
            const enum batch_input input = source->info.inputs[i].input;
            if (to->of[input])
                one.of[input] = (int32_t *)to->of[input] + b * source_elements(source, input);
        }
        struct err why;
        const status_t st = source_read(m->of[s], split, (int64_t)((uint64_t)seed + m->key[s]), sample, 1, &one, &why);
        if (st != ST_OK)
            return err_set(e, st, "%s", why.msg);
    }
    return ST_OK;
}

/* ---- open ---- */

static void close_mixture(struct source *source) {
    struct mixture *m = (struct mixture *)source;
    for (int s = 0; s < m->n; s++)
        source_close(m->of[s]);
    for (int p = 0; p < m->n_phases; p++)
        interleave_free(m->phases[p].order);
    free(m->phases);
    free(m);
}

static uint64_t key_of(const char *name) {
    uint8_t digest[SHA256_BYTES];
    uint64_t key = 0;
    sha256_of(name, strlen(name), digest);
    for (int i = 0; i < 8; i++)
        key = key << 8 | digest[i];
    return key;
}

static status_t open_sources(struct mixture *m, const struct data_mixture *config, const struct source_options *options,
                             struct err *e) {
    for (; m->n < config->n_sources; m->n++) {
        const struct data_mixture_source *from = &config->sources[m->n];
        struct err why;
        const status_t st = source_open(&from->data, options, &m->of[m->n], &why);
        if (st != ST_OK)
            return err_set(e, st, "source %s: %s", from->name, why.msg + (strncmp(why.msg, "data: ", 6) == 0 ? 6 : 0));
        m->key[m->n] = key_of(from->name);
        snprintf(m->mixed[m->n].name, sizeof m->mixed[m->n].name, "%s", from->name);
    }
    return ST_OK;
}

/* A phase's order, which begins where the phases before it have left each source. */
static status_t open_phase(struct mixture *m, const double *weights, int64_t from_sample, struct err *e) {
    int64_t units[DATA_SOURCES_MAX], all;
    struct err why;
    if (shares_of(weights, m->n, units, &all, &why) != ST_OK)
        return err_set(e, ST_INVALID_ARGUMENT, "the weights from sample %lld on: %s", (long long)from_sample, why.msg);
    struct phase *p = &m->phases[m->n_phases];
    p->from_sample = from_sample;
    for (int s = 0; s < m->n && m->n_phases > 0; s++)
        p->before[s] = mixed_samples(&m->source, s, from_sample);
    TRY(interleave_new(units, m->n, &p->order, e));
    m->n_phases++;
    m->source.info.memory_bytes += interleave_bytes(p->order);
    return ST_OK;
}

static status_t open_phases(struct mixture *m, const struct data_mixture *config, struct err *e) {
    double weights[DATA_SOURCES_MAX];
    m->phases = alloc_zeroed((size_t)config->n_phases + 1, sizeof *m->phases);
    for (int s = 0; s < m->n; s++)
        weights[s] = config->sources[s].weight;
    TRY(open_phase(m, weights, 0, e));
    for (int p = 0; p < config->n_phases; p++) {
        const struct data_mixture_phase *phase = &config->phases[p];
        if (phase->from_sample <= m->phases[m->n_phases - 1].from_sample)
            return err_set(e, ST_INVALID_ARGUMENT, "phase %d begins at sample %lld, not behind the one before it", p,
                           (long long)phase->from_sample);
        TRY(open_phase(m, phase->weights, phase->from_sample, e));
    }
    return ST_OK;
}

/* Sources have one vocabulary. Token files without a tokenizer have the model's, which is not smaller. */
static status_t describe(struct mixture *m, struct err *e) {
    struct source_info *info = &m->source.info;
    const struct source_info *first = source_info(m->of[0]);
    memcpy(info->inputs, first->inputs, sizeof info->inputs);
    info->n_inputs = first->n_inputs;
    for (int s = 0; s < m->n; s++) {
        const struct source_info *one = source_info(m->of[s]);
        if (one->classes > 0 || one->vocabulary == 0)
            return err_set(e, ST_INVALID_ARGUMENT, "source %s has no tokens: a mixture is of text and tokens",
                           m->mixed[s].name);
        m->mixed[s].first = info->samples[SOURCE_VALIDATION];
        m->mixed[s].validation = one->samples[SOURCE_VALIDATION];
        for (int split = 0; split < SOURCE_SPLITS; split++) {
            info->samples[split] += one->samples[split];
            info->tokens[split] += one->tokens[split];
        }
        info->vocabulary = one->vocabulary > info->vocabulary ? one->vocabulary : info->vocabulary;
        info->memory_bytes += one->memory_bytes;
        if (!info->tokenizer)
            info->tokenizer = one->tokenizer;
    }
    info->mixed = m->mixed;
    info->n_mixed = m->n;
    return ST_OK;
}

/* Of the sources that have validation samples. */
static void weigh(struct mixture *m, const struct data_mixture *config) {
    double sum = 0;
    for (int s = 0; s < m->n; s++)
        sum += m->mixed[s].weight = m->mixed[s].validation > 0 ? config->sources[s].weight : 0;
    for (int s = 0; s < m->n && sum > 0; s++)
        m->mixed[s].weight /= sum;
}

/* Everything that decides which tokens a sample has: names and digests of the sources, their order, all weights. */
static void digest(struct mixture *m, const struct data_mixture *config) {
    struct sha256 sha256;
    uint8_t bytes[SHA256_BYTES];
    char line[DATA_SOURCE_NAME + 160];
    sha256_begin(&sha256);
    for (int s = 0; s < m->n; s++)
        sha256_update(&sha256, line,
                      (size_t)snprintf(line, sizeof line, "%s %s %.6f\n", m->mixed[s].name,
                                       source_info(m->of[s])->sha256, config->sources[s].weight));
    for (int p = 0; p < config->n_phases; p++)
        for (int s = 0; s < m->n; s++)
            sha256_update(&sha256, line,
                          (size_t)snprintf(line, sizeof line, "%lld %.6f\n", (long long)config->phases[p].from_sample,
                                           config->phases[p].weights[s]));
    sha256_final(&sha256, bytes);
    sha256_hex(bytes, m->source.info.sha256);
}

static status_t no_validation(const struct source *s, enum source_split split, struct err *e) {
    (void)s, (void)split;
    return err_set(e, ST_INVALID_ARGUMENT, "no source of the mixture has validation samples");
}

static status_t open_mixture(struct mixture *m, const struct data_mixture *config, const struct source_options *options,
                             struct err *e) {
    if (config->n_sources < 1 || config->n_sources > DATA_SOURCES_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "a mixture of %d sources: it has 1 to %d", config->n_sources,
                       DATA_SOURCES_MAX);
    TRY(open_sources(m, config, options, e));
    TRY(describe(m, e));
    TRY(open_phases(m, config, e));
    weigh(m, config);
    digest(m, config);
    return ST_OK;
}

static status_t open_source(const struct data_config *config, const struct source_options *options, struct source **ret,
                            struct err *e) {
    struct mixture *m = alloc_zeroed(1, sizeof *m);
    m->source = (struct source){
        .read = read_samples, .mixed_samples = mixed_samples, .close = close_mixture, .empty = no_validation
    };
    const status_t st = open_mixture(m, &config->mixture, options, e);
    if (st == ST_OK)
        *ret = &m->source;
    else
        close_mixture(&m->source);
    return st;
}

/* The settings are lists, which executor/worker fills itself. */
const struct data_kind data_mixture = { .name = "mixture", .open = open_source };

#include "service/controller/progress.h"

#include "base/alloc.h"
#include "base/array.h"

#include <math.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct known {
    int64_t job; /* first: the tree's key */
    int attempt;
    struct progress_values values;
    double rate;       /* tokens per second of the step below; NAN = none */
    int64_t rate_step; /* both values of tokens_per_step come from one row */
};

struct progress {
    pthread_mutex_t lock;
    void *jobs;
};

static struct known *find(const struct progress *p, int64_t job) {
    void *const *node = tfind(&job, &p->jobs, array_by_int64);
    return node ? *node : NULL;
}

struct progress *progress_new(void) {
    struct progress *p = alloc_zeroed(1, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

struct progress *progress_free(struct progress *p) {
    if (!p)
        return NULL;
    tdestroy(p->jobs, free);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

static struct known *find_or_add(struct progress *p, int64_t job) {
    struct known *en = find(p, job);
    if (en)
        return en;
    en = alloc_zeroed(1, sizeof *en);
    en->job = job;
    en->values = (struct progress_values){
        .loss = NAN,
        .validation_loss = NAN,
        .tokens_per_second = NAN,
        .samples_per_second = NAN,
        .tokens_per_step = NAN,
    };
    en->rate = NAN;
    alloc_tree_node(en, &p->jobs, array_by_int64);
    return en;
}

/* A row has the rate before the time of the step. */
static void put_rate(struct known *en, int64_t step, const char *name, double value) {
    if (strcmp(name, "tokens_per_second") == 0) {
        en->values.tokens_per_second = en->rate = value;
        en->rate_step = step;
    } else if (step == en->rate_step && !isnan(en->rate)) {
        en->values.tokens_per_step = round(en->rate * value);
    }
}

void progress_put(struct progress *p, int64_t job, int attempt, int64_t step, const char *name, double value) {
    pthread_mutex_lock(&p->lock);
    struct known *en = find_or_add(p, job);
    if (attempt >= en->attempt) {
        en->values.step = attempt > en->attempt || step > en->values.step ? step : en->values.step;
        en->attempt = attempt;
        if (strcmp(name, "loss") == 0)
            en->values.loss = value;
        else if (strcmp(name, "validation_loss") == 0)
            en->values.validation_loss = value;
        else if (strcmp(name, "tokens_per_second") == 0 || strcmp(name, "step_seconds") == 0)
            put_rate(en, step, name, value);
        else if (strcmp(name, "samples_per_second") == 0)
            en->values.samples_per_second = value;
    }
    pthread_mutex_unlock(&p->lock);
}

bool progress_get(struct progress *p, int64_t job, struct progress_values *ret) {
    pthread_mutex_lock(&p->lock);
    const struct known *en = find(p, job);
    if (en)
        *ret = en->values;
    pthread_mutex_unlock(&p->lock);
    return en != NULL;
}

void progress_forget(struct progress *p, int64_t job) {
    pthread_mutex_lock(&p->lock);
    struct known *en = find(p, job);
    if (en) {
        tdelete(&job, &p->jobs, array_by_int64);
        free(en);
    }
    pthread_mutex_unlock(&p->lock);
}

#include "service/controller/sample.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "service/scheduler/scheduler.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct known {
    int64_t id; /* 0: free */
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    struct sample_sink sink;
};

struct samples {
    pthread_mutex_t lock;
    struct dispatch *dispatch;
    int64_t next;
    struct known all[SAMPLE_MAX];
};

struct samples *samples_new(struct dispatch *d) {
    struct samples *s = alloc_zeroed(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->dispatch = d;
    s->next = clock_wall_us(); /* a time, so that no number of an earlier controller is used again */
    return s;
}

struct samples *samples_free(struct samples *s) {
    if (!s)
        return NULL;
    pthread_mutex_destroy(&s->lock);
    free(s);
    return NULL;
}

static struct known *find(struct samples *s, int64_t id) {
    for (int i = 0; i < SAMPLE_MAX; i++)
        if (s->all[i].id == id)
            return &s->all[i];
    return NULL;
}

static unsigned abilities_of(const Trainyard__V1__WorkerSample *request) {
    const bool in_store = strncmp(request->directory, "s3://", 5) == 0;
    return (request->average ? DISPATCH_SAMPLE_AVERAGE : 0) | (in_store ? DISPATCH_STORE_SAMPLES : 0);
}

/* An agent of an older release would leave out what it does not know. */
static status_t none_able(unsigned abilities, struct err *e) {
    return err_set(e, ST_UNAVAILABLE, "no executor is attached that %s: those of older releases cannot%s",
                   abilities & DISPATCH_STORE_SAMPLES ? "reads checkpoints in a store"
                                                      : "writes samples of averaged weights",
                   abilities & DISPATCH_STORE_SAMPLES ? ", and it needs a cache of data (--data-cache)" : "");
}

static status_t pick(struct samples *s, const Trainyard__V1__WorkerSample *request, struct known *en, struct err *e) {
    const unsigned abilities = abilities_of(request);
    if (dispatch_pick(s->dispatch, abilities, en->executor, sizeof en->executor))
        return ST_OK;
    return abilities && dispatch_count(s->dispatch) > 0
               ? none_able(abilities, e)
               : err_set(e, ST_UNAVAILABLE, "no executor is attached that could run the sample");
}

/* With the lock held, so that no output is handled before the entry exists. The lock of dispatch is taken inside this
 * lock, never the other way round. */
static status_t order(struct samples *s, struct known *en, const Trainyard__V1__WorkerSample *request, struct err *e) {
    TRY(pick(s, request, en, e));
    Trainyard__V1__StartSample start = TRAINYARD__V1__START_SAMPLE__INIT;
    start.sample = s->next;
    start.request = (Trainyard__V1__WorkerSample *)request;
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START_SAMPLE;
    m.start_sample = &start;
    if (!dispatch_send(s->dispatch, en->executor, &m))
        return err_set(e, ST_UNAVAILABLE, "executor %s went away before the sample", en->executor);
    en->id = s->next++;
    return ST_OK;
}

status_t sample_start(struct samples *s, const Trainyard__V1__WorkerSample *request, const struct sample_sink *sink,
                      int64_t *ret, struct err *e) {
    pthread_mutex_lock(&s->lock);
    struct known *en = find(s, 0);
    status_t st = ST_OK;
    if (!en) {
        st = err_set(e, ST_RESOURCE_EXHAUSTED, "%d samples are running already", SAMPLE_MAX);
    } else {
        en->sink = *sink;
        st = order(s, en, request, e);
        if (st == ST_OK)
            *ret = en->id;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void sample_stop(struct samples *s, int64_t sample) {
    pthread_mutex_lock(&s->lock);
    struct known *en = sample ? find(s, sample) : NULL;
    if (en) {
        Trainyard__V1__StopSample stop = TRAINYARD__V1__STOP_SAMPLE__INIT;
        stop.sample = sample;
        Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
        m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP_SAMPLE;
        m.stop_sample = &stop;
        dispatch_send(s->dispatch, en->executor, &m);
        en->id = 0;
    }
    pthread_mutex_unlock(&s->lock);
}

void sample_output(struct samples *s, const char *executor, const Trainyard__V1__SampleOutput *output) {
    pthread_mutex_lock(&s->lock);
    struct known *en = output->sample > 0 ? find(s, output->sample) : NULL;
    if (en && strcmp(en->executor, executor) == 0) {
        if (output->text && output->text[0])
            en->sink.text(en->sink.ctx, output->text);
        if (output->last) {
            en->sink.done(en->sink.ctx, (status_t)output->status, executor, output->message ? output->message : "");
            en->id = 0;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

void sample_executor_gone(struct samples *s, const char *executor) {
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < SAMPLE_MAX; i++) {
        struct known *en = &s->all[i];
        if (en->id == 0 || strcmp(en->executor, executor) != 0)
            continue;
        en->sink.done(en->sink.ctx, ST_UNAVAILABLE, executor, "the executor that ran the sample went away");
        en->id = 0;
    }
    pthread_mutex_unlock(&s->lock);
}

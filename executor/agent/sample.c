#include "executor/agent/sample.h"

#include "executor/agent/attach.h"
#include "executor/agent/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample {
    struct samples *owner;
    int64_t id;
    struct child *child;
    struct reactor_timer limit;
    char why[240]; /* of its end record */
    status_t status;
};

struct samples {
    struct agent *agent;
    struct sample *list[SAMPLES_MOST];
};

static bool output_send(struct samples *s, int64_t id, const char *text, bool last, status_t status, const char *why) {
    Trainyard__V1__SampleOutput output = TRAINYARD__V1__SAMPLE_OUTPUT__INIT;
    output.sample = id;
    output.text = (char *)(uintptr_t)text;
    output.last = last;
    output.status = status;
    output.message = (char *)(uintptr_t)why;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_SAMPLE_OUTPUT;
    m.sample_output = &output;
    return attach_send(s->agent->attach, &m);
}

static void sample_free(struct sample *one) {
    struct samples *s = one->owner;
    for (int i = 0; i < SAMPLES_MOST; i++)
        if (s->list[i] == one)
            s->list[i] = NULL;
    reactor_timer_cancel(s->agent->loop, &one->limit);
    child_close(one->child);
    free(one);
}

static status_t status_of(Trainyard__V1__WorkerEnd__Cause cause) {
    switch (cause) {
    case TRAINYARD__V1__WORKER_END__CAUSE__FINISHED: return ST_OK;
    case TRAINYARD__V1__WORKER_END__CAUSE__STOPPED: return ST_CANCELLED;
    case TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC: return ST_INVALID_ARGUMENT;
    case TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD: return ST_DATA_LOSS;
    default: return ST_INTERNAL;
    }
}

static void sample_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct sample *one = ctx;
    if (record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_END) {
        one->status = status_of(record->end->cause);
        snprintf(one->why, sizeof one->why, "%s", record->end->message);
    } else if (record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_SAMPLE) {
        if (!output_send(one->owner, one->id, record->sample->text, false, ST_OK, ""))
            child_end(one->child, 0, 0, "was killed because its reader does not read");
    }
}

static void sample_spooled(void *ctx, bool urgent) {
    (void)ctx;
    (void)urgent;
}

static void sample_ended(void *ctx, const struct reaped *how, bool drained) {
    struct sample *one = ctx;
    if (!drained)
        return;
    if (how->exit_code != 0 && one->status == ST_OK) {
        one->status = status_of(reap_cause(how));
        char sentence[160];
        reap_sentence(how, child_killed_because(one->child), sentence, sizeof sentence);
        snprintf(one->why, sizeof one->why, "the sample's worker: %s", sentence);
    }
    output_send(one->owner, one->id, "", true, one->status, one->why);
    sample_free(one);
}

static void limit_fire(void *ctx) {
    struct sample *one = ctx;
    child_end(one->child, 0, 0, "took more than ten minutes and was killed");
}

static status_t sample_spawn(struct sample *one, const Trainyard__V1__WorkerSample *request, struct err *e) {
    struct agent *agent = one->owner->agent;
    const struct child_owner owner = {
        .ctx = one, .record = sample_record, .spooled = sample_spooled, .ended = sample_ended
    };
    TRY(worker_open(agent, NULL, NULL, &owner, &one->child, e));
    Trainyard__V1__WorkerSample with_threads = *request;
    with_threads.threads = agent->inventory.threads_per_rank;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_SAMPLE;
    command.sample = &with_threads;
    return child_send(one->child, &command, e);
}

static struct sample *sample_find(struct samples *s, int64_t id) {
    for (int i = 0; i < SAMPLES_MOST; i++)
        if (s->list[i] && s->list[i]->id == id)
            return s->list[i];
    return NULL;
}

void samples_start(struct samples *s, const Trainyard__V1__StartSample *start) {
    if (sample_find(s, start->sample))
        return;
    int slot = 0;
    while (slot < SAMPLES_MOST && s->list[slot])
        slot++;
    struct err why;
    status_t st;
    struct sample *one = NULL;
    if (slot == SAMPLES_MOST)
        st = err_set(&why, ST_RESOURCE_EXHAUSTED, "this executor writes %d samples already", SAMPLES_MOST);
    else if (!start->request)
        st = err_set(&why, ST_INVALID_ARGUMENT, "the start names no checkpoint");
    else if (!(one = calloc(1, sizeof *one)))
        st = err_set(&why, ST_RESOURCE_EXHAUSTED, "no memory for a sample");
    else {
        *one = (struct sample){ .owner = s, .id = start->sample };
        one->limit = (struct reactor_timer){ .fire = limit_fire, .ctx = one };
        s->list[slot] = one;
        st = sample_spawn(one, start->request, &why);
    }
    if (st == ST_OK) {
        reactor_timer_set(s->agent->loop, &one->limit, SAMPLE_SECONDS_MOST * 1000L);
        return;
    }
    output_send(s, start->sample, "", true, st, why.msg);
    if (one)
        sample_free(one);
}

void samples_stop(struct samples *s, int64_t sample) {
    struct sample *one = sample_find(s, sample);
    if (one)
        child_end(one->child, 0, 0, "was stopped");
}

void samples_stop_all(struct samples *s) {
    for (int i = 0; s && i < SAMPLES_MOST; i++)
        if (s->list[i])
            child_end(s->list[i]->child, 0, 0, "was stopped");
}

status_t samples_open(struct agent *agent, struct samples **ret, struct err *e) {
    struct samples *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for samples");
    s->agent = agent;
    *ret = s;
    return ST_OK;
}

struct samples *samples_close(struct samples *s) {
    for (int i = 0; s && i < SAMPLES_MOST; i++)
        if (s->list[i])
            sample_free(s->list[i]);
    free(s);
    return NULL;
}

#include "executor/agent/attempt.h"

#include "executor/agent/attach.h"
#include "executor/agent/directory.h"
#include "executor/agent/spool.h"

#include <stdlib.h>

void *message_copy(const ProtobufCMessage *m) {
    size_t n = protobuf_c_message_get_packed_size(m);
    CLEANUP(freep) uint8_t *packed = malloc(n + 1);
    if (!packed)
        return NULL;
    protobuf_c_message_pack(m, packed);
    return protobuf_c_message_unpack(m->descriptor, NULL, n, packed);
}

void message_free(void *m) {
    if (m)
        protobuf_c_message_free_unpacked(m, NULL);
}

/* One message that borrows everything from the attempt, and the arrays that it points to. */
struct view {
    Trainyard__V1__AttemptStatus status;
    Trainyard__V1__AttemptEnded end;
    Trainyard__V1__RankStatus *ranks;
    Trainyard__V1__RankStatus **rank_pointers;
    Trainyard__V1__RankEnd **ends;
};

static void view_done(struct view *v) {
    free(v->ranks);
    free(v->rank_pointers);
    free(v->ends);
}

static status_t view_fill(struct view *v, const struct attempt *at, struct err *e) {
    size_t n = at->n_ranks;
    trainyard__v1__attempt_status__init(&v->status);
    trainyard__v1__attempt_ended__init(&v->end);
    v->ranks = calloc(n + 1, sizeof *v->ranks);
    v->rank_pointers = calloc(n + 1, sizeof *v->rank_pointers);
    v->ends = calloc(n + 1, sizeof *v->ends);
    if (!v->ranks || !v->rank_pointers || !v->ends) {
        view_done(v);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for an attempt's status");
    }
    for (size_t i = 0; i < n; i++) {
        const struct rank *r = &at->ranks[i];
        Trainyard__V1__RankStatus *s = v->rank_pointers[i] = &v->ranks[i];
        trainyard__v1__rank_status__init(s);
        s->rank = r->rank;
        s->pid = r->pid;
        s->pid_start_time = r->start_time;
        s->address = r->address;
        s->joined = r->joined != NULL;
        s->last_sequence = r->log ? spool_log_last(r->log) : r->end ? r->end->last_sequence : 0;
        if (r->end)
            v->ends[v->end.n_ranks++] = r->end;
    }
    v->end.job = v->status.job = at->job;
    v->end.attempt = v->status.attempt = at->attempt;
    v->end.ranks = v->ends;
    v->status.world_size = at->world_size;
    v->status.n_ranks = n;
    v->status.ranks = v->rank_pointers;
    v->status.ended = at->ended;
    v->status.end = &v->end;
    return ST_OK;
}

status_t attempt_record(const struct attempt *at, struct err *e) {
    struct view v;
    TRY(view_fill(&v, at, e));
    status_t st = directory_attempt_write(at->owner->agent->directory, &v.status, e);
    view_done(&v);
    return st;
}

void attempt_tell_ended(const struct attempt *at) {
    struct view v;
    if (view_fill(&v, at, NULL) != ST_OK)
        return;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_ATTEMPT_ENDED;
    m.attempt_ended = &v.end;
    attach_send(at->owner->agent->attach, &m);
    view_done(&v);
}

void rank_tell_started(const struct rank *r) {
    Trainyard__V1__RankStarted started = TRAINYARD__V1__RANK_STARTED__INIT;
    started.job = r->attempt->job;
    started.attempt = r->attempt->attempt;
    started.rank = r->rank;
    started.pid = r->pid;
    started.pid_start_time = r->start_time;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_STARTED;
    m.rank_started = &started;
    attach_send(r->attempt->owner->agent->attach, &m);
}

void rank_tell_offer(const struct rank *r) {
    Trainyard__V1__RankOffer offer = TRAINYARD__V1__RANK_OFFER__INIT;
    offer.job = r->attempt->job;
    offer.attempt = r->attempt->attempt;
    offer.rank = r->rank;
    offer.address = r->address;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_OFFER;
    m.rank_offer = &offer;
    attach_send(r->attempt->owner->agent->attach, &m);
}

void rank_tell_ready(const struct rank *r) {
    Trainyard__V1__RankReady ready = TRAINYARD__V1__RANK_READY__INIT;
    ready.job = r->attempt->job;
    ready.attempt = r->attempt->attempt;
    ready.rank = r->rank;
    ready.joined = r->joined;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_READY;
    m.rank_ready = &ready;
    attach_send(r->attempt->owner->agent->attach, &m);
}

void rank_tell_ended(const struct rank *r) {
    Trainyard__V1__RankEnded ended = TRAINYARD__V1__RANK_ENDED__INIT;
    ended.job = r->attempt->job;
    ended.attempt = r->attempt->attempt;
    ended.end = r->end;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_ENDED;
    m.rank_ended = &ended;
    attach_send(r->attempt->owner->agent->attach, &m);
}

void attempts_tell_all(struct attempts *a) {
    for (const struct attempt *at = a->first; at; at = at->next) {
        if (at->ended)
            continue; /* the hello said all of it */
        for (size_t i = 0; i < at->n_ranks; i++) {
            const struct rank *r = &at->ranks[i];
            if (r->end)
                rank_tell_ended(r);
            else if (r->joined)
                rank_tell_ready(r);
        }
    }
}

status_t attempts_statuses(const struct attempts *a, Trainyard__V1__AttemptStatus ***ret, size_t *ret_n,
                           struct err *e) {
    size_t n = 0, k = 0;
    for (const struct attempt *at = a->first; at; at = at->next)
        n++;
    Trainyard__V1__AttemptStatus **list = calloc(n + 1, sizeof *list);
    status_t st = list ? ST_OK : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the attempts' statuses");
    for (const struct attempt *at = a->first; at && st == ST_OK; at = at->next) {
        struct view v;
        st = view_fill(&v, at, e);
        if (st != ST_OK)
            break;
        if (!at->ended)
            v.status.end = NULL;
        list[k] = message_copy(&v.status.base);
        view_done(&v);
        if (!list[k++])
            st = err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for an attempt's status");
    }
    if (st != ST_OK) {
        while (k)
            message_free(list[--k]);
        free(list);
        return st;
    }
    *ret = list;
    *ret_n = n;
    return ST_OK;
}

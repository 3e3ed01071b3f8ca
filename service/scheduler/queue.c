#include "base/array.h"
#include "service/scheduler/placement.h"
#include "service/scheduler/state.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool queue_before(const struct job *a, const struct job *b) {
    return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

/* The first place that is not before the job: its own, or where it belongs. */
static size_t place_of(const struct scheduler *s, const struct job *job) {
    size_t low = 0, high = s->n_queue;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (queue_before(s->queue[middle], job))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct room queue_room_for(struct room all, const struct job *job) {
    if (job->world_size > 1) {
        all.free -= all.lone_free;
        all.slots -= all.lone_slots;
        all.drained -= all.lone_drained;
    }
    return all;
}

bool queue_holds_up(const struct job *job, struct room all) {
    return job->world_size <= queue_room_for(all, job).slots;
}

/* Whether placing again could start the new one: a long queue is not walked for each job that joins its end. */
static bool may_start(const struct scheduler *s, const struct job *job, size_t at) {
    const struct job *blocker = s->blocker[job->slot];
    if (at == 0)
        return true;
    return !(blocker && queue_before(blocker, job)) && queue_holds_up(job, s->room[job->slot]);
}

void queue_insert(struct scheduler *s, struct job *job) {
    assert(!job->in_queue);
    size_t at = place_of(s, job);
    memmove(s->queue + at + 1, s->queue + at, (s->n_queue - at) * sizeof *s->queue);
    s->queue[at] = job;
    s->n_queue++;
    job->in_queue = true;
    job->told_waiting = false;
    s->dirty = s->dirty || may_start(s, job, at);
}

void queue_remove(struct scheduler *s, struct job *job) {
    if (!job->in_queue)
        return;
    size_t at = place_of(s, job);
    assert(at < s->n_queue && s->queue[at] == job);
    s->n_queue--;
    memmove(s->queue + at, s->queue + at + 1, (s->n_queue - at) * sizeof *s->queue);
    job->in_queue = false;
    s->dirty = true;
}

struct room queue_room(const struct scheduler *s, enum scheduler_slot slot) {
    struct room room = { 0 };
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        const int free_slots = executor_free(ex, slot, 1);
        const bool alone = executor_judge(ex, slot, 2) == SCHEDULER_HOST_LONE;
        if (!ex->attached)
            continue;
        room.attached++;
        if (ex->drained) { /* no room: whoever needs it waits for a person, and holds nobody up */
            executor_count_drained(ex, slot, &room);
            continue;
        }
        room.slots += ex->slots[slot];
        room.quarantined += slot == SCHEDULER_SLOT_CUDA ? ex->quarantined : 0;
        room.free += free_slots;
        room.lone_slots += alone ? ex->slots[slot] : 0;
        room.lone_free += alone ? free_slots : 0;
    }
    return room;
}

/* All memory that it takes is there before anything changes. */
static status_t start(struct scheduler *s, struct job *job, const int *host, int64_t now_ms,
                      struct scheduler_actions *out, struct err *e) {
    CLEANUP(attempt_freep) struct attempt *attempt = NULL;
    CLEANUP(freep) char(*placement)[SCHEDULER_EXECUTOR_ID_BYTES] = NULL;
    TRY(attempt_new(job->number + 1, job->world_size, &attempt, e));
    TRY(array_new(&placement, job->world_size, e));
    TRY(actions_reserve(out, actions_most(s, NULL) + 1 + (size_t)job->world_size, e));
    for (int r = 0; r < job->world_size; r++) {
        attempt->ranks[r].executor = s->all[host[r]];
        memcpy(placement[r], s->all[host[r]]->id, sizeof *placement);
    }
    attempt->start_deadline_ms = now_ms + SCHEDULER_START_TIMEOUT_MS;
    job->number++;
    attempt_begin(s, job, take_ptr(&attempt));

    struct scheduler_action *a = action_add(out, ACT_ATTEMPT_CREATE, job);
    a->from = job->state;
    a->to = JOB_STATE_STARTING;
    a->cause = JOB_CAUSE_PLACED;
    a->world_size = job->world_size;
    a->placement = take_ptr(&placement);
    assert(job_state_edge(job->state, JOB_STATE_STARTING, JOB_CAUSE_PLACED));
    job->state = JOB_STATE_STARTING;
    job_activate(s, job, true);
    for (int p = 0; p < job->attempt->n_parts; p++)
        action_send(out, ACT_SEND_START, job, job->attempt->parts[p].executor);
    return ST_OK;
}

static status_t try_start(struct scheduler *s, struct job *job, int64_t now_ms, struct scheduler_actions *out,
                          bool *ret_starts, struct err *e) {
    CLEANUP(freep) struct placement_host *hosts = NULL;
    CLEANUP(freep) int *chosen = NULL;
    int n = 0;
    TRY(array_new(&hosts, s->n_all, e));
    TRY(array_new(&chosen, job->world_size, e));
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        const int free_slots = executor_free(ex, job->slot, job->world_size);
        if (free_slots > 0)
            hosts[n++] = (struct placement_host){ .host = i, .free = free_slots, .order = ex->order };
    }
    *ret_starts = placement_choose(hosts, n, job->world_size, chosen);
    return *ret_starts ? start(s, job, chosen, now_ms, out, e) : ST_OK;
}

void queue_room_text(const struct job *job, struct room room, char *ret, size_t n) {
    const char *slot = job->slot == SCHEDULER_SLOT_CUDA ? "cuda" : "cpu", *plural = job->world_size == 1 ? "" : "s";
    const int lone = job->world_size > 1 ? room.lone_slots : 0;
    char ill[40] = "", apart[96], drained[320] = "";
    if (room.quarantined)
        snprintf(ill, sizeof ill, "; %d more %s quarantined", room.quarantined, room.quarantined == 1 ? "is" : "are");
    snprintf(apart, sizeof apart, "%s", ill);
    if (lone)
        snprintf(apart, sizeof apart, "%s; %d more take%s jobs of one rank only", ill, lone, lone == 1 ? "s" : "");
    if (room.drained) {
        char hosts[DRAINED_BYTES];
        executor_drained_text(room, hosts);
        snprintf(drained, sizeof drained, "; %d more %s drained: %s", room.drained, room.drained == 1 ? "is" : "are",
                 hosts);
    }
    if (room.attached == 0)
        snprintf(ret, n, "needs %d %s slot%s, and no executor is attached", job->world_size, slot, plural);
    else if (job->world_size > room.slots)
        snprintf(ret, n, "needs %d %s slot%s, more than the %d of all attached executors%s%s", job->world_size, slot,
                 plural, room.slots, apart, drained);
    else
        snprintf(ret, n, "needs %d %s slot%s, %d of %d are free%s%s", job->world_size, slot, plural, room.free,
                 room.slots, apart, drained);
}

static void tell_waiting(struct job *job, struct room room, struct scheduler_actions *out) {
    if (job->told_waiting)
        return;
    job->told_waiting = true;
    char text[sizeof((struct scheduler_action *)0)->text];
    queue_room_text(job, room, text, sizeof text);
    action_text(action_add(out, ACT_WAITING, job), "%s", text);
}

void queue_tell_again(struct scheduler *s) {
    if (s->n_queue > 0)
        s->queue[0]->told_waiting = false;
    s->dirty = true;
}

static void look_around(struct scheduler *s) {
    for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
        s->room[k] = queue_room(s, (enum scheduler_slot)k);
        s->blocker[k] = NULL;
    }
}

/* What was to restart and found no room waits like any other job. */
static void settle_restart(struct scheduler *s, struct job *job, struct scheduler_actions *out) {
    if (job->in_queue && job->state == JOB_STATE_RESTARTING)
        job_move(s, job, JOB_STATE_QUEUED, JOB_CAUSE_NO_ROOM, "waits for free slots", out);
}

static void settle_restarts(struct scheduler *s, struct scheduler_actions *out) {
    for (struct job *job = s->active, *next; job; job = next) {
        next = job->next;
        settle_restart(s, job, out);
    }
}

/* Strict order: behind a job that must wait for slots nothing of the same kind starts, so that a wide gang is not
 * starved by narrow ones. A gang wider than all hosts together holds nobody up. */
void queue_place(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out) {
    status_t st = actions_reserve(out, actions_most(s, NULL), NULL);
    if (st != ST_OK)
        return;
    s->dirty = false;
    look_around(s);
    size_t kept = 0, i = 0;
    for (; i < s->n_queue; i++) {
        struct job *job = s->queue[i];
        const struct room room = queue_room_for(s->room[job->slot], job);
        if (s->blocker[SCHEDULER_SLOT_CPU] && s->blocker[SCHEDULER_SLOT_CUDA])
            break;
        bool open = !s->blocker[job->slot], starts = false;
        if (open && room.free >= job->world_size)
            st = try_start(s, job, now_ms, out, &starts, NULL);
        if (st != ST_OK)
            break;
        if (starts) {
            job->in_queue = false;
            s->room[job->slot] = queue_room(s, job->slot);
            continue;
        }
        if (kept == 0) { /* the others wait behind it: one event each would be a flood */
            settle_restart(s, job, out);
            tell_waiting(job, room, out);
        }
        if (open && (s->room[job->slot].free == 0 || queue_holds_up(job, s->room[job->slot])))
            s->blocker[job->slot] = job;
        s->queue[kept++] = job;
    }
    if (i > kept) {
        memmove(s->queue + kept, s->queue + i, (s->n_queue - i) * sizeof *s->queue);
        s->n_queue -= i - kept;
    }
    if (st == ST_OK)
        settle_restarts(s, out);
    else
        s->dirty = true; /* nor is it known whether those behind have to wait */
}

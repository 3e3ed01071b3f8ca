#include "base/log.h"
#include "service/controller/state.h"

#include <stdio.h>
#include <unistd.h>

/* A standby looks this often; a leader that lost its connection too. */
#define LEAD_TRY_MS 250

static void set_leads(struct controller *c, bool leads) {
    pthread_mutex_lock(&c->lock);
    c->leads = leads;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

bool lead_over(struct controller *c) {
    pthread_mutex_lock(&c->lock);
    bool over = c->stopping || c->deposed;
    pthread_mutex_unlock(&c->lock);
    return over;
}

void lead_depose(struct controller *c, const char *why) {
    log_event(LOG_ERROR, "leadership_lost", "epoch", LOG_INT(c->own_epoch), "reason", LOG_STR(why), NULL);
    pthread_mutex_lock(&c->lock);
    c->leads = false;
    c->deposed = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    dispatch_close_all(c->dispatch, ST_UNAVAILABLE, "this controller no longer leads");
}

void lead_pause(struct controller *c, int64_t ms) {
    struct timespec until = deadline_timespec(deadline_in(ms));
    pthread_mutex_lock(&c->lock);
    int rc = 0;
    while (!c->stopping && !c->deposed && rc == 0)
        rc = pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&c->lock);
}

/* Containers may share a name and a pid: the time tells them apart. */
static void holder_name(struct controller *c) {
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    snprintf(c->holder, sizeof c->holder, "%s:%d:%llx", host, (int)getpid(), (unsigned long long)clock_wall_us());
}

static status_t try_once(struct controller *c, struct err *e) {
    if (!c->holder[0])
        holder_name(c);
    return store_leader_try(c->store, c->holder, c->own_epoch, &c->leader, e);
}

static void lead_under(struct controller *c, int64_t epoch) {
    c->own_epoch = epoch;
    dispatch_set_epoch(c->dispatch, epoch);
    ingest_lead(c->ingest, epoch);
    retire_lead(c->retire, epoch);
    prune_lead(c->prune, epoch);
    pthread_mutex_lock(&c->lock);
    c->epoch = epoch;
    c->leads = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    log_event(LOG_INFO, "leading", "epoch", LOG_INT(epoch), NULL);
}

bool lead_take(struct controller *c) {
    bool told = false;
    while (!lead_over(c)) {
        struct err e;
        status_t st = try_once(c, &e);
        if (st == ST_OK && c->leader) {
            c->own_epoch = store_leader_epoch(c->leader);
            st = recover(c, &e);
            if (st == ST_OK) {
                lead_under(c, c->own_epoch);
                return true;
            }
            c->leader = store_leader_close(c->leader);
        }
        if (!told && (st != ST_OK || !c->leader)) {
            log_event(LOG_INFO, "standing_by", "reason", LOG_STR(st == ST_OK ? "another controller leads" : e.msg),
                      NULL);
            told = true;
        }
        lead_pause(c, LEAD_TRY_MS);
    }
    return false;
}

bool lead_keep(struct controller *c) {
    struct err e;
    if (c->leader && store_leader_check(c->leader, &e) == ST_OK)
        return true;
    if (c->leader)
        log_event(LOG_WARN, "leader_lock_lost", "reason", LOG_STR(e.msg), NULL);
    set_leads(c, false);
    c->leader = store_leader_close(c->leader);
    if (try_once(c, &e) != ST_OK)
        return false;
    bool followed = false;
    /* The lock may be held by our own old session, which PostgreSQL has not given up yet: the row tells. */
    if (!c->leader && (store_leader_followed(c->store, c->holder, c->own_epoch, &followed, &e) != ST_OK || !followed))
        return false;
    int64_t epoch = c->leader ? store_leader_epoch(c->leader) : 0;
    if (epoch != c->own_epoch + 1) {
        lead_depose(c, "another controller has led meanwhile");
        return false;
    }
    atomic_store(&c->rows_unsure, true); /* a submit may have been stored whose handler heard nothing of it */
    lead_under(c, epoch);
    return true;
}

void lead_drop(struct controller *c) {
    set_leads(c, false);
    c->leader = store_leader_close(c->leader);
}

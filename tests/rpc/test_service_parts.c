/* Small parts of the service, each by itself: names, pages, addresses, links, waking, samples, the inbox. */
#include "base/limits.h"
#include "service/controller/dispatch.h"
#include "service/controller/inbox.h"
#include "service/controller/job_watchers.h"
#include "service/controller/progress.h"
#include "service/controller/rendezvous.h"
#include "service/controller/sample.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_name_is_read_whole_or_refused(void **state) {
    (void)state;
    int64_t job, id;
    assert_int_equal(name_job("jobs/42", &job, NULL), ST_OK);
    assert_int_equal(job, 42);
    assert_int_equal(name_job("7", &job, NULL), ST_OK);
    assert_int_equal(job, 7);
    assert_int_equal(name_checkpoint("jobs/42/checkpoints/9", &job, &id, NULL), ST_OK);
    assert_int_equal(job, 42);
    assert_int_equal(id, 9);
    assert_int_equal(name_job_or_checkpoint("42", &job, &id, NULL), ST_OK);
    assert_int_equal(id, 0);
    static const char *const wrong[] = { "",           "0",       "-1",      "+1",   "01",
                                         "jobs/",      "jobs/1/", "jobs/1 ", " 1",   "1x",
                                         "tasks/1",    "jobs/0",  "jobs//1", "0x10", "99999999999999999999",
                                         "jobs/jobs/1" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(name_job(wrong[i], &job, NULL), ST_INVALID_ARGUMENT);
    static const char *const no_checkpoint[] = { "jobs/1",
                                                 "1/checkpoints/2",
                                                 "jobs/1/checkpoints/",
                                                 "jobs/1/checkpoints/0",
                                                 "jobs/1/checkpoints/2/",
                                                 "jobs/x/checkpoints/2" };
    for (size_t i = 0; i < sizeof no_checkpoint / sizeof *no_checkpoint; i++)
        assert_int_equal(name_checkpoint(no_checkpoint[i], &job, &id, NULL), ST_INVALID_ARGUMENT);
}

static void a_page_token_is_valid_for_its_own_filter_only(void **state) {
    (void)state;
    char token[PAGE_TOKEN_BYTES];
    int64_t last;
    static const int64_t ids[] = { 1, 4711, INT64_MAX };
    for (int i = 0; i < 3; i++) {
        page_token_write(ids[i], "queue a", token);
        assert_int_equal(page_token_read(token, "queue a", &last, NULL), ST_OK);
        assert_true(last == ids[i]);
        assert_int_equal(page_token_read(token, "queue b", &last, NULL), ST_INVALID_ARGUMENT);
    }
    assert_int_equal(page_token_read("", "queue a", &last, NULL), ST_OK);
    assert_int_equal(last, 0);
    static const char *const wrong[] = {
        "x", "abc", "12345", "abcdef", "abcdef0", "abcdefffffffffffffffff", "abcdef12 "
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(page_token_read(wrong[i], "queue a", &last, NULL), ST_INVALID_ARGUMENT);
    static const int64_t place[] = { 0, 4711, INT64_MAX, 1 };
    int64_t back[] = { 9, 9, 9, 9 };
    assert_int_equal(page_token_read_all("", "a", back, 4, NULL), ST_OK);
    assert_int_equal(back[0], 9);
    page_token_write_all(place, 4, "a", token);
    assert_int_equal(page_token_read_all(token, "b", back, 4, NULL), ST_INVALID_ARGUMENT);
    assert_int_equal(page_token_read_all(token, "a", back, 4, NULL), ST_OK);
    assert_memory_equal(back, place, sizeof place);
    assert_int_equal(page_token_read_all(token, "a", back, 3, NULL), ST_INVALID_ARGUMENT);
    page_token_write_all(place, 3, "a", token);
    assert_int_equal(page_token_read_all(token, "a", back, 4, NULL), ST_INVALID_ARGUMENT);
    int size;
    assert_int_equal(page_size(0, &size, NULL), ST_OK);
    assert_int_equal(size, DEFAULT_PAGE_SIZE);
    assert_int_equal(page_size(1 << 30, &size, NULL), ST_OK);
    assert_int_equal(size, LIMIT_PAGE_SIZE);
    assert_int_equal(page_size(-1, &size, NULL), ST_INVALID_ARGUMENT);
}

static void addresses_are_complete_when_each_rank_has_offered_and_belong_to_one_attempt(void **state) {
    (void)state;
    struct rendezvous *r = rendezvous_new();
    size_t n;
    rendezvous_expect(r, 5, 1, 2);
    assert_true(rendezvous_offer(r, 5, 1, 1, "b", 1));
    assert_null(rendezvous_addresses(r, 5, 1, &n));
    assert_false(rendezvous_offer(r, 5, 2, 0, "a", 1));
    assert_false(rendezvous_offer(r, 5, 1, 2, "c", 1));
    assert_false(rendezvous_offer(r, 5, 1, -1, "c", 1));
    assert_false(rendezvous_offer(r, 5, 1, 0, "", 0));
    assert_true(rendezvous_offer(r, 5, 1, 0, "a", 1));
    assert_true(rendezvous_offer(r, 5, 1, 0, "again", 5));
    const ProtobufCBinaryData *all = rendezvous_addresses(r, 5, 1, &n);
    assert_int_equal(n, 2);
    assert_int_equal(all[0].len, 1);
    assert_memory_equal(all[0].data, "a", 1);
    assert_memory_equal(all[1].data, "b", 1);
    rendezvous_expect(r, 5, 2, 1);
    assert_null(rendezvous_addresses(r, 5, 1, &n));
    rendezvous_free(r);
}

/* To each executor goes one message with the addresses of all ranks, whatever they offer. */
static void the_largest_addresses_of_the_largest_gang_fit_into_one_message(void **state) {
    (void)state;
    static char address[LIMIT_RENDEZVOUS_BYTES + 1];
    struct rendezvous *r = rendezvous_new();
    Trainyard__V1__Rendezvous addresses = TRAINYARD__V1__RENDEZVOUS__INIT;
    Trainyard__V1__AttemptRendezvous all = TRAINYARD__V1__ATTEMPT_RENDEZVOUS__INIT;
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    memset(address, 1, sizeof address);
    rendezvous_expect(r, INT64_MAX, INT_MAX, LIMIT_WORLD_SIZE);
    assert_false(rendezvous_offer(r, INT64_MAX, INT_MAX, 0, address, sizeof address));
    for (int rank = 0; rank < LIMIT_WORLD_SIZE; rank++)
        assert_true(rendezvous_offer(r, INT64_MAX, INT_MAX, rank, address, LIMIT_RENDEZVOUS_BYTES));
    addresses.addresses = rendezvous_addresses(r, INT64_MAX, INT_MAX, &addresses.n_addresses);
    all = (Trainyard__V1__AttemptRendezvous){
        .base = all.base, .job = INT64_MAX, .attempt = INT_MAX, .rendezvous = &addresses
    };
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_RENDEZVOUS;
    m.rendezvous = &all;
    const size_t bytes = trainyard__v1__controller_message__get_packed_size(&m);
    assert_true(bytes > (size_t)LIMIT_WORLD_SIZE * LIMIT_RENDEZVOUS_BYTES && bytes <= LIMIT_RPC_MESSAGE_BYTES);
    rendezvous_free(r);
}

struct link {
    bool full;
    int sent, closed;
    int64_t epoch;
    Trainyard__V1__ControllerMessage__MessageCase last;
    int64_t sample;
};

static bool link_send(void *ctx, const Trainyard__V1__ControllerMessage *m) {
    struct link *l = ctx;
    l->sent += !l->full;
    l->epoch = m->epoch;
    l->last = m->message_case;
    if (m->message_case == TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START_SAMPLE)
        l->sample = m->start_sample->sample;
    return !l->full;
}

static void link_close(void *ctx, status_t st, const char *why) {
    (void)st;
    (void)why;
    ((struct link *)ctx)->closed++;
}

static uint64_t attach(struct dispatch *d, const char *id, int64_t incarnation, struct link *l) {
    return dispatch_attach(d, id, incarnation,
                           &(struct dispatch_link){ .send = link_send, .close = link_close, .ctx = l, .caller = "" });
}

static void welcome(struct dispatch *d, uint64_t ticket) {
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME;
    dispatch_welcome(d, ticket, &m);
}

static bool send_stop(struct dispatch *d, const char *id) {
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    return dispatch_send(d, id, &m);
}

static void a_newer_start_replaces_the_link_and_an_older_one_is_refused(void **state) {
    (void)state;
    struct dispatch *d = dispatch_new();
    struct link old = { 0 }, new = { 0 }, late = { 0 };
    dispatch_set_epoch(d, 9, "n");
    uint64_t t1 = attach(d, "a", 1, &old), t2 = attach(d, "a", 2, &new);
    assert_int_equal(old.closed, 1);
    assert_int_equal(attach(d, "a", 1, &late), 0);
    welcome(d, t2);
    assert_true(send_stop(d, "a"));
    assert_int_equal(new.sent, 2);
    assert_int_equal(new.epoch, 9);
    dispatch_detach(d, t1); /* the end of the old stream does not affect the new one */
    assert_true(dispatch_attached(d, "a"));
    dispatch_detach(d, t2);
    assert_false(dispatch_attached(d, "a"));
    assert_false(send_stop(d, "a"));
    dispatch_free(d);
}

static void is_never_seen(void *ctx, const char *executor, int64_t last_seen_ms) {
    (void)ctx;
    (void)last_seen_ms;
    fail_msg("executor %s has a lease before its welcome", executor);
}

static void count_seen(void *ctx, const char *executor, int64_t last_seen_ms) {
    (void)executor;
    (void)last_seen_ms;
    ++*(int *)ctx;
}

static void an_executor_is_its_callers_while_it_is_attached(void **state) {
    (void)state;
    int seen = 0;
    struct dispatch *d = dispatch_new();
    struct link l = { 0 };
    const struct dispatch_link link = { .send = link_send, .close = link_close, .ctx = &l, .caller = "gpu-1" };
    const struct dispatch_link other = { .send = link_send, .close = link_close, .ctx = &l, .caller = "gpu-2" };
    assert_true(dispatch_admits(d, "a", "gpu-2"));
    assert_false(dispatch_admits_reports(d, "a", 1, "gpu-1")); /* not attached yet: the agent asks again */
    assert_true(dispatch_admits_reports(d, "a", 1, ""));
    uint64_t ticket = dispatch_attach(d, "a", 1, &link);
    assert_true(dispatch_admits(d, "a", "gpu-1"));
    assert_false(dispatch_admits_reports(d, "a", 1, "gpu-1")); /* its token may be bound to another executor */
    dispatch_take_seen(d, is_never_seen, NULL);
    welcome(d, ticket);
    dispatch_take_seen(d, count_seen, &seen);
    assert_int_equal(seen, 1); /* what arrived before the welcome counts after it */
    assert_false(dispatch_admits(d, "a", "gpu-2"));
    assert_false(dispatch_admits(d, "a", ""));
    assert_true(dispatch_admits(d, "b", "gpu-2"));
    assert_true(dispatch_admits_reports(d, "a", 1, "gpu-1"));
    assert_false(dispatch_admits_reports(d, "a", 1, "gpu-2"));
    assert_false(dispatch_admits_reports(d, "a", 1, ""));
    assert_false(dispatch_admits_reports(d, "b", 1, "gpu-2"));
    assert_false(dispatch_admits_reports(d, "a", 0, "gpu-1")); /* an earlier start of the agent */
    assert_int_equal(dispatch_attach(d, "a", 2, &other), 0);
    assert_int_equal(l.closed, 0);
    dispatch_detach(d, ticket);
    assert_false(dispatch_admits_reports(d, "a", 1, "gpu-1"));
    assert_true(dispatch_admits(d, "a", "gpu-2"));
    dispatch_free(d);
}

enum { PEER_HOSTS = DISPATCH_PEERS_MAX + 8 };

struct peer_hosts {
    struct dispatch *d;
    struct link link;
    uint64_t tickets[PEER_HOSTS];
    char names[PEER_HOSTS][16], *all[PEER_HOSTS];
};

/* Hosts "0", "1" and so on, which serve caches at "https://0" and so on, but for the one that is `silent`. */
static void peer_hosts_attach(struct peer_hosts *h, int silent) {
    *h = (struct peer_hosts){ .d = dispatch_new() };
    for (int i = 0; i < PEER_HOSTS; i++) {
        struct dispatch_link link = { .send = link_send, .close = link_close, .ctx = &h->link, .caller = "" };
        snprintf(h->names[i], sizeof h->names[i], "%d", i);
        h->all[i] = h->names[i];
        if (i != silent)
            snprintf(link.host.cache.url, sizeof link.host.cache.url, "https://%d", i);
        snprintf(link.host.cache.token, sizeof link.host.cache.token, "token-%d", i);
        h->tickets[i] = dispatch_attach(h->d, h->names[i], 1, &link);
        welcome(h->d, h->tickets[i]);
    }
}

static void peer_hosts_detach(struct peer_hosts *h) {
    for (int i = 0; i < PEER_HOSTS; i++)
        dispatch_detach(h->d, h->tickets[i]);
    dispatch_free(h->d);
}

/* All of a gang agree who reads: the first ones that serve a cache. */
static void the_hosts_of_an_attempt_know_the_same_readers(void **state) {
    (void)state;
    struct peer_hosts h;
    struct dispatch_peers peers;
    peer_hosts_attach(&h, 2);
    for (int i = 0; i < PEER_HOSTS; i++) {
        const bool reads = i <= DISPATCH_PEERS_MAX && i != 2; /* host 2 serves no cache: one more reads */
        dispatch_find_peers(h.d, h.names[i], h.all, PEER_HOSTS, &peers);
        char own[32];
        snprintf(own, sizeof own, "https://%d", i);
        assert_string_equal(peers.own, reads ? own : "");
        assert_int_equal(peers.n_gang, DISPATCH_PEERS_MAX - reads);
        for (int k = 0, reader = 0; k < peers.n_gang; k++, reader++) {
            char url[32], token[32];
            reader += reader == 2 || (reads && reader == i);
            reader += reader == 2 || (reads && reader == i);
            snprintf(url, sizeof url, "https://%d", reader);
            snprintf(token, sizeof token, "token-%d", reader);
            assert_string_equal(peers.items[k].url, url);
            assert_string_equal(peers.items[k].token, token);
        }
    }
    peer_hosts_detach(&h);
}

static void the_other_peers_are_the_hosts_that_copied_last(void **state) {
    (void)state;
    struct peer_hosts h;
    struct dispatch_peers peers;
    char *gang[] = { "3", "3", "4" };
    peer_hosts_attach(&h, -1);
    dispatch_find_peers(h.d, "3", gang, 3, &peers);
    assert_int_equal(peers.n, 1); /* nobody else has copied anything */
    assert_string_equal(peers.items[0].url, "https://4");
    for (int i = 5; i < PEER_HOSTS; i++)
        dispatch_find_peers(h.d, h.names[i], &h.all[i], 1, &peers);
    dispatch_find_peers(h.d, "3", gang, 3, &peers);
    assert_int_equal(peers.n, DISPATCH_PEERS_MAX);
    assert_int_equal(peers.n_gang, 1);
    char last[32];
    snprintf(last, sizeof last, "https://%d", PEER_HOSTS - 1);
    assert_string_equal(peers.items[1].url, last);
    for (int k = 0; k < peers.n; k++)
        assert_string_not_equal(peers.items[k].url, "https://3");
    peer_hosts_detach(&h);
}

/* A cache without TLS listens on loopback, where another host may have a program of somebody else. */
static void a_plain_cache_is_told_to_executors_of_its_own_host_only(void **state) {
    (void)state;
    static const char *const names[] = { "plain", "near", "far", "nameless", "nameless-2" },
                             *const hostnames[] = { "a", "a", "b", "", "" },
                             *const urls[] = { "http://127.0.0.1:1", "", "https://b:1", "http://127.0.0.1:2", "" };
    enum { N = sizeof names / sizeof *names };
    struct dispatch *d = dispatch_new();
    struct link l = { 0 };
    uint64_t tickets[N];
    char *all[N];
    struct dispatch_peers peers;
    for (int i = 0; i < N; i++) {
        struct dispatch_link link = { .send = link_send, .close = link_close, .ctx = &l, .caller = "" };
        snprintf(link.host.hostname, sizeof link.host.hostname, "%s", hostnames[i]);
        snprintf(link.host.cache.url, sizeof link.host.cache.url, "%s", urls[i]);
        snprintf(link.host.cache.token, sizeof link.host.cache.token, "token");
        all[i] = (char *)(uintptr_t)names[i];
        tickets[i] = dispatch_attach(d, names[i], 1, &link);
        welcome(d, tickets[i]);
        dispatch_find_peers(d, names[i], &all[i], 1, &peers); /* it has copied */
    }
    for (int alone = 0; alone <= 1; alone++)
        for (int i = 0; i < N; i++) {
            dispatch_find_peers(d, names[i], alone ? &all[i] : all, alone ? 1 : N, &peers);
            bool plain = false, secured = false;
            for (int k = 0; k < peers.n; k++) {
                plain |= strcmp(peers.items[k].url, urls[0]) == 0;
                secured |= strcmp(peers.items[k].url, urls[2]) == 0;
                assert_string_not_equal(peers.items[k].url, urls[3]);
            }
            assert_int_equal(plain, i == 1);
            assert_int_equal(secured, i != 2);
        }
    for (int i = 0; i < N; i++)
        dispatch_detach(d, tickets[i]);
    dispatch_free(d);
}

/* Two hosts that were made from one image, with the same id and incarnation. */
static void a_copy_of_an_executors_directory_does_not_take_its_place(void **state) {
    (void)state;
    struct dispatch *d = dispatch_new();
    struct link l = { 0 };
    struct dispatch_link first = { .send = link_send, .close = link_close, .ctx = &l, .caller = "" }, copy = first;
    char other[64];
    strcpy(first.host.hostname, "gpu-1");
    strcpy(copy.host.hostname, "gpu-2");
    const uint64_t ticket = dispatch_attach(d, "a", 5, &first);
    assert_true(dispatch_is_copy(d, "a", "gpu-2", other));
    assert_string_equal(other, "gpu-1");
    assert_int_equal(dispatch_attach(d, "a", 5, &copy), 0);
    assert_int_equal(dispatch_attach(d, "a", 6, &copy), 0);
    assert_int_equal(l.closed, 0);
    assert_false(dispatch_is_copy(d, "a", "gpu-1", other));
    const uint64_t again = dispatch_attach(d, "a", 5, &first); /* its stream was half-open */
    assert_true(again != 0 && l.closed == 1);
    dispatch_detach(d, ticket);
    dispatch_detach(d, again);
    assert_false(dispatch_is_copy(d, "a", "gpu-2", other)); /* it has moved */
    const uint64_t moved = dispatch_attach(d, "a", 6, &copy);
    assert_true(moved != 0);
    dispatch_detach(d, moved);
    dispatch_free(d);
}

static void a_ticket_finds_its_own_executor_after_others_came_and_went(void **state) {
    (void)state;
    enum { N = 100 };
    struct dispatch *d = dispatch_new();
    struct link links[N] = { 0 };
    uint64_t tickets[N], old[N];
    char id[16];
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < N; i++) {
            const struct dispatch_link link = {
                .send = link_send, .close = link_close, .ctx = &links[i], .caller = ""
            };
            snprintf(id, sizeof id, "x%d", i);
            old[i] = round > 0 ? tickets[i] : 0;
            if (round > 0)
                dispatch_detach(d, old[i]);
            tickets[i] = dispatch_attach(d, id, round, &link);
            assert_true(tickets[i] != 0 && tickets[i] != old[i]);
            dispatch_detach(d, old[i]); /* its place may belong to another executor by now */
            assert_true(dispatch_attached(d, id));
        }
    Trainyard__V1__AgentUse use = TRAINYARD__V1__AGENT_USE__INIT;
    Trainyard__V1__AgentHeartbeat beat = TRAINYARD__V1__AGENT_HEARTBEAT__INIT;
    beat.use = &use;
    for (int i = 0; i < N; i++) {
        beat.spool_bytes = 1000 + i;
        dispatch_heartbeat(d, tickets[i], &beat);
        beat.spool_bytes = 1;
        dispatch_heartbeat(d, old[i], &beat);
        dispatch_heartbeat(d, 0, &beat);
    }
    struct dispatch_uses uses;
    dispatch_use(d, &uses);
    assert_int_equal(uses.n, N);
    for (size_t i = 0; i < uses.n; i++)
        assert_int_equal(uses.items[i].spool_bytes, 1000 + atoi(uses.items[i].executor + 1));
    dispatch_uses_done(&uses);
    for (int i = 0; i < N; i++)
        dispatch_detach(d, tickets[i]);
    assert_int_equal(dispatch_count(d), 0);
    dispatch_free(d);
}

static void a_link_that_does_not_read_is_closed(void **state) {
    (void)state;
    struct dispatch *d = dispatch_new();
    struct link l = { .full = true };
    uint64_t t = attach(d, "a", 1, &l);
    welcome(d, t);
    assert_int_equal(l.closed, 1);
    l.full = false;
    welcome(d, t);
    l.full = true;
    assert_false(send_stop(d, "a"));
    assert_int_equal(l.closed, 2);
    dispatch_detach(d, t);
    dispatch_free(d);
}

static void nothing_goes_down_a_link_before_its_welcome_which_comes_once(void **state) {
    (void)state;
    struct dispatch *d = dispatch_new();
    struct link first = { 0 }, second = { 0 };
    char picked[SCHEDULER_EXECUTOR_ID_BYTES];
    const uint64_t one = attach(d, "a", 1, &first);
    assert_false(send_stop(d, "a"));
    assert_false(dispatch_pick(d, 0, picked, sizeof picked));
    welcome(d, one);
    welcome(d, one);
    assert_int_equal(first.sent, 1);
    assert_true(send_stop(d, "a") && dispatch_pick(d, 0, picked, sizeof picked));
    uint64_t t = attach(d, "a", 1, &second); /* a new stream of the same start */
    assert_false(send_stop(d, "a"));
    assert_int_equal(second.sent, 0);
    assert_int_equal(second.closed, 0);
    welcome(d, one); /* that stream is gone */
    dispatch_refuse(d, one, ST_ABORTED, "the earlier stream");
    assert_int_equal(second.sent, 0);
    assert_int_equal(second.closed, 0);
    assert_false(dispatch_is_welcomed(d, t));
    dispatch_refuse(d, t, ST_ABORTED, "this stream");
    assert_int_equal(second.closed, 1);
    dispatch_detach(d, t);
    dispatch_free(d);
}

static int woken;
static void on_wake(void *ctx) { woken += *(int *)ctx; }

static void a_wake_reaches_the_followers_of_that_job_alone(void **state) {
    (void)state;
    struct job_watchers *w = job_watchers_new();
    int one = 1, ten = 10;
    struct job_watcher a = { .job = 1, .wake = on_wake, .ctx = &one }, b = { .job = 2, .wake = on_wake, .ctx = &ten };
    job_watchers_add(w, &a);
    job_watchers_add(w, &b);
    woken = 0;
    job_watchers_notify(w, 1);
    assert_int_equal(woken, 1);
    job_watchers_notify_later(w, 2);
    job_watchers_notify_later(w, 2);
    assert_int_equal(woken, 1);
    job_watchers_flush(w);
    assert_int_equal(woken, 11);
    job_watchers_flush(w);
    assert_int_equal(woken, 11);
    job_watchers_remove(w, &b);
    job_watchers_notify(w, 2);
    assert_int_equal(woken, 11);
    job_watchers_remove(w, &a);
    job_watchers_free(w);
}

static void progress_follows_the_newest_attempt(void **state) {
    (void)state;
    struct progress *p = progress_new();
    struct progress_values v;
    assert_false(progress_get(p, 1, &v));
    progress_put(p, 1, 1, 50, "loss", 2.0);
    progress_put(p, 1, 2, 41, "loss", 2.5);
    progress_put(p, 1, 1, 51, "loss", 1.9);
    assert_true(progress_get(p, 1, &v));
    assert_int_equal(v.step, 41);
    assert_true(v.loss == 2.5);
    assert_true(isnan(v.validation_loss));
    progress_forget(p, 1);
    assert_false(progress_get(p, 1, &v));
    progress_free(p);
}

struct heard {
    char text[64];
    int done;
    status_t status;
};
static void on_text(void *ctx, const char *text) { strcat(((struct heard *)ctx)->text, text); }
static void on_done(void *ctx, status_t st, const char *executor, const char *message) {
    (void)executor;
    (void)message;
    ((struct heard *)ctx)->done++;
    ((struct heard *)ctx)->status = st;
}

static status_t start(struct samples *s, struct heard *h, int64_t *id, struct err *e) {
    Trainyard__V1__WorkerSample request = TRAINYARD__V1__WORKER_SAMPLE__INIT;
    return sample_start(s, &request, &(struct sample_sink){ .text = on_text, .done = on_done, .ctx = h }, id, e);
}

static void say(struct samples *s, const char *executor, int64_t id, const char *text, bool last) {
    Trainyard__V1__SampleOutput out = TRAINYARD__V1__SAMPLE_OUTPUT__INIT;
    out.sample = id;
    out.text = (char *)text;
    out.last = last;
    sample_output(s, executor, &out);
}

static void
a_sample_goes_to_an_executor_that_can_write_it_and_never_to_one_that_would_leave_something_out(void **state) {
    (void)state;
    struct dispatch *d = dispatch_new();
    struct samples *s = samples_new(d);
    struct link old = { 0 }, new = { 0 };
    struct heard h = { .done = 0 };
    struct err e;
    int64_t id;
    Trainyard__V1__WorkerSample request = TRAINYARD__V1__WORKER_SAMPLE__INIT;
    const struct sample_sink sink = { .text = on_text, .done = on_done, .ctx = &h };
    char uri[] = "s3://bucket/step-1";
    uint64_t one = attach(d, "a", 1, &old);
    welcome(d, one);
    request.average = true;
    assert_int_equal(sample_start(s, &request, &sink, &id, &e), ST_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "no executor is attached that writes samples of averaged weights"));
    request.directory = uri;
    assert_int_equal(sample_start(s, &request, &sink, &id, &e), ST_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "no executor is attached that reads checkpoints in a store"));
    assert_int_equal(old.sample, 0);
    struct dispatch_link link = { .send = link_send, .close = link_close, .ctx = &new, .caller = "" };
    link.host.abilities = DISPATCH_SAMPLE_AVERAGE | DISPATCH_STORE_SAMPLES;
    uint64_t two = dispatch_attach(d, "b", 1, &link);
    welcome(d, two);
    assert_int_equal(sample_start(s, &request, &sink, &id, &e), ST_OK);
    assert_true(old.sample == 0 && new.sample == id);
    sample_stop(s, id);
    samples_free(s);
    dispatch_detach(d, one);
    dispatch_detach(d, two);
    dispatch_free(d);
}

static void the_output_of_a_sample_is_accepted_from_its_own_executor_only(void **state) {
    (void)state;
    struct dispatch *d = dispatch_new();
    struct samples *s = samples_new(d);
    struct link l = { 0 };
    struct heard h = { .done = 0 };
    struct err e;
    int64_t id;
    assert_int_equal(start(s, &h, &id, &e), ST_UNAVAILABLE);
    uint64_t t = attach(d, "a", 1, &l);
    welcome(d, t);
    assert_int_equal(start(s, &h, &id, &e), ST_OK);
    assert_int_equal(l.sample, id);
    say(s, "b", id, "forged", false);
    say(s, "a", id, "To be", false);
    say(s, "a", id, " or", true);
    say(s, "a", id, " late", false);
    assert_string_equal(h.text, "To be or");
    assert_int_equal(h.done, 1);
    assert_int_equal(h.status, ST_OK);

    h = (struct heard){ .done = 0 };
    assert_int_equal(start(s, &h, &id, &e), ST_OK);
    sample_executor_gone(s, "a");
    assert_int_equal(h.status, ST_UNAVAILABLE);
    sample_stop(s, id);
    assert_int_equal(l.last, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START_SAMPLE);
    dispatch_detach(d, t);
    samples_free(s);
    dispatch_free(d);
}

static void samples_are_bounded_and_stop_when_their_client_has_gone(void **state) {
    (void)state;
    struct dispatch *d = dispatch_new();
    struct samples *s = samples_new(d);
    struct link l = { 0 };
    struct heard h = { .done = 0 };
    struct err e;
    int64_t ids[SAMPLE_MAX], over;
    uint64_t t = attach(d, "a", 1, &l);
    welcome(d, t);
    for (int i = 0; i < SAMPLE_MAX; i++)
        assert_int_equal(start(s, &h, &ids[i], &e), ST_OK);
    assert_int_equal(start(s, &h, &over, &e), ST_RESOURCE_EXHAUSTED);
    sample_stop(s, ids[3]);
    assert_int_equal(l.last, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP_SAMPLE);
    say(s, "a", ids[3], "late", true);
    assert_int_equal(h.done, 0);
    assert_int_equal(start(s, &h, &over, &e), ST_OK);
    dispatch_detach(d, t);
    samples_free(s);
    dispatch_free(d);
}

/* ---- the loop's inbox ---- */

static void a_full_inbox_refuses_by_bytes_until_one_is_taken(void **state) {
    (void)state;
    struct inbox *in = inbox_new();
    struct inbox_item large = { .kind = INBOX_AGENT, .message_bytes = INBOX_BYTES / 4 };
    struct inbox_item small = { .kind = INBOX_AGENT, .message_bytes = 1 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(inbox_put(in, &large, false, NULL), ST_OK);
    struct err e;
    assert_int_equal(inbox_put(in, &small, false, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, "the controller is behind by 4 events");
    inbox_item_free(inbox_take(in, 0));
    assert_int_equal(inbox_put(in, &small, false, NULL), ST_OK);
    assert_int_equal(inbox_put(in, &large, false, NULL), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(inbox_put(in, &large, true, NULL), ST_OK);
    inbox_free(in);
}

static status_t put_hello(struct inbox *in, const char *executor, int64_t incarnation, size_t bytes) {
    struct inbox_item item = { .kind = INBOX_AGENT, .incarnation = incarnation, .message_bytes = bytes };
    snprintf(item.executor, sizeof item.executor, "%s", executor);
    item.message = calloc(1, sizeof *item.message);
    trainyard__v1__agent_message__init(item.message);
    item.message->message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO;
    item.message->hello = calloc(1, sizeof *item.message->hello);
    trainyard__v1__agent_hello__init(item.message->hello);
    status_t st = inbox_put(in, &item, false, NULL);
    if (st != ST_OK)
        trainyard__v1__agent_message__free_unpacked(item.message, NULL);
    return st;
}

static void expect_hello(struct inbox *in, const char *executor, int64_t incarnation) {
    struct inbox_item *item = inbox_take(in, 0);
    assert_non_null(item);
    assert_string_equal(item->executor, executor);
    assert_int_equal(item->incarnation, incarnation);
    inbox_item_free(item);
}

static void messages_of_an_earlier_stream_are_handled_before_the_next_hello(void **state) {
    (void)state;
    struct inbox *in = inbox_new();
    struct inbox_item said = { .kind = INBOX_AGENT, .executor = "a", .incarnation = 1, .job = 7 };
    assert_int_equal(put_hello(in, "a", 1, 10), ST_OK);
    assert_int_equal(inbox_put(in, &said, false, NULL), ST_OK);
    assert_int_equal(put_hello(in, "a", 1, 20), ST_OK);
    struct inbox_item *item = inbox_take(in, 0);
    assert_int_equal(item->job, 7);
    inbox_item_free(item);
    expect_hello(in, "a", 1);
    assert_null(inbox_take(in, 0));
    inbox_free(in);
}

static void a_hello_drops_the_one_that_waits(void **state) {
    (void)state;
    struct inbox *in = inbox_new();
    struct inbox_item large = { .kind = INBOX_AGENT, .message_bytes = INBOX_BYTES - 20 };
    assert_int_equal(put_hello(in, "a", 1, 10), ST_OK);
    assert_int_equal(put_hello(in, "b", 1, 10), ST_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(put_hello(in, "a", 2, 10), ST_OK);
    assert_int_equal(inbox_count(in), 2);
    assert_int_equal(inbox_put(in, &large, false, NULL), ST_OK); /* the bytes of removed items no longer count */
    assert_int_equal(put_hello(in, "a", 3, 10), ST_OK);          /* an item of the same size fits */
    assert_int_equal(put_hello(in, "a", 4, 11), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(put_hello(in, "c", 1, 10), ST_RESOURCE_EXHAUSTED);
    expect_hello(in, "b", 1);
    inbox_item_free(inbox_take(in, 0));
    assert_int_equal(put_hello(in, "b", 1, 10), ST_OK);
    assert_int_equal(put_hello(in, "b", 0, 0), ST_OK); /* of an older incarnation, and late: refused */
    expect_hello(in, "a", 3);                          /* the refused hello has replaced nothing */
    expect_hello(in, "b", 1);
    expect_hello(in, "b", 0);
    assert_int_equal(put_hello(in, "a", 4, 10), ST_OK);
    inbox_free(in);
}

static void a_closed_inbox_replies_to_the_requests_that_wait_and_refuses_later_items(void **state) {
    (void)state;
    struct err e = { "" };
    const char *reason;
    struct inbox *in = inbox_new();
    struct loop_request *request = loop_request_new("controller-cancel-1-x", "");
    struct inbox_item cancel = { .kind = INBOX_CANCEL, .job = 1, .request = request };
    assert_int_equal(put_hello(in, "a", 1, 10), ST_OK);
    assert_int_equal(inbox_put(in, &cancel, false, NULL), ST_OK);
    inbox_close(in, "this controller no longer leads");
    assert_int_equal(loop_request_wait(request, deadline_in(60000), &reason, &e), ST_UNAVAILABLE);
    assert_string_equal(e.msg, "this controller no longer leads");
    loop_request_unref(request);
    assert_int_equal(inbox_count(in), 0);
    cancel.request = NULL;
    assert_int_equal(inbox_put(in, &cancel, true, &e), ST_UNAVAILABLE);
    assert_string_equal(e.msg, "this controller no longer leads");
    inbox_free(in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_read_whole_or_refused),
        cmocka_unit_test(a_page_token_is_valid_for_its_own_filter_only),
        cmocka_unit_test(addresses_are_complete_when_each_rank_has_offered_and_belong_to_one_attempt),
        cmocka_unit_test(the_largest_addresses_of_the_largest_gang_fit_into_one_message),
        cmocka_unit_test(a_newer_start_replaces_the_link_and_an_older_one_is_refused),
        cmocka_unit_test(an_executor_is_its_callers_while_it_is_attached),
        cmocka_unit_test(the_hosts_of_an_attempt_know_the_same_readers),
        cmocka_unit_test(the_other_peers_are_the_hosts_that_copied_last),
        cmocka_unit_test(a_plain_cache_is_told_to_executors_of_its_own_host_only),
        cmocka_unit_test(a_copy_of_an_executors_directory_does_not_take_its_place),
        cmocka_unit_test(a_ticket_finds_its_own_executor_after_others_came_and_went),
        cmocka_unit_test(a_link_that_does_not_read_is_closed),
        cmocka_unit_test(nothing_goes_down_a_link_before_its_welcome_which_comes_once),
        cmocka_unit_test(a_wake_reaches_the_followers_of_that_job_alone),
        cmocka_unit_test(progress_follows_the_newest_attempt),
        cmocka_unit_test(
            a_sample_goes_to_an_executor_that_can_write_it_and_never_to_one_that_would_leave_something_out),
        cmocka_unit_test(the_output_of_a_sample_is_accepted_from_its_own_executor_only),
        cmocka_unit_test(samples_are_bounded_and_stop_when_their_client_has_gone),
        cmocka_unit_test(a_full_inbox_refuses_by_bytes_until_one_is_taken),
        cmocka_unit_test(a_hello_drops_the_one_that_waits),
        cmocka_unit_test(messages_of_an_earlier_stream_are_handled_before_the_next_hello),
        cmocka_unit_test(a_closed_inbox_replies_to_the_requests_that_wait_and_refuses_later_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

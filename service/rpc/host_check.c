/* Checks a spec on attached executors, and decides from their answers whether the job is refused.
 *
 * Hosts are asked one after another, until one lacks nothing, the deadline has passed, or HOST_CHECK_MAX_HOSTS were
 * asked. Each answer is a list of problems, and each problem belongs either to the spec (it is the same on every host)
 * or to the host (of_host: something that this host lacks).
 *   a problem of the spec    refuses the job
 *   a problem of a host      is a remark in `unchecked` if another host may run the job, or if some host was not asked
 *                            or did not finish its check. Otherwise it refuses the job
 *   an unfinished check      is a remark with the part that was not checked
 *
 * host_check_remember keeps the good results for a minute, by a digest of the folders and of the fields that a host
 * checks: a sweep submits many jobs that differ only in other fields. The number of calls that check at the same time
 * is limited (spec_checks_enter). */
#include "service/rpc/host_check.h"

#include "api/spec/digest.h"
#include "api/spec/problems.h"
#include "base/limits.h"
#include "service/controller/attempt_secrets.h"
#include "service/controller/check_cache.h"
#include "service/controller/checkpoint_files.h"
#include "service/controller/spec_check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The time for one host's answer; the caller's deadline limits all hosts together. */
enum { HOST_CHECK_MS = 6000 };

void host_answer_done(struct host_answer *a) {
    spec_problems_done(&a->problems);
    spec_problems_done(&a->unchecked);
    if (a->plan)
        trainyard__v1__plan__free_unpacked(a->plan, NULL);
    a->plan = NULL;
}

/* The answers of the hosts that were asked. */
struct host_results {
    struct dispatch_picked hosts[HOST_CHECK_MAX_HOSTS];
    struct spec_check_result answers[HOST_CHECK_MAX_HOSTS];
    status_t status[HOST_CHECK_MAX_HOSTS];
    struct err why[HOST_CHECK_MAX_HOSTS];
    int n;
    bool others; /* a host with slots of the kind was not asked */
};

static void host_results_done(struct host_results *h) {
    for (int i = 0; i < h->n; i++)
        spec_check_result_done(&h->answers[i]);
}

/* ---- asking hosts ---- */

static bool is_cuda(const struct host_check *check) { return strcmp(check->spec->resources->accelerator, "cuda") == 0; }

static status_t checkpoints_of(struct controller *c, const Trainyard__V1__JobSpec *spec, char ret[PATH_MAX],
                               struct err *e) {
    if (*spec->checkpoint->directory)
        return spec_uri_path(spec->checkpoint->directory, ret, PATH_MAX, e);
    snprintf(ret, PATH_MAX, "%s", controller_place(c)->directory);
    return ST_OK;
}

static bool lacks_nothing(const struct spec_check_result *a) {
    for (size_t i = 0; i < a->n; i++)
        if (a->problems[i].of_host)
            return false;
    return true;
}

/* The host lacks nothing, as far as its check has run. No other host is asked then, even if the check did not finish:
 * another host would not be faster. */
static bool may_run(const struct host_results *h, int i) {
    const bool checked = h->status[i] == ST_OK || h->status[i] == ST_DEADLINE_EXCEEDED || h->status[i] == ST_INTERNAL;
    return checked && lacks_nothing(&h->answers[i]);
}

/* The keys with which a host looks for remote data. A key that is missing was reported before: without all of them
 * hosts do not look. */
struct store_keys {
    struct attempt_secrets encrypted;
    Trainyard__V1__AttemptStart clear;
};

static void store_keys_done(struct store_keys *k) {
    attempt_secrets_wipe(&k->clear);
    attempt_secrets_done(&k->encrypted);
}

static void store_keys_read(struct controller *c, const Trainyard__V1__JobSpec *spec, struct store_keys *ret) {
    struct err missing, lacks_key;
    *ret = (struct store_keys){ .clear = TRAINYARD__V1__ATTEMPT_START__INIT };
    if (spec->program || attempt_secrets_read(controller_store(c), controller_keyring(c), spec, &ret->encrypted,
                                              &missing, &lacks_key, NULL) != ST_OK)
        return;
    if (attempt_secrets_open(&ret->encrypted, controller_keyring(c), &ret->clear, NULL) != ST_OK)
        attempt_secrets_wipe(&ret->clear);
}

static void check_each(struct controller *c, const struct host_check *check, const Trainyard__V1__WorkerCheck *request,
                       struct host_results *h) {
    struct dispatch *d = controller_dispatch(c);
    while (h->n < HOST_CHECK_MAX_HOSTS && clock_mono_ms() < check->deadline &&
           dispatch_pick_checker(d, is_cuda(check), h->hosts, (size_t)h->n, &h->hosts[h->n])) {
        const int i = h->n++;
        const deadline_ms_t own = deadline_in(HOST_CHECK_MS);
        h->status[i] = spec_check_run(controller_spec_checks(c), h->hosts[i].executor, request,
                                      own < check->deadline ? own : check->deadline, &h->answers[i], &h->why[i]);
        if (may_run(h, i))
            break;
    }
    h->others = dispatch_has_checker(d, is_cuda(check), h->hosts, (size_t)h->n);
}

static status_t check_on_hosts(struct controller *c, const struct host_check *check, struct host_results *h,
                               struct err *e) {
    char checkpoints[PATH_MAX];
    struct store_keys keys;
    TRY(checkpoints_of(c, check->spec, checkpoints, e));
    Trainyard__V1__WorkerCheck request = TRAINYARD__V1__WORKER_CHECK__INIT;
    request.spec = (Trainyard__V1__JobSpec *)(uintptr_t)check->spec;
    if (!check->skip_folder)
        request.checkpoint_directory = checkpoints;
    if (strncmp(check->init_directory, "s3://", 5) == 0)
        request.weights = (char *)(uintptr_t)check->init_directory;
    else
        request.init_directory = (char *)(uintptr_t)check->init_directory;
    request.fork_directory = (char *)(uintptr_t)check->fork_directory;
    request.plan = check->plan;
    store_keys_read(c, check->spec, &keys);
    request.secrets = keys.clear.secrets;
    request.n_secrets = keys.clear.n_secrets;
    check_each(c, check, &request, h);
    store_keys_done(&keys);
    return ST_OK;
}

/* ---- the decision ---- */

static bool is_in(const struct spec_problems *p, const char *line) {
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->lines[i], line) == 0)
            return true;
    return false;
}

static void add_once(struct spec_problems *p, const char *line) {
    if (!is_in(p, line))
        problem_add(p, "%s", line);
}

static bool has_problem(const struct spec_check_result *a, const struct spec_check_problem *found) {
    for (size_t i = 0; i < a->n; i++)
        if (a->problems[i].of_host == found->of_host && strcmp(a->problems[i].text, found->text) == 0)
            return true;
    return false;
}

/* Writes the hosts that report this problem: "host-1 and host-2". */
static void print_hosts(const struct host_results *h, const struct spec_check_problem *found, char *ret, size_t cap) {
    size_t used = 0;
    for (int i = 0; i < h->n && used < cap; i++)
        if (has_problem(&h->answers[i], found))
            used += (size_t)snprintf(ret + used, cap - used, "%s%s", used ? " and " : "", h->hosts[i].hostname);
}

/* Every host with slots of the kind was asked, and every check finished. */
static bool all_checked(const struct host_results *h) {
    bool all = !h->others;
    for (int i = 0; i < h->n; i++)
        all = all && h->status[i] == ST_OK;
    return all;
}

/* The check of one host finished, and the host lacks nothing. */
static bool is_good(const struct host_results *h) {
    for (int i = 0; i < h->n; i++)
        if (h->status[i] == ST_OK && lacks_nothing(&h->answers[i]))
            return true;
    return false;
}

/* A problem of a host is a reason to refuse the job only if every host was checked and none may run the job. */
static void settle(const struct host_results *h, struct host_answer *ret) {
    const bool all = all_checked(h);
    int good = -1;
    for (int i = 0; i < h->n && good < 0; i++)
        good = may_run(h, i) ? i : -1;
    ret->good = is_good(h);
    for (int i = 0; i < h->n; i++)
        for (size_t p = 0; p < h->answers[i].n; p++) {
            const struct spec_check_problem *found = &h->answers[i].problems[p];
            char hosts[HOST_CHECK_MAX_HOSTS * 72], line[SPEC_PROBLEM_BYTES];
            print_hosts(h, found, hosts, sizeof hosts);
            snprintf(line, sizeof line, found->of_host ? "%.400s (on host %s)" : "%.400s", found->text, hosts);
            if (found->of_host && good >= 0)
                problem_add(&ret->unchecked, "%s has what host %s lacks: %s", h->hosts[good].hostname,
                            h->hosts[i].hostname, found->text);
            else if (found->of_host && !all)
                add_once(&ret->unchecked, line);
            else
                add_once(&ret->problems, line);
        }
    if (good >= 0 && *h->answers[good].unchecked)
        problem_add(&ret->unchecked, "%s", h->answers[good].unchecked);
    for (int i = 0; i < h->n; i++)
        if (h->status[i] != ST_OK && (good < 0 || good == i))
            problem_add(&ret->unchecked, "%s, by host %s: %s", h->answers[i].part, h->hosts[i].hostname, h->why[i].msg);
}

static const char *checked_parts(const struct host_check *check) {
    return spec_is_program(check->spec) ? "the program's command" : "data, memory and the folder for checkpoints";
}

static status_t ask(struct controller *c, const struct host_check *check, struct host_answer *ret, struct err *e) {
    struct host_results h = { 0 };
    status_t st = check_on_hosts(c, check, &h, e);
    if (st == ST_OK)
        settle(&h, ret);
    ret->asked = h.n;
    for (int i = 0; i < h.n && !ret->plan; i++)
        ret->plan = take_ptr(&h.answers[i].plan);
    if (st == ST_OK && h.n == 0)
        problem_add(&ret->unchecked, "%s: no executor is attached that could", checked_parts(check));
    host_results_done(&h);
    return st;
}

static status_t busy(struct host_answer *ret) {
    ret->busy = true;
    problem_add(&ret->unchecked, "%s", HOST_CHECK_BUSY);
    return ST_OK;
}

status_t host_check_ask(struct controller *c, const struct host_check *check, struct host_answer *ret, struct err *e) {
    if (!spec_checks_enter(controller_spec_checks(c)))
        return busy(ret);
    status_t st = ask(c, check, ret, e);
    spec_checks_leave(controller_spec_checks(c));
    return st;
}

/* ---- remembered results ---- */

static void print_note(const struct spec_problems *unchecked, char ret[CHECK_CACHE_NOTE_BYTES]) {
    snprintf(ret, CHECK_CACHE_NOTE_BYTES, "%s", unchecked->n ? unchecked->lines[0] : "");
}

static status_t key_of(struct controller *c, const struct host_check *check, uint8_t ret[SHA256_BYTES], struct err *e) {
    char checkpoints[PATH_MAX], more[3 * PATH_MAX];
    TRY(checkpoints_of(c, check->spec, checkpoints, e));
    snprintf(more, sizeof more, "%s\n%s\n%s", checkpoints, check->init_directory, check->fork_directory);
    spec_digest_checked(check->spec, more, ret);
    return ST_OK;
}

static status_t ask_and_put(struct controller *c, const struct host_check *check, const uint8_t key[SHA256_BYTES],
                            struct host_answer *ret, struct err *e) {
    char note[CHECK_CACHE_NOTE_BYTES] = "";
    status_t st = ask(c, check, ret, e);
    print_note(&ret->unchecked, note);
    check_cache_put(controller_check_cache(c), key, st == ST_OK && ret->good && ret->problems.n == 0, note);
    return st;
}

static status_t remember(struct controller *c, const struct host_check *check, const uint8_t key[SHA256_BYTES],
                         struct host_answer *ret, struct err *e) {
    char note[CHECK_CACHE_NOTE_BYTES] = "";
    switch (check_cache_get(controller_check_cache(c), key, check->deadline, note)) {
    case CHECK_CACHE_MISS: return ask_and_put(c, check, key, ret, e);
    case CHECK_CACHE_TIMEOUT:
        problem_add(&ret->unchecked, "%s: the hosts did not answer in time", checked_parts(check));
        return ST_OK;
    case CHECK_CACHE_HIT:
        if (*note)
            problem_add(&ret->unchecked, "%s", note);
        return ST_OK;
    }
    return ST_OK;
}

status_t host_check_remember(struct controller *c, const struct host_check *check, struct host_answer *ret,
                             struct err *e) {
    uint8_t key[SHA256_BYTES];
    char note[CHECK_CACHE_NOTE_BYTES] = "";
    if (!dispatch_has_checker(controller_dispatch(c), is_cuda(check), NULL, 0))
        return ask(c, check, ret, e);
    TRY(key_of(c, check, key, e));
    if (check_cache_find(controller_check_cache(c), key, note)) { /* a remembered result needs no wait */
        if (*note)
            problem_add(&ret->unchecked, "%s", note);
        return ST_OK;
    }
    if (!spec_checks_enter(controller_spec_checks(c)))
        return busy(ret);
    status_t st = remember(c, check, key, ret, e);
    spec_checks_leave(controller_spec_checks(c));
    return st;
}

/* An entry is a text of an attempt with the ranks that wait for it, and a process. A process that is killed is started
 * again, a few times; then the ranks are told, and encode in memory. A process that makes no progress is killed after
 * the time that a rank has: its records say once a second how far it is. */
#include "executor/agent/text_encoders.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "executor/agent/data_exclusions.h"
#include "executor/agent/job_sandboxes.h"
#include "executor/agent/job_user.h"
#include "executor/agent/worker_launch.h"
#include "executor/sandbox/landlock_rights.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STARTS_MAX = 3, PROGRESS_SPARE_MS = 2000, WHY_BYTES = 480, MODE = 0711 };

static const char FOLDER[] = "texts"; /* of the user who encodes, in a folder of the agent's */

struct text_encoder {
    struct text_encoders *list;
    struct text_encoder *next;
    int64_t job;
    int32_t attempt;
    int32_t *ranks; /* that wait, in the order in which they asked */
    size_t n_ranks;
    uint8_t *order; /* the packed EncodeText */
    size_t n_order;
    struct worker_process *process;
    struct reactor_timer limit;
    int64_t progress;
    int starts;
    bool ended;          /* the last record has come */
    char why[WHY_BYTES]; /* of the end; empty: the text is in the cache */
    bool unwanted;       /* the attempt has ended */
};

struct text_encoders {
    const struct host *host;
    struct text_encoders_owner owner;
    struct text_encoder *first;
    int64_t number; /* of the last process, for the name of its control group */
};

static void encoder_free(struct text_encoder *t) {
    for (struct text_encoder **link = &t->list->first; *link; link = &(*link)->next)
        if (*link == t) {
            *link = t->next;
            break;
        }
    reactor_timer_cancel(t->list->host->loop, &t->limit);
    worker_process_close(t->process);
    free(t->ranks);
    free(t->order);
    free(t);
}

/* ---- reports ---- */

static void report(const struct text_encoder *t, size_t n, Trainyard__V1__TextEncoded *encoded) {
    for (size_t i = 0; i < n && !t->unwanted; i++)
        t->list->owner.encoded(t->list->owner.ctx, t->job, t->attempt, t->ranks[i], encoded);
}

static void finish(struct text_encoder *t) {
    Trainyard__V1__TextEncoded last = TRAINYARD__V1__TEXT_ENCODED__INIT;
    last.last = true;
    last.message = t->why;
    if (*t->why && !t->unwanted)
        log_event(LOG_WARN, "text_not_encoded", "job", LOG_INT(t->job), "attempt", LOG_INT(t->attempt), "reason",
                  LOG_STR(t->why), NULL);
    report(t, t->n_ranks, &last);
    encoder_free(t);
}

static void limit_set(struct text_encoder *t) {
    const struct host *host = t->list->host;
    reactor_timer_set(host->loop, &t->limit, host->options->hang_ms + PROGRESS_SPARE_MS);
}

static void limit_fire(void *ctx) {
    struct text_encoder *t = ctx;
    if (t->process)
        worker_process_kill(t->process, "made no progress and was killed");
}

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct text_encoder *t = ctx;
    switch (record->record_case) {
    case TRAINYARD__V1__WORKER_RECORD__RECORD_TEXT_ENCODED:
        record->text_encoded->last = false;
        report(t, 1, record->text_encoded);
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_ALIVE:
        if (record->alive->progress != t->progress)
            limit_set(t);
        t->progress = record->alive->progress;
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_END:
        t->ended = true;
        snprintf(t->why, sizeof t->why, "%s", record->end->message);
        if (!*t->why && record->end->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
            snprintf(t->why, sizeof t->why, "the process that encodes the text gave no reason");
        break;
    default: break;
    }
}

static void on_spooled(void *ctx, bool urgent) {
    (void)ctx;
    (void)urgent;
}

static status_t encoder_start(struct text_encoder *t, struct err *e);

static void on_ended(void *ctx, const struct exit_status *exit, bool drained) {
    struct text_encoder *t = ctx;
    char sentence[160];
    struct err why;
    if (!drained)
        return;
    exit_status_sentence(exit, worker_process_killed_because(t->process), sentence, sizeof sentence);
    t->process = worker_process_close(t->process);
    reactor_timer_cancel(t->list->host->loop, &t->limit);
    if (!t->ended && !t->unwanted && t->starts < STARTS_MAX && encoder_start(t, &why) == ST_OK)
        return;
    if (!t->ended)
        snprintf(t->why, sizeof t->why, "the process that encodes the text %s", sentence);
    finish(t);
}

/* ---- the start ---- */

/* Those of the ranks that wait for it. */
static int threads_of(const struct text_encoder *t) {
    const struct inventory *inv = &t->list->host->inventory;
    const int64_t threads = (int64_t)inv->threads_per_rank * (int64_t)t->n_ranks;
    return threads < inv->cores ? (int)threads : inv->cores;
}

static status_t order_send(struct text_encoder *t, const Trainyard__V1__EncodeText *text, struct err *e) {
    const struct host *host = t->list->host;
    const struct agent_options *o = host->options;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    Trainyard__V1__WorkerEncode order = TRAINYARD__V1__WORKER_ENCODE__INIT;
    struct data_exclusions exclusions;
    Trainyard__V1__SandboxOrder sandbox;
    data_exclusions_find(host, &exclusions);
    order.text = (Trainyard__V1__EncodeText *)(uintptr_t)text;
    order.token_cache = (char *)(uintptr_t)host->token_cache;
    order.token_cache_bytes = o->token_cache_bytes;
    order.threads = threads_of(t);
    order.data_cache = (char *)(uintptr_t)(*host->no_data.msg ? "" : host->data_cache);
    order.data_roots = (char **)(uintptr_t)o->data_roots;
    order.n_data_roots = o->n_data_roots;
    order.data_except = exclusions.list;
    order.n_data_except = exclusions.n;
    order.checkpoint_roots = (char **)(uintptr_t)o->checkpoint_roots;
    order.n_checkpoint_roots = o->n_checkpoint_roots;
    order.sandbox = job_sandbox_order(o, &sandbox);
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_ENCODE;
    command.encode = &order;
    return worker_process_send(t->process, &command, e);
}

static status_t encoder_start(struct text_encoder *t, struct err *e) {
    const struct worker_process_owner owner = {
        .ctx = t, .record = on_record, .spooled = on_spooled, .ended = on_ended
    };
    char group[40];
    Trainyard__V1__EncodeText *text = trainyard__v1__encode_text__unpack(NULL, t->n_order, t->order);
    if (!text)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the names of a text's files");
    snprintf(group, sizeof group, "encode-%" PRId64, ++t->list->number);
    t->starts++;
    t->progress = -1;
    status_t st = worker_launch(
        t->list->host, &(struct worker_launch){ .job = JOB_USER_REQUEST, .threads = threads_of(t), .group = group },
        &owner, &t->process, e);
    if (st == ST_OK)
        st = order_send(t, text, e);
    trainyard__v1__encode_text__free_unpacked(text, NULL);
    if (st == ST_OK)
        limit_set(t);
    else
        t->process = worker_process_close(t->process);
    return st;
}

static void rank_add(struct text_encoder *t, int32_t rank) {
    for (size_t i = 0; i < t->n_ranks; i++)
        if (t->ranks[i] == rank)
            return;
    t->ranks = alloc_grow(t->ranks, t->n_ranks, sizeof *t->ranks);
    t->ranks[t->n_ranks++] = rank;
}

static struct text_encoder *encoder_find(const struct text_encoders *es, int64_t job, int32_t attempt,
                                         const uint8_t *order, size_t n) {
    for (struct text_encoder *t = es->first; t; t = t->next)
        if (t->job == job && t->attempt == attempt && !t->unwanted && t->n_order == n &&
            memcmp(t->order, order, n) == 0)
            return t;
    return NULL;
}

static bool waits(const struct text_encoder *t, int64_t job, int32_t attempt, int32_t rank) {
    bool found = false;
    for (size_t i = 0; i < t->n_ranks; i++)
        found |= t->ranks[i] == rank;
    return found && t->job == job && t->attempt == attempt && !t->unwanted;
}

/* Why this rank gets no process now; NULL: it may. A rank that asks for many texts at once is not one of ours. */
static const char *reason_against(const struct text_encoders *es, int64_t job, int32_t attempt, int32_t rank) {
    int n = 0;
    for (const struct text_encoder *t = es->first; t; t = t->next, n++)
        if (waits(t, job, attempt, rank))
            return "the rank already waits for another text";
    return n < TEXT_ENCODERS_MAX ? NULL : "this host already encodes 64 texts, its maximum";
}

static void refuse(const struct text_encoders *es, int64_t job, int32_t attempt, int32_t rank, const char *why) {
    Trainyard__V1__TextEncoded last = TRAINYARD__V1__TEXT_ENCODED__INIT;
    last.last = true;
    last.message = (char *)(uintptr_t)why;
    log_event(LOG_WARN, "text_not_encoded", "job", LOG_INT(job), "attempt", LOG_INT(attempt), "reason", LOG_STR(why),
              NULL);
    es->owner.encoded(es->owner.ctx, job, attempt, rank, &last);
}

void text_encoders_start(struct text_encoders *es, int64_t job, int32_t attempt, int32_t rank,
                         const Trainyard__V1__EncodeText *text) {
    const size_t n = trainyard__v1__encode_text__get_packed_size(text);
    uint8_t *order = alloc_zeroed(n + 1, 1);
    struct err why;
    trainyard__v1__encode_text__pack(text, order);
    struct text_encoder *t = encoder_find(es, job, attempt, order, n);
    if (t) {
        free(order);
        rank_add(t, rank);
        return;
    }
    const char *against = reason_against(es, job, attempt, rank);
    if (against) {
        free(order);
        refuse(es, job, attempt, rank, against);
        return;
    }
    t = alloc_zeroed(1, sizeof *t);
    *t = (struct text_encoder){
        .list = es, .next = es->first, .job = job, .attempt = attempt, .order = order, .n_order = n
    };
    t->limit = (struct reactor_timer){ .fire = limit_fire, .ctx = t };
    es->first = t;
    rank_add(t, rank);
    if (encoder_start(t, &why) == ST_OK)
        return;
    snprintf(t->why, sizeof t->why, "%s", why.msg);
    finish(t);
}

void text_encoders_remove(struct text_encoders *es, int64_t job, int32_t attempt) {
    for (struct text_encoder *t = es->first; t; t = t->next)
        if (t->job == job && t->attempt == attempt && !t->unwanted) {
            t->unwanted = true;
            worker_process_kill(t->process, "was killed because the attempt has ended");
        }
}

/* ---- the cache ---- */

/* Of another user, who may have changed them, and whose parts and lock the next one cannot open. */
static status_t folder_empty(const char *path, struct err *e) {
    DIR *d = opendir(path);
    status_t st = d ? ST_OK : err_errno(e, "list '%s'", path);
    for (const struct dirent *entry; st == ST_OK && (entry = readdir(d));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(d), entry->d_name, 0) < 0 && errno != ENOENT)
            st = err_errno(e, "remove '%s/%s', which belongs to another user", path, entry->d_name);
    if (d)
        closedir(d);
    return st;
}

/* Gives the folder to the user of the processes that encode; others may open its files by their names. An agent that
 * may give folders away, but not change those of others, has set the mode before. */
static status_t folder_give(const struct host *host, struct err *e) {
    const uid_t uid = job_user_uid(host->options, JOB_USER_REQUEST);
    struct stat st;
    if (lstat(host->token_cache, &st) < 0 || ((st.st_mode & 07777) != MODE && chmod(host->token_cache, MODE) < 0) ||
        (st.st_uid != uid && st.st_uid != geteuid() && chown(host->token_cache, geteuid(), (gid_t)-1) < 0))
        return err_errno(e, "take '%s' from the user who encoded texts before", host->token_cache);
    if (st.st_uid != uid)
        TRY(folder_empty(host->token_cache, e));
    if (st.st_uid != uid && chown(host->token_cache, uid, (gid_t)-1) < 0)
        return err_errno(e, "give '%s' to the user who encodes texts", host->token_cache);
    return ST_OK;
}

/* A folder belongs to the user of the ranks, unless each job has a user of its own. Then only Landlock keeps ranks from
 * changing what other jobs read. An agent that runs jobs as its own user without a sandbox has given them all its files
 * anyway. */
static status_t ranks_check(const struct agent_options *o, struct err *e) {
    const bool off = o->sandbox == SANDBOX_OFF;
    if (job_user_is_own(o) || (off && !o->worker_user) || (!off && landlock_abi() >= LANDLOCK_ABI_FILES))
        return ST_OK;
    return err_set(e, ST_FAILED_PRECONDITION,
                   "jobs could change the tokens of other jobs, because %s and all jobs run as one user: give each job "
                   "a user of its own (--job-users)%s",
                   off ? "--sandbox is off" : "the kernel has no Landlock",
                   off ? ", or turn the sandbox on" : ", or use a kernel with Landlock");
}

static status_t folder_make(struct host *host, struct err *e) {
    const struct agent_options *o = host->options;
    TRY(ranks_check(o, e));
    if ((o->worker_user || job_user_is_own(o)) && !o->token_cache)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "its workers do not reach its directory, and it was started without --token-cache");
    char above[PATH_MAX];
    if (snprintf(above, sizeof above, "%s%s", o->token_cache ? o->token_cache : directory_path(host->directory),
                 o->token_cache ? "" : "/tokens") >= (int)sizeof above ||
        snprintf(host->token_cache, sizeof host->token_cache, "%s/%s", above, FOLDER) >= (int)sizeof host->token_cache)
        return err_set(e, ST_INVALID_ARGUMENT, "--token-cache: the path is too long");
    TRY(dir_make(above, 0755, e));
    if (chmod(above, 0755) < 0) /* who runs jobs may pass */
        return err_errno(e, "open the folder '%s' to all users", above);
    TRY(dir_make(host->token_cache, MODE, e));
    return folder_give(host, e);
}

void text_encoders_open_cache(struct host *host) {
    struct err why;
    if (host->options->token_cache_bytes > 0 && folder_make(host, &why) == ST_OK)
        return;
    if (host->options->token_cache_bytes > 0)
        log_event(LOG_WARN, "no_token_cache", "reason", LOG_STR(why.msg), NULL);
    host->token_cache[0] = '\0';
}

bool text_encoders_is_empty(const struct text_encoders *es) { return !es->first; }

struct text_encoders *text_encoders_new(const struct host *host, const struct text_encoders_owner *owner) {
    struct text_encoders *es = alloc_zeroed(1, sizeof *es);
    *es = (struct text_encoders){ .host = host, .owner = *owner };
    return es;
}

struct text_encoders *text_encoders_free(struct text_encoders *es) {
    while (es && es->first)
        encoder_free(es->first);
    free(es);
    return NULL;
}

/* A copy is an entry of a list with at most one process: first the one that fetches, and after the end of the attempt
 * one that removes. If the attempt ends while the fetch still runs, the process is killed, and its end begins the
 * removal. The entry is freed when the removal has ended. A removal that fails is logged; the next agent removes the
 * rest.
 *
 * The folder of the copies is made for the first copy, and again if something has removed it. Its path is written to
 * the agent's directory before that copy, so that the next agent finds it, whatever its TMPDIR is. The folder is locked
 * while the agent runs: systemd-tmpfiles leaves a locked folder alone. */
#include "executor/agent/code_copies.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "executor/agent/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FETCH_MS = 9 * 60 * 1000, /* less than the limit for the start of an attempt */
    REMOVE_MS = 10 * 60 * 1000,
    NAME_RANDOM_BYTES = 4,
    PREFIX_BYTES = 64,
};
#define COPIES_PREFIX "trainyard-code-"

struct copy {
    struct code_copies *list;
    struct copy *next;
    int64_t job;
    int32_t attempt;
    char *path;
    struct worker_process *process; /* NULL: none runs */
    struct reactor_timer limit;
    bool removing; /* its process removes it */
    bool unwanted; /* the attempt has ended */
    bool has_reported;
    Trainyard__V1__WorkerEnd__Cause cause;
    char why[256];
};

struct code_copies {
    const struct host *host;
    struct code_copies_owner owner;
    char cache[PATH_MAX], record[PATH_MAX];
    char folder[PATH_MAX]; /* "": none yet */
    int lock;              /* of the folder */
    struct copy *first;
};

static void copy_free(struct copy *k) {
    for (struct copy **link = &k->list->first; *link; link = &(*link)->next)
        if (*link == k) {
            *link = k->next;
            break;
        }
    reactor_timer_cancel(k->list->host->loop, &k->limit);
    worker_process_close(k->process);
    free(k->path);
    free(k);
}

/* ---- the folder ---- */

/* Another user of the host may have made the folder, if it is gone since a reboot or a cleaner has removed it. */
static bool is_own_folder(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

static status_t folder_make(struct code_copies *cs, struct err *e) {
    const char *temporary = getenv("TMPDIR");
    char path[PATH_MAX - PREFIX_BYTES];
    if (*cs->folder && is_own_folder(cs->folder))
        return ST_OK;
    *cs->folder = '\0';
    closep(&cs->lock);
    if (snprintf(path, sizeof path, "%s/" COPIES_PREFIX "XXXXXX",
                 temporary && *temporary == '/' ? temporary : "/tmp") >= (int)sizeof path)
        return err_set(e, ST_INVALID_ARGUMENT, "TMPDIR: the path is too long");
    if (!mkdtemp(path))
        return err_errno(e, "create the folder '%s'", path);
    status_t st = file_write_atomic(cs->record, path, strlen(path), 0600, e);
    cs->lock = st == ST_OK ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (st == ST_OK && (cs->lock < 0 || flock(cs->lock, LOCK_EX | LOCK_NB) < 0 || chmod(path, 0711) < 0))
        st = err_errno(e, "prepare the folder '%s'", path);
    if (st != ST_OK) {
        closep(&cs->lock);
        rmdir(path);
        return st;
    }
    snprintf(cs->folder, sizeof cs->folder, "%s", path);
    return ST_OK;
}

/* Removes the folder that the file names, which this agent or an earlier one made, or only forgets it. */
static status_t folder_remove(struct code_copies *cs, struct err *e) {
    struct bytes path;
    bytes_init(&path, PATH_MAX);
    status_t st = file_read(cs->record, &path, NULL);
    /* The file is written by an agent only. A damaged one must not remove anything else. */
    const char *name = st == ST_OK && path.len ? strrchr(path.data, '/') : NULL;
    st = ST_OK;
    if (name && strncmp(name + 1, COPIES_PREFIX, sizeof COPIES_PREFIX - 1) == 0 && is_own_folder(path.data))
        st = dir_remove_readonly(path.data, e);
    bytes_done(&path);
    if (st == ST_OK)
        unlink(cs->record);
    return st;
}

/* ---- processes ---- */

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct copy *k = ctx;
    if (record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_END)
        return;
    k->has_reported = true;
    k->cause = record->end->cause;
    snprintf(k->why, sizeof k->why, "%s", record->end->message);
}

static void on_spooled(void *ctx, bool urgent) {
    (void)ctx;
    (void)urgent;
}

static void copy_remove(struct copy *k);

/* The process is gone, and has not said how it ended. */
static void end_explain(struct copy *k, const struct exit_status *exit) {
    char sentence[160];
    exit_status_sentence(exit, worker_process_killed_because(k->process), sentence, sizeof sentence);
    k->cause = TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT;
    snprintf(k->why, sizeof k->why, "trainyard-code %s", sentence);
}

static void ready_report(const struct copy *k) {
    Trainyard__V1__CodeReady ready = TRAINYARD__V1__CODE_READY__INIT;
    char message[300];
    snprintf(message, sizeof message, "program.code: %s", k->why);
    ready.path = k->path;
    ready.cause = k->cause;
    ready.message = message;
    k->list->owner.ready(k->list->owner.ctx, k->job, k->attempt, &ready);
}

static void on_ended(void *ctx, const struct exit_status *exit, bool drained) {
    struct copy *k = ctx;
    if (!drained)
        return;
    if (!k->has_reported)
        end_explain(k, exit);
    k->process = worker_process_close(k->process);
    reactor_timer_cancel(k->list->host->loop, &k->limit);
    if (k->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        log_event(LOG_WARN, k->removing ? "code_not_removed" : "code_not_fetched", "job", LOG_INT(k->job), "attempt",
                  LOG_INT(k->attempt), "reason", LOG_STR(k->why), NULL);
    if (k->removing)
        copy_free(k);
    else if (k->unwanted)
        copy_remove(k);
    else
        ready_report(k);
}

static void limit_fire(void *ctx) {
    struct copy *k = ctx;
    worker_process_kill(k->process, "took too long and was killed");
}

static status_t process_start_for(struct copy *k, const Trainyard__V1__WorkerCommand *command, int64_t limit_ms,
                                  struct err *e) {
    const struct host *host = k->list->host;
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *const argv[] = { host->options->code, "--agent-pid", parent, NULL };
    const struct worker_process_options options = {
        .loop = host->loop,
        .spool = host->spool,
        .orphans = host->orphans,
        .spawn = { .program = host->options->code, .argv = argv, .threads = 1 },
        .owner = { .ctx = k, .record = on_record, .spooled = on_spooled, .ended = on_ended },
    };
    k->has_reported = false;
    TRY(worker_process_open(&options, &k->process, e));
    reactor_timer_set(host->loop, &k->limit, limit_ms);
    return worker_process_send(k->process, command, e);
}

static status_t fetch_start(struct copy *k, const char *archive, struct err *e) {
    const struct agent_options *o = k->list->host->options;
    Trainyard__V1__CodeFetch fetch = TRAINYARD__V1__CODE_FETCH__INIT;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    fetch.archive = (char *)(uintptr_t)archive;
    fetch.cache = k->list->cache;
    fetch.cache_bytes = o->code_cache_bytes;
    fetch.copy = k->path;
    fetch.controller = (char *)(uintptr_t)o->controller;
    fetch.tls_ca = (char *)(uintptr_t)o->tls.ca;
    fetch.tls_cert = (char *)(uintptr_t)o->tls.cert;
    fetch.tls_key = (char *)(uintptr_t)o->tls.key;
    fetch.token = (char *)(uintptr_t)o->token;
    fetch.token_file = (char *)(uintptr_t)o->token_file;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_FETCH_CODE;
    command.fetch_code = &fetch;
    return process_start_for(k, &command, FETCH_MS, e);
}

/* Whether its folder is still the one that this agent made. */
static bool copy_exists(const struct copy *k) {
    CLEANUP(freep) char *folder = alloc_format("%.*s", (int)(strrchr(k->path, '/') - k->path), k->path);
    return is_own_folder(folder);
}

static void copy_remove(struct copy *k) {
    Trainyard__V1__CodeRemove remove_ = TRAINYARD__V1__CODE_REMOVE__INIT;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    struct err why;
    remove_.path = k->path;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_REMOVE_CODE;
    command.remove_code = &remove_;
    if (!copy_exists(k)) {
        copy_free(k);
        return;
    }
    k->removing = true;
    if (process_start_for(k, &command, REMOVE_MS, &why) == ST_OK)
        return;
    log_event(LOG_WARN, "code_not_removed", "job", LOG_INT(k->job), "reason", LOG_STR(why.msg), NULL);
    copy_free(k);
}

/* ---- copies ---- */

static char *path_new(const struct code_copies *cs, int64_t job, int32_t attempt) {
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        abort(); /* cannot fail for 4 bytes once the kernel has booted */
    return alloc_format("%s/%" PRId64 "-%d-%08x", cs->folder, job, attempt, random);
}

status_t code_copies_start(struct code_copies *cs, int64_t job, int32_t attempt, const char *archive, struct err *e) {
    TRY(folder_make(cs, e));
    struct copy *k = alloc_zeroed(1, sizeof *k);
    *k = (struct copy){ .list = cs, .next = cs->first, .job = job, .attempt = attempt };
    k->limit = (struct reactor_timer){ .fire = limit_fire, .ctx = k };
    k->path = path_new(cs, job, attempt);
    cs->first = k;
    status_t st = fetch_start(k, archive, e);
    if (st != ST_OK)
        copy_free(k);
    return st;
}

void code_copies_remove(struct code_copies *cs, int64_t job, int32_t attempt) {
    for (struct copy *k = cs->first, *next; k; k = next) {
        next = k->next;
        if (k->job != job || k->attempt != attempt || k->unwanted)
            continue;
        k->unwanted = true;
        if (k->process)
            worker_process_kill(k->process, "was killed because the attempt has ended");
        else
            copy_remove(k);
    }
}

/* ---- handed over ---- */

/* Of the folder that the program before has made. */
static void copies_resume(struct code_copies *cs, const Trainyard__Handover__Handover *handed) {
    struct bytes path;
    bytes_init(&path, sizeof cs->folder - 1);
    if (file_read(cs->record, &path, NULL) == ST_OK && path.len > 0 && is_own_folder(path.data)) {
        snprintf(cs->folder, sizeof cs->folder, "%s", path.data);
        cs->lock = open(cs->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (cs->lock >= 0 && flock(cs->lock, LOCK_EX | LOCK_NB) < 0)
            closep(&cs->lock); /* a cleaner of the host looks at it */
    }
    bytes_done(&path);
    for (size_t i = 0; i < handed->n_code; i++) {
        struct copy *k = alloc_zeroed(1, sizeof *k);
        *k = (struct copy){
            .list = cs, .next = cs->first, .job = handed->code[i]->job, .attempt = handed->code[i]->attempt
        };
        k->limit = (struct reactor_timer){ .fire = limit_fire, .ctx = k };
        k->path = alloc_copy_text(handed->code[i]->path);
        cs->first = k;
    }
}

bool code_copies_hand_over(const struct code_copies *cs, Trainyard__Handover__Handover *to) {
    for (const struct copy *k = cs->first; k; k = k->next) {
        Trainyard__Handover__HandedCode *code = alloc_zeroed(1, sizeof *code);
        trainyard__handover__handed_code__init(code);
        code->job = k->job;
        code->attempt = k->attempt;
        code->path = alloc_copy_text(k->path);
        to->code = alloc_grow(to->code, to->n_code, sizeof *to->code);
        to->code[to->n_code++] = code;
        if (k->process)
            return false;
    }
    return true;
}

status_t code_copies_open(const struct host *host, const struct code_copies_owner *owner, struct code_copies **ret,
                          struct err *e) {
    struct code_copies *cs = alloc_zeroed(1, sizeof *cs);
    *cs = (struct code_copies){ .host = host, .owner = *owner, .lock = -1 };
    const char *directory = directory_path(host->directory);
    struct err why;
    status_t st = ST_OK;
    if (snprintf(cs->cache, sizeof cs->cache, "%s/code/cache", directory) >= (int)sizeof cs->cache ||
        snprintf(cs->record, sizeof cs->record, "%s/code/copies", directory) >= (int)sizeof cs->record)
        st = err_set(e, ST_INVALID_ARGUMENT, "--directory: the path is too long");
    if (st == ST_OK)
        st = dir_make(cs->cache, 0700, e);
    if (st == ST_OK && host->handed)
        copies_resume(cs, host->handed);
    else if (st == ST_OK && folder_remove(cs, &why) != ST_OK)
        log_event(LOG_WARN, "code_not_removed", "reason", LOG_STR(why.msg), NULL);
    if (st != ST_OK) {
        free(cs);
        return st;
    }
    *ret = cs;
    return ST_OK;
}

struct code_copies *code_copies_close(struct code_copies *cs) {
    if (!cs)
        return NULL;
    while (cs->first)
        copy_free(cs->first);
    if (*cs->folder)
        status_ignore(folder_remove(cs, NULL));
    closep(&cs->lock);
    free(cs);
    return NULL;
}

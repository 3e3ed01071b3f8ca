/* The processes are the descendants of this process, which is their subreaper, breadth first. Everything is read from
 * /proc: a process that ends meanwhile has fewer lines.
 *
 * SIGABRT goes to one process at a time, so that the stacks of two processes are not mixed, and only to a process that
 * handles it (SigCgt). Its limit for core files is 1 byte before that: a core of a large process takes minutes. With 0
 * the kernel would still give a core to a program that core_pattern names. */
#include "executor/program/stacks.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "executor/program/nccl_status.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    PROCESSES = 64,
    THREADS = 32, /* of a process */
    LINES = 600,
    KERNEL_LINES = 12, /* of a thread */
    FILE_BYTES = 4096,
    PROCESS_MS = 500,
    ALL_MS = 1800,
    PAUSE_MS = 5,
    FLUSH_MS = 200,
};

/* emitter_put takes any thread. */
struct log {
    struct emitter *emitter;
    atomic_int lines;
};
static struct log log_of_stacks; /* the thread of the output uses it until the process ends */

static void put(void *context, const char *text) {
    struct log *log = context;
    Trainyard__V1__LogText line = TRAINYARD__V1__LOG_TEXT__INIT;
    if (atomic_fetch_add(&log->lines, 1) >= LINES)
        return;
    line.stream = (char *)(uintptr_t) "stacks";
    line.text = (char *)(uintptr_t)text;
    emitter_put(log->emitter, WORKER_RECORD(LOG, log, &line));
}

static void put_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void put_line(const char *fmt, ...) {
    char text[OUTPUT_LINE_BYTES], printable[OUTPUT_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    utf8_copy_printable(text, printable, sizeof printable);
    put(&log_of_stacks, printable);
}

/* A small file of /proc as one text; empty if it cannot be read. Its NULs become spaces. */
static const char *file_text(char text[FILE_BYTES], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static const char *file_text(char text[FILE_BYTES], const char *fmt, ...) {
    char path[96];
    va_list args;
    va_start(args, fmt);
    vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, FILE_BYTES - 1);
    n = n < 0 ? 0 : n;
    for (ssize_t i = 0; i + 1 < n; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    text[n] = '\0';
    return text;
}

/* ---- processes ---- */

/* Adds the children of a process. Threads have children of their own. */
static int children_add(pid_t pid, pid_t list[PROCESSES], int n) {
    char path[64], text[FILE_BYTES];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        int used = 0, child;
        if (*entry->d_name == '.')
            continue;
        const char *at = file_text(text, "/proc/%d/task/%.16s/children", (int)pid, entry->d_name);
        for (; n < PROCESSES && sscanf(at, "%d%n", &child, &used) == 1; at += used)
            list[n++] = child;
    }
    if (d)
        closedir(d);
    return n;
}

static int processes_find(pid_t list[PROCESSES]) {
    int n = children_add(getpid(), list, 0);
    for (int i = 0; i < n; i++)
        n = children_add(list[i], list, n);
    return n;
}

static char state_of(const char *stat) {
    const char *at = strrchr(stat, ')');
    return at && at[1] == ' ' ? at[2] : '?';
}

static bool is_alive(pid_t pid) {
    char text[FILE_BYTES];
    const char state = state_of(file_text(text, "/proc/%d/stat", (int)pid));
    return state != '?' && state != 'Z' && state != 'X';
}

static bool handles_abort(pid_t pid) {
    char text[FILE_BYTES];
    const char *at = strstr(file_text(text, "/proc/%d/status", (int)pid), "SigCgt:");
    return at && (strtoull(at + sizeof "SigCgt:" - 1, NULL, 16) >> (SIGABRT - 1) & 1);
}

/* ---- the kernel's view ---- */

static void thread_put(pid_t pid, const char *thread) {
    char stat[FILE_BYTES], wait[FILE_BYTES], call[FILE_BYTES], name[FILE_BYTES], stack[FILE_BYTES];
    file_text(stat, "/proc/%d/task/%.16s/stat", (int)pid, thread);
    file_text(wait, "/proc/%d/task/%.16s/wchan", (int)pid, thread);
    file_text(call, "/proc/%d/task/%.16s/syscall", (int)pid, thread);
    file_text(name, "/proc/%d/task/%.16s/comm", (int)pid, thread);
    file_text(stack, "/proc/%d/task/%.16s/stack", (int)pid, thread);
    put_line("  thread %.16s %.*s: state %c%s%.64s%s%.*s", thread, (int)strcspn(name, "\n"), name, state_of(stat),
             *wait && strcmp(wait, "0") != 0 ? ", waits in " : "", strcmp(wait, "0") != 0 ? wait : "",
             *call ? ", system call " : "", (int)strcspn(call, " \n"), call);
    char *rest = NULL;
    char *line = strtok_r(stack, "\n", &rest);
    for (int i = 0; line && i < KERNEL_LINES; i++, line = strtok_r(NULL, "\n", &rest))
        put_line("    %.120s", line);
}

static void process_put(pid_t pid) {
    char path[64], text[FILE_BYTES];
    int threads = 0;
    /* The command line is in the memory of the process: reading it could wait for the same lock or disk. */
    if (state_of(file_text(text, "/proc/%d/stat", (int)pid)) == 'D')
        file_text(text, "/proc/%d/comm", (int)pid);
    else
        file_text(text, "/proc/%d/cmdline", (int)pid);
    put_line("process %d: %.400s", (int)pid, text);
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    for (struct dirent *entry; d && threads < THREADS && (entry = readdir(d));)
        if (*entry->d_name != '.') {
            thread_put(pid, entry->d_name);
            threads++;
        }
    if (d)
        closedir(d);
}

struct processes {
    const pid_t *list;
    int n;
    deadline_ms_t until;
};

/* The kernel shows a wait only to a reader whose user and group for files are those of the process. With --job-user
 * this process has another such group than the command. A thread changes only its own, and keeps the main thread's
 * signal at the agent's death, which the change removes. */
static void *processes_put(void *ctx) {
    const struct processes *p = ctx;
    setfsgid(getgid());
    for (int i = 0; i < p->n && clock_mono_ms() < p->until; i++)
        process_put(p->list[i]);
    return NULL;
}

static void processes_put_all(struct processes *p) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, processes_put, p) == 0)
        pthread_join(thread, NULL);
}

/* ---- Python's view ---- */

static void process_abort(pid_t pid, struct output *output, deadline_ms_t all_until) {
    const struct rlimit none = { 1, 1 };
    const deadline_ms_t own = deadline_in(PROCESS_MS), until = own < all_until ? own : all_until;
    put_line("process %d at SIGABRT:", (int)pid);
    prlimit(pid, RLIMIT_CORE, &none, NULL);
    kill(pid, SIGABRT);
    while (is_alive(pid) && clock_mono_ms() < until)
        poll(NULL, 0, PAUSE_MS);
    output_flush(output, FLUSH_MS);
}

void stacks_collect(struct output *output, struct emitter *emitter, const char *nccl_address) {
    pid_t list[PROCESSES];
    log_of_stacks.emitter = emitter;
    nccl_status_collect(nccl_address, put, &log_of_stacks);
    const deadline_ms_t until = deadline_in(ALL_MS);
    const int n = processes_find(list);
    processes_put_all(&(struct processes){ list, n, until });
    output_divert(output, put, &log_of_stacks);
    for (int i = 0; i < n && clock_mono_ms() < until; i++)
        if (is_alive(list[i]) && handles_abort(list[i]))
            process_abort(list[i], output, until);
}

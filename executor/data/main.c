/* trainyard-data: copies the objects of one attempt into the cache of the host, and keeps them in use. The agent starts
 * it, with commands on descriptor 3 and records on 4, as a worker. It gets one command, and reports until its last
 * report; then it waits for the end of the pipe, which comes with the end of the attempt. A thread does the order; the
 * first one reports how far it is, and ends the process as soon as the pipe ends: a process can end at any moment, and
 * the next one goes on.
 *
 * It runs as the agent's user, so that no job can change the copies, and without the agent's capabilities, because it
 * reads what stores send. Its keys are overwritten before it waits, and it leaves no core. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/privileges.h"
#include "executor/child/child.h"
#include "executor/data/memory.h"
#include "executor/data/report.h"

#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { STEP_MS = 500 };

static const char usage[] =
    "usage: trainyard-data --agent-pid PID\n"
    "\n"
    "Copies the data of a job into the cache of this host for trainyard-executor, which starts it with commands on\n"
    "descriptor 3 and records on 4.\n"
    "\n"
    "  --agent-pid PID        the agent that started this program, which ends when the agent does\n"
    "  --help, --version\n";

static const struct child child = { .name = "trainyard-data", .usage = usage, .orphaned = 1 };

struct work {
    struct fetch fetch;
    int over; /* an eventfd */
    status_t st;
    struct err why;
};

static void *order_do(void *ctx) {
    struct work *w = ctx;
    const uint64_t one = 1;
    w->st = fetch_run(&w->fetch, &w->why);
    if (write(w->over, &one, sizeof one) != (ssize_t)sizeof one)
        abort(); /* a counter that is 0 has space */
    return NULL;
}

/* Returns when the work is over. */
static void wait_for(struct work *w, struct report_progress *progress) {
    struct pollfd fds[] = { { .fd = CHILD_COMMANDS_FD }, /* without events: the end of the pipe alone */
                            { .fd = w->over, .events = POLLIN } };
    for (;;) {
        if (poll(fds, 2, STEP_MS) > 0 && fds[0].revents)
            _exit(0);
        if (fds[1].revents & POLLIN)
            return;
        report_progress(progress, &w->fetch);
    }
}

static void keys_wipe(const Trainyard__V1__DataFetch *order) {
    for (size_t i = 0; i < order->n_stores; i++) {
        const ProtobufCBinaryData keys[] = { order->stores[i]->access_key, order->stores[i]->secret_key };
        for (size_t k = 0; k < 2; k++)
            if (keys[k].len > 0)
                explicit_bzero(keys[k].data, keys[k].len);
    }
}

static status_t order_take(const Trainyard__V1__DataFetch *order, struct err *e) {
    struct work w = { .fetch = { .order = order }, .over = eventfd(0, EFD_CLOEXEC), .why = { "" } };
    struct report_progress progress = { .since_ms = clock_mono_ms() };
    pthread_t thread;
    if (w.over < 0 || pthread_create(&thread, NULL, order_do, &w) != 0)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the host allows no more threads or files");
    wait_for(&w, &progress);
    pthread_join(thread, NULL);
    report_progress(&progress, &w.fetch); /* whoever is fast has not said yet that something was copied */
    fetch_done_stores(&w.fetch);
    keys_wipe(order);
    prctl(PR_SET_DUMPABLE, 1); /* it has no more keys */
    report_last(&progress, &w.fetch, w.st, &w.why);
    struct pollfd end = { .fd = CHILD_COMMANDS_FD };
    while (w.st == ST_OK && w.fetch.cache && poll(&end, 1, -1) < 1)
        continue;
    fetch_done(&w.fetch);
    closep(&w.over);
    return ST_OK;
}

/* An agent that is root may have a cache in folders of other users. */
static status_t give_up_privileges(struct err *e) {
    return privileges_drop(geteuid() == 0 ? PRIVILEGE(CAP_DAC_OVERRIDE) | PRIVILEGE(CAP_FOWNER) : 0, e);
}

static status_t work(struct frame_reader *reader, struct err *e) {
    Trainyard__V1__WorkerCommand *command;
    TRY(child_command_wait(reader, &command, e));
    frame_reader_wipe(reader);
    status_t st = ST_OK;
    if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_FETCH_DATA)
        st = order_take(command->fetch_data, e);
    else
        st = err_set(e, ST_INTERNAL, "the first command is of another release: restart trainyard-executor");
    trainyard__v1__worker_command__free_unpacked(command, NULL);
    return st;
}

int main(int argc, char **argv) {
    int status;
    struct err why = { "" };
    struct frame_reader reader;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0); /* no core, and no look into the memory by other processes of this user */
    if (!child_begin(&child, argc, argv, &status))
        return status;
    frame_reader_init(&reader, LIMIT_RPC_MESSAGE_BYTES);
    status_t st = give_up_privileges(&why);
    if (st == ST_OK)
        st = memory_init(&why);
    if (st == ST_OK)
        st = work(&reader, &why);
    frame_reader_done(&reader);
    if (st != ST_OK)
        fprintf(stderr, "trainyard-data: %s\n", why.msg);
    return st == ST_OK ? 0 : 1;
}

/* The real trainyard-executor with real workers, in a folder of its own; the test is the controller that it attaches
 * to, so that it can be a bad one: away, forgetful, outdated. One at a time, in `w`; whatever fails ends the test. */
#ifndef TESTS_UNIT_EXECUTOR_HOST_H
#define TESTS_UNIT_EXECUTOR_HOST_H

#include "api/rpc/server.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <trainyard/v1/dispatch.pb-c.h>

enum {
    MESSAGES_MOST = 4096,
    PATIENCE_MS = 120000, /* means never: with TSan on a busy machine 3000 steps take a while */
    EPOCH = 5,
    JOB = 11,
};

/* More than cores: a rank computes on one thread. TSan knows no barriers of OpenMP, and looks up each false race. */
#define SLOTS "256"

struct controller {
    struct rpc_server *server;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct rpc_call *attach, *report;
    Trainyard__V1__AgentMessage *messages[MESSAGES_MOST]; /* in the order of their arrival */
    size_t n_messages, seen;
    bool silent;  /* reports are read and not acknowledged */
    bool fence;   /* they are answered by `fenced` */
    int64_t next; /* the next sequence that was never seen */
    int64_t losses, repeats, waits, gaps;
};

extern struct world {
    char folder[48], directory[80], text[96], address[96];
    struct controller c;
    pid_t executor;
    Trainyard__V1__JobSpec *spec;
} w;

int executor_host_setup(void **state);
int executor_host_teardown(void **state);

#define EXECUTOR_TEST(f) cmocka_unit_test_setup_teardown(f, executor_host_setup, executor_host_teardown)

/* ---- the controller ---- */

void command_send(Trainyard__V1__ControllerMessage *m);
/* Both streams end, as when the controller dies; the executor dials again. */
void streams_break(void);
/* Waits for a condition on the controller, which is locked while it is looked at. */
void wait_for(bool (*holds)(void), const char *what);
/* The next message of a kind after those already seen; it belongs to the controller. */
Trainyard__V1__AgentMessage *await(Trainyard__V1__AgentMessage__MessageCase kind, const char *what);
#define AWAIT(kind) await(TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_##kind, #kind)
/* Whether one has come at all. */
bool was_told(Trainyard__V1__AgentMessage__MessageCase kind);
/* A count of the controller's. */
int64_t now(const int64_t *count);

/* ---- the executor ---- */

void executor_start(const char *hang_s);
void executor_start_with(const char *worker, const char *hang_s);
int executor_wait(void); /* its wait status */

/* One rank of JOB, so many steps. */
void attempt_start(int64_t epoch, int32_t attempt, int steps);
void attempt_stop(int32_t attempt, int grace_ms);
void attempt_acknowledge(int32_t attempt);

/* A folder of the executor's directory. */
bool folder_is_empty(const char *name);
void empty_is_awaited(const char *name);

#endif

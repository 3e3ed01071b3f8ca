/* The real trainyard-executor with real workers, in a temporary folder. The test is the controller to which it
 * attaches, and can be a bad one: absent, forgetful or outdated. One executor at a time, in `w`. Any failure ends the
 * test. */
#ifndef TESTS_UNIT_EXECUTOR_HOST_H
#define TESTS_UNIT_EXECUTOR_HOST_H

#include "api/rpc/server.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <trainyard/v1/dispatch.pb-c.h>

enum {
    MESSAGES_MAX = 4096,
    PATIENCE_MS = 120000, /* longer than any wait: with TSan on a busy machine 3000 steps take a while */
    EPOCH = 5,
    JOB = 11,
};

#define SLOTS "256"
/* TSan does not know OpenMP's barriers and reports false races, so a rank computes on one thread. */
#ifdef __SANITIZE_THREAD__
#define CORES "1"
#else
#define CORES "3"
#endif

struct controller {
    struct rpc_server *server;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    struct rpc_call *attach, *report;
    Trainyard__V1__AgentMessage *messages[MESSAGES_MAX]; /* in the order of their arrival */
    size_t n_messages, seen;
    bool silent;  /* reads reports and does not acknowledge them, but answers queries for the mark */
    bool fence;   /* answers reports with `fenced` */
    int64_t next; /* the first sequence number that was not received */
    int64_t losses, repeats, waits, gaps;
    int64_t lost;                /* records that the executor has declared as lost */
    const char *cluster, *nonce; /* of the welcome; NULL: the welcome has none */
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
/* Ends both streams, as if the controller died. The executor connects again. */
void streams_break(void);
/* The same, for a controller whose database was rolled back: the next record that it expects is `next`. */
void database_set_back(int64_t next);
/* Waits for a condition on the controller. The controller is locked during each check. */
void wait_for(bool (*holds)(void), const char *what);
/* The next message of a kind that was not returned before. The controller owns it. */
Trainyard__V1__AgentMessage *await(Trainyard__V1__AgentMessage__MessageCase kind, const char *what);
#define AWAIT(kind) await(TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_##kind, #kind)
/* Returns whether a message of this kind has arrived. */
bool was_received(Trainyard__V1__AgentMessage__MessageCase kind);
/* Reads a counter of the controller under its lock. */
int64_t now(const int64_t *count);

/* ---- the executor ---- */

void executor_start(const char *hang_s);
void executor_start_with(const char *worker, const char *hang_s);
int executor_wait(void); /* its wait status */

/* Starts one rank of JOB for this number of steps. */
void attempt_start(int64_t epoch, int32_t attempt, int steps);
void attempt_stop(int32_t attempt, int grace_ms);
void attempt_acknowledge(int32_t attempt);

/* Checks a folder in the executor's directory. */
bool folder_is_empty(const char *name);
void empty_is_awaited(const char *name);

#endif

/* A controller with its services on a socket and its own PostgreSQL, and agents whose messages the test sends by hand
 * over the real streams. */
#ifndef TESTS_RPC_SERVICE_FIXTURE_H
#define TESTS_RPC_SERVICE_FIXTURE_H

#include "api/rpc/client.h"
#include "api/rpc/server.h"
#include "service/controller/controller.h"
#include "tests/store/store_fixture.h"

#include <pthread.h>
#include <string.h>
#include <trainyard/v1/dispatch.pb-c.h>
#include <trainyard/v1/job.pb-c.h>

/* The limit of every wait, longer than any event of these tests takes. */
#define FIXTURE_PATIENCE_MS 120000

struct service_fixture {
    struct pg *pg;
    char conninfo[256], directory[64], address[RPC_ADDRESS_BYTES];
    struct controller *controller;
    struct rpc_server *server;
    struct rpc_channel *channel; /* of a client */
    const char *secret_keys[2];  /* files, for the next service_start_controller; NULL: none */
};

#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, service_setup, service_teardown)

/* One PostgreSQL cluster for the program, and a new database and controller for each test. */
int service_group_setup(void **state);
int service_group_teardown(void **state);
int service_setup(void **state);
int service_teardown(void **state);
void service_stop_controller(struct service_fixture *y);
void service_start_controller(struct service_fixture *y);

status_t service_call(struct service_fixture *y, const char *method, const ProtobufCMessage *request,
                      ProtobufCMessage **ret, struct err *e); /* of JobService */
/* A valid spec with this number of ranks. */
Trainyard__V1__JobSpec *service_spec(int ranks, int max_restarts);
int64_t service_submit(struct service_fixture *y, int ranks, int max_restarts);
/* The job as GetJob returns it. The caller frees it with trainyard__v1__job__free_unpacked. */
Trainyard__V1__Job *service_job(struct service_fixture *y, int64_t job);
/* Waits until the job is in that state. */
void service_await_state(struct service_fixture *y, int64_t job, Trainyard__V1__Job__State state);

void service_assert_job(struct service_fixture *y, int64_t id, Trainyard__V1__Job__State state, int attempt,
                        int restarts);
/* Calls CancelJob, RetryJob, GetJob or DeleteJob with a job's name. service_last_reason is the
 * machine-readable reason of the last call. */
status_t service_call_by_name(struct service_fixture *y, const char *method, const char *name, struct err *e);
extern char service_last_reason[RPC_REASON_BYTES];

struct agent; /* an executor: its control stream and its report stream */
struct agent *agent_new(struct service_fixture *y, const char *id, int64_t incarnation, int slots);
/* A new, attached agent of one slot on this host, which checks specs. */
struct agent *agent_new_checker(struct service_fixture *y, const char *id, const char *hostname);
void agent_free(struct agent *a); /* cuts its streams */
/* Sets the features that the next hello names; none without it. They outlive the agent. */
void agent_set_features(struct agent *a, char **features, size_t n);
/* Sets the last leader that the next hello reports as obeyed. */
void agent_has_obeyed(struct agent *a, const char *cluster, int64_t epoch, const char *nonce);
/* Sends a hello with the status of one attempt, or of none if it is NULL. */
void agent_hello(struct agent *a, Trainyard__V1__AttemptStatus *status);
/* agent_hello, then waits for the welcome. */
void agent_attach(struct agent *a, Trainyard__V1__AttemptStatus *status);
/* Attaches, and sends heartbeats from then on, so that the executor is not lost while the disk is slow. */
void agent_attach_alive(struct agent *a);
/* The next order, which must be of this kind. Valid until the next call. */
const Trainyard__V1__ControllerMessage *agent_expect(struct agent *a,
                                                     Trainyard__V1__ControllerMessage__MessageCase kind);
/* Waits until the controller has ended the control stream. Returns its message, valid until agent_free. */
const char *agent_await_closed(struct agent *a);
/* Returns whether no order waits. */
bool agent_idle(struct agent *a);
void agent_say_started(struct agent *a, int64_t job, int attempt, int rank, int pid);
void agent_say_offer(struct agent *a, int64_t job, int attempt, int rank, const char *address);
void agent_say_ready(struct agent *a, int64_t job, int attempt, int rank);
/* Report a problem of a check that MESSAGE_START_CHECK has begun, and the end of the check. */
void agent_say_problem(struct agent *a, int64_t check, const char *text, bool of_host);
void agent_say_checked(struct agent *a, int64_t check, status_t status, const char *message);
/* Sends the goodbye of an agent that was asked to stop. */
void agent_say_goodbye(struct agent *a);
/* Reports that all its ranks of the attempt have ended. */
void agent_say_ended(struct agent *a, int64_t job, int attempt, int rank, Trainyard__V1__WorkerEnd__Cause cause,
                     int64_t last_sequence);
/* Reports n records of one rank, at most AGENT_MAX_RECORDS, from sequence number `first` on. Waits for their mark. */
enum { AGENT_MAX_RECORDS = 8 };
void agent_report(struct agent *a, int64_t job, int attempt, int rank, int64_t first,
                  Trainyard__V1__WorkerRecord **records, size_t n);
/* Reports one rank's records: a loss, its final shard of `world_size`, its end. Waits for their mark. */
void agent_report_end(struct agent *a, int64_t job, int attempt, int rank, int world_size);

/* Sends a batch of `times` records of these n bytes, from `sequence` on, which the controller refuses. Waits until the
 * controller has ended the report stream. Returns its status and message, valid until agent_free. The next agent_report
 * opens a new stream. */
const char *agent_report_bytes(struct agent *a, int64_t job, int attempt, int rank, int64_t sequence, const void *data,
                               size_t n, size_t times);

/* Sends a batch without records for the agent itself, then one as another sender, on one stream. Waits until the
 * controller has ended the stream, and returns its status and message, valid until agent_free. */
const char *agent_report_as(struct agent *a, const char *executor, int64_t incarnation, int64_t job);

/* Plays one attempt up to RUNNING: agents[r] has rank r. */
void service_run(struct service_fixture *y, struct agent **agents, int n, int64_t job, int attempt);
/* Plays the same attempt from RUNNING to its successful end. */
void service_finish(struct agent **agents, int n, int64_t job, int attempt);

#endif

/* A controller with its services on a socket, over a PostgreSQL of the test's own, and agents that the test plays by
 * hand through the real streams. */
#ifndef TESTS_RPC_SERVICE_YARD_H
#define TESTS_RPC_SERVICE_YARD_H

#include "api/rpc/client.h"
#include "api/rpc/server.h"
#include "service/controller/controller.h"
#include "tests/store/store_fixture.h"

#include <pthread.h>
#include <string.h>
#include <trainyard/v1/dispatch.pb-c.h>
#include <trainyard/v1/job.pb-c.h>

/* Nothing in these tests takes longer; a wait that does has failed. */
#define YARD_PATIENCE_MS 120000

struct service_yard {
    struct pg *pg;
    char conninfo[256], directory[64], address[RPC_ADDRESS_BYTES];
    struct controller *controller;
    struct rpc_server *server;
    struct rpc_channel *channel; /* a client's */
};

/* One cluster for the program, a fresh database and controller for each test. */
int yard_group_setup(void **state);
int yard_group_teardown(void **state);
int yard_setup(void **state);
int yard_teardown(void **state);
void yard_stop_controller(struct service_yard *y);
void yard_start_controller(struct service_yard *y);

status_t yard_call(struct service_yard *y, const char *method, const ProtobufCMessage *request, ProtobufCMessage **ret,
                   struct err *e); /* of JobService */
/* A good spec of that many ranks. */
Trainyard__V1__JobSpec *yard_spec(int ranks, int max_restarts);
int64_t yard_submit(struct service_yard *y, int ranks, int max_restarts);
/* The job as GetJob tells it; freed by trainyard__v1__job__free_unpacked. */
Trainyard__V1__Job *yard_job(struct service_yard *y, int64_t job);
/* Waits until the job is in that state. */
void yard_await_state(struct service_yard *y, int64_t job, Trainyard__V1__Job__State state);

struct agent; /* an executor, by its two streams */
struct agent *agent_new(struct service_yard *y, const char *id, int64_t incarnation, int slots);
void agent_free(struct agent *a); /* its streams are cut */
/* With what it says of one attempt (NULL = of none). */
void agent_hello(struct agent *a, Trainyard__V1__AttemptStatus *status);
/* And waits for the welcome. */
void agent_attach(struct agent *a, Trainyard__V1__AttemptStatus *status);
/* Attaches, and sends heartbeats from now on: for tests whose executor must not be lost while the disk is slow. */
void agent_attach_alive(struct agent *a);
/* The next order, which must be of this kind; valid until the next call. */
const Trainyard__V1__ControllerMessage *agent_expect(struct agent *a,
                                                     Trainyard__V1__ControllerMessage__MessageCase kind);
/* Waits until the controller has ended its control stream; with which sentence, valid until agent_free. */
const char *agent_await_closed(struct agent *a);
/* No order waits. */
bool agent_idle(struct agent *a);
void agent_say_offer(struct agent *a, int64_t job, int attempt, int rank, const char *address);
void agent_say_ready(struct agent *a, int64_t job, int attempt, int rank);
/* All its ranks of the attempt are gone. */
void agent_say_ended(struct agent *a, int64_t job, int attempt, int rank, Trainyard__V1__WorkerEnd__Cause cause,
                     int64_t last_sequence);
/* Reports records of one rank, from sequence number `first` on, and waits for the mark of them. */
void agent_report(struct agent *a, int64_t job, int attempt, int rank, int64_t first,
                  Trainyard__V1__WorkerRecord **records, size_t n);
/* Reports one rank's records: a loss, its final shard of `world_size`, its end. Waits for the mark of them. */
void agent_report_end(struct agent *a, int64_t job, int attempt, int rank, int world_size);

/* Plays one attempt up to RUNNING: agents[r] has rank r. */
void yard_run(struct service_yard *y, struct agent **agents, int n, int64_t job, int attempt);
/* And from RUNNING to its good end. */
void yard_finish(struct agent **agents, int n, int64_t job, int attempt);

#endif

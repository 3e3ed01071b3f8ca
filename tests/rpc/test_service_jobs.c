/* JobService and DispatchService as clients and agents meet them. */
#include "tests/rpc/service_yard.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STATE(s) TRAINYARD__V1__JOB__STATE__##s

static void assert_job(struct service_yard *y, int64_t id, Trainyard__V1__Job__State state, int attempt, int restarts) {
    Trainyard__V1__Job *job = yard_job(y, id);
    assert_int_equal(job->state, state);
    assert_int_equal(job->attempt, attempt);
    assert_int_equal(job->restarts, restarts);
    trainyard__v1__job__free_unpacked(job, NULL);
}

static char told_reason[RPC_REASON_BYTES]; /* of the last by_name, for programs */

static status_t by_name(struct service_yard *y, const char *method, const char *name, struct err *e) {
    /* CancelJob, RetryJob, GetJob and DeleteJob begin with the same field. */
    Trainyard__V1__CancelJobRequest request = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    Trainyard__V1__RetryJobRequest retry = TRAINYARD__V1__RETRY_JOB_REQUEST__INIT;
    Trainyard__V1__GetJobRequest get = TRAINYARD__V1__GET_JOB_REQUEST__INIT;
    request.name = retry.name = get.name = (char *)name;
    ProtobufCMessage *reply = NULL;
    const ProtobufCMessage *asked = *method == 'C' ? &request.base : *method == 'R' ? &retry.base : &get.base;
    status_t st = rpc_call_unary_reason(y->channel, &trainyard__v1__job_service__descriptor, method, asked,
                                        YARD_PATIENCE_MS, &reply, told_reason, e);
    if (st == ST_OK)
        protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

static void a_gang_goes_from_submit_to_success(void **state) {
    struct service_yard *y = *state;
    struct agent *agents[] = { agent_new(y, "host-a", 1, 1), agent_new(y, "host-b", 1, 1) };
    agent_attach(agents[0], NULL);
    agent_attach(agents[1], NULL);
    int64_t job = yard_submit(y, 2, 0);
    yard_run(y, agents, 2, job, 1);
    yard_finish(agents, 2, job, 1);
    yard_await_state(y, job, STATE(SUCCEEDED));
    assert_job(y, job, STATE(SUCCEEDED), 1, 0);
    agent_free(agents[0]);
    agent_free(agents[1]);
}

static void a_job_is_not_done_before_its_last_record_is_stored(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = yard_submit(y, 1, 0);
    yard_run(y, &a, 1, job, 1);
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED, 3);
    assert_job(y, job, STATE(RUNNING), 1, 0);
    assert_true(agent_idle(a));
    agent_report_end(a, job, 1, 0, 1);
    yard_await_state(y, job, STATE(SUCCEEDED));
    agent_free(a);
}

static void a_dead_worker_costs_one_restart_and_the_last_one_fails_the_job(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = yard_submit(y, 1, 1);
    yard_run(y, &a, 1, job, 1);
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL, 0);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
    yard_run(y, &a, 1, job, 2);
    assert_job(y, job, STATE(RUNNING), 2, 1);
    agent_say_ended(a, job, 2, 0, TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL, 0);
    yard_await_state(y, job, STATE(FAILED));
    Trainyard__V1__Job *failed = yard_job(y, job);
    assert_string_equal(failed->reason, "rank 0: died in a test (after 1 of 1 restarts)");
    trainyard__v1__job__free_unpacked(failed, NULL);

    OK(by_name(y, "RetryJob", "jobs/1", &e));
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
    yard_run(y, &a, 1, job, 3);
    assert_job(y, job, STATE(RUNNING), 3, 0);
    agent_free(a);
}

struct retry {
    struct service_yard *y;
    status_t status;
    char reason[RPC_REASON_BYTES];
};

static void *retry_one(void *ctx) {
    struct retry *r = ctx;
    Trainyard__V1__RetryJobRequest request = TRAINYARD__V1__RETRY_JOB_REQUEST__INIT;
    request.name = (char *)"jobs/1";
    ProtobufCMessage *reply = NULL;
    struct err e;
    r->status = rpc_call_unary_reason(r->y->channel, &trainyard__v1__job_service__descriptor, "RetryJob", &request.base,
                                      YARD_PATIENCE_MS, &reply, r->reason, &e);
    if (r->status == ST_OK)
        protobuf_c_message_free_unpacked(reply, NULL);
    return NULL;
}

/* The second comes while the loop is held up by the first one's move of the row. */
static void of_two_retries_at_once_one_is_told_that_the_job_is_not_failed(void **state) {
    struct service_yard *y = *state;
    yard_submit(y, 1, 0);
    pg_force(y->conninfo, "UPDATE job SET state = 10, end_time = now()");
    yard_stop_controller(y);
    yard_start_controller(y); /* which does not know the job, as after its end */
    struct pg_open *open = pg_begin(y->conninfo, "SELECT 1 FROM job FOR UPDATE");
    struct retry retries[2] = { { .y = y }, { .y = y } };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, retry_one, &retries[i]), 0);
    pg_await_blocked(y->pg, y->conninfo, 1);
    pg_commit(open);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    const struct retry *second = &retries[retries[0].status == ST_OK];
    assert_int_equal(retries[second == retries].status, ST_OK);
    assert_int_equal(second->status, ST_FAILED_PRECONDITION);
    assert_string_equal(second->reason, "JOB_NOT_FAILED");
    yard_await_state(y, 1, STATE(QUEUED));
}

/* The loop reads the row FAILED, and meets another's move of it when it makes its own. */
static void a_retry_that_is_refused_for_another_reason_is_not_told_that_its_origin_is_gone(void **state) {
    struct service_yard *y = *state;
    yard_submit(y, 1, 0);
    pg_force(y->conninfo, "UPDATE job SET state = 10, end_time = now()");
    yard_stop_controller(y);
    yard_start_controller(y);
    struct pg_open *open = pg_begin(y->conninfo, "SET session_replication_role = replica; UPDATE job SET state = 11");
    struct retry retry = { .y = y };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, retry_one, &retry), 0);
    pg_await_blocked(y->pg, y->conninfo, 1);
    pg_commit(open);
    pthread_join(thread, NULL);
    assert_int_equal(retry.status, ST_FAILED_PRECONDITION);
    assert_string_equal(retry.reason, "JOB_NOT_FAILED");
}

static void report_chosen(struct agent *a, int64_t sequence, Trainyard__V1__JobSpec *spec) {
    Trainyard__V1__PlanChosen plan = TRAINYARD__V1__PLAN_CHOSEN__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT, *records = &record;
    plan.spec = spec;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_CHOSEN;
    record.chosen = &plan;
    agent_report(a, 1, 1, 0, sequence, &records, 1);
}

static void assert_train(struct service_yard *y, int32_t micro_batch, int32_t lanes, const char *recompute) {
    Trainyard__V1__Job *job = yard_job(y, 1);
    assert_int_equal(job->spec->train->micro_batch, micro_batch);
    assert_int_equal(job->spec->train->lanes, lanes);
    assert_string_equal(job->spec->train->recompute, recompute);
    assert_true(job->spec->train->micro_batch_auto);
    assert_string_equal(job->spec->name, "test");
    assert_int_equal(job->spec->train->steps, 10);
    trainyard__v1__job__free_unpacked(job, NULL);
}

/* A worker may say what it likes of the rest. */
static void a_chosen_plan_sets_what_was_left_open_and_nothing_else(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    Trainyard__V1__ResourcesSpec resources = TRAINYARD__V1__RESOURCES_SPEC__INIT;
    Trainyard__V1__JobSpec *spec = request.spec = yard_spec(1, 0);
    resources.memory_bytes = 1 << 30;
    spec->resources = &resources;
    spec->train->micro_batch_auto = true;
    spec->train->recompute = (char *)"auto";
    spec->train->_recompute_case = TRAINYARD__V1__TRAIN_SPEC___RECOMPUTE_RECOMPUTE;
    ProtobufCMessage *reply;
    OK(yard_call(y, "CreateJob", &request.base, &reply, &e));
    protobuf_c_message_free_unpacked(reply, NULL);
    yard_run(y, &a, 1, 1, 1);

    spec->name = (char *)"another";
    spec->train->steps = 99;
    spec->train->_micro_batch_case = TRAINYARD__V1__TRAIN_SPEC___MICRO_BATCH_MICRO_BATCH;
    spec->train->_lanes_case = TRAINYARD__V1__TRAIN_SPEC___LANES_LANES;
    spec->train->micro_batch = 3; /* does not divide the batch of 8 */
    spec->train->lanes = 2;
    spec->train->recompute = (char *)"block";
    report_chosen(a, 1, spec);
    assert_train(y, 0, 0, "auto");
    spec->train->micro_batch = 2;
    spec->train->_recompute_case = TRAINYARD__V1__TRAIN_SPEC___RECOMPUTE__NOT_SET;
    report_chosen(a, 2, spec);
    assert_train(y, 0, 0, "auto");
    spec->train->_recompute_case = TRAINYARD__V1__TRAIN_SPEC___RECOMPUTE_RECOMPUTE;
    report_chosen(a, 3, spec);
    assert_train(y, 2, 2, "block");
    spec->train->micro_batch = 4;
    spec->train->recompute = (char *)"none";
    report_chosen(a, 4, spec);
    assert_train(y, 2, 2, "block");
    agent_free(a);
}

static void a_restarted_agent_costs_an_attempt_but_no_restart(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = yard_submit(y, 1, 0);
    yard_run(y, &a, 1, job, 1);
    agent_free(a);

    Trainyard__V1__RankEnd end = TRAINYARD__V1__RANK_END__INIT, *ends = &end;
    end.cause = TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST;
    end.message = "died with its agent";
    end.time_us = 1;
    Trainyard__V1__AttemptEnded ended = TRAINYARD__V1__ATTEMPT_ENDED__INIT;
    ended.job = job;
    ended.attempt = 1;
    ended.ranks = &ends;
    ended.n_ranks = 1;
    Trainyard__V1__AttemptStatus status = TRAINYARD__V1__ATTEMPT_STATUS__INIT;
    status.job = job;
    status.attempt = 1;
    status.ended = true;
    status.end = &ended;
    a = agent_new(y, "host-a", 2, 1);
    agent_attach(a, &status);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
    yard_run(y, &a, 1, job, 2);
    assert_job(y, job, STATE(RUNNING), 2, 0);
    agent_free(a);
}

static Trainyard__V1__AttemptStatus running_status(int64_t job, int attempt, Trainyard__V1__RankStatus **rank) {
    Trainyard__V1__AttemptStatus status = TRAINYARD__V1__ATTEMPT_STATUS__INIT;
    status.job = job;
    status.attempt = attempt;
    status.world_size = 1;
    status.ranks = rank;
    status.n_ranks = 1;
    return status;
}

static void a_controller_that_starts_again_adopts_what_runs(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = yard_submit(y, 1, 0);
    yard_run(y, &a, 1, job, 1);
    yard_stop_controller(y);
    agent_free(a);
    yard_start_controller(y);

    Trainyard__V1__RankStatus rank = TRAINYARD__V1__RANK_STATUS__INIT, *ranks = &rank;
    rank.pid = 1;
    rank.joined = true;
    Trainyard__V1__AttemptStatus status = running_status(job, 1, &ranks);
    a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, &status);
    yard_finish(&a, 1, job, 1);
    yard_await_state(y, job, STATE(SUCCEEDED));
    assert_job(y, job, STATE(SUCCEEDED), 1, 0);
    agent_free(a);
}

static void a_host_with_an_old_attempt_gets_a_stop_and_nothing_new_until_it_has_ended(void **state) {
    struct service_yard *y = *state;
    Trainyard__V1__RankStatus rank = TRAINYARD__V1__RANK_STATUS__INIT, *ranks = &rank;
    Trainyard__V1__AttemptStatus status = running_status(77, 3, &ranks);
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, &status);
    assert_int_equal(agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP)->stop->job, 77);
    int64_t job = yard_submit(y, 1, 0);
    assert_job(y, job, STATE(QUEUED), 0, 0);
    assert_true(agent_idle(a));
    agent_say_ended(a, 77, 3, 0, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED, 0);
    /* First the old one is settled, then the new one starts. */
    yard_await_state(y, job, STATE(STARTING));
    agent_free(a);
}

static void postgresql_may_die_without_the_running_attempt_noticing(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = yard_submit(y, 1, 0);
    yard_run(y, &a, 1, job, 1);
    pg_kill(y->pg);
    FAILS(by_name(y, "GetJob", "1", &e), ST_UNAVAILABLE, "");
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED, 3);
    pg_restart(y->pg);
    agent_report_end(a, job, 1, 0, 1);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
    yard_await_state(y, job, STATE(SUCCEEDED));
    assert_job(y, job, STATE(SUCCEEDED), 1, 0);
    agent_free(a);
}

static void a_request_id_makes_one_job(void **state) {
    struct service_yard *y = *state;
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    char names[2][64];
    for (int i = 0; i < 2; i++) {
        request.spec = yard_spec(1, 0);
        request.request_id = "3b241101-e2bb-4255-8caf-4136c566a962";
        ProtobufCMessage *reply;
        OK(yard_call(y, "CreateJob", &request.base, &reply, &e));
        snprintf(names[i], sizeof names[i], "%s", ((Trainyard__V1__Job *)reply)->name);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    assert_string_equal(names[0], names[1]);
}

/* A fork of jobs/1 of so many steps, under a request id; what it is called. */
static status_t fork_first(struct service_yard *y, const char *request_id, char name[64], struct err *e) {
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.spec = yard_spec(1, 0);
    request.spec->train->steps = 20;
    request.request_id = (char *)request_id;
    request.fork = "1";
    ProtobufCMessage *reply = NULL;
    TRY(yard_call(y, "CreateJob", &request.base, &reply, e));
    const Trainyard__V1__Job *job = (const void *)reply;
    snprintf(name, 64, "%s", job->name);
    assert_string_equal(job->forked_from, "jobs/1/checkpoints/1");
    protobuf_c_message_free_unpacked(reply, NULL);
    return ST_OK;
}

static void a_fork_is_made_once_and_not_retried_when_what_it_began_with_is_gone(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t parent = yard_submit(y, 1, 0), fork = parent + 1;
    yard_run(y, &a, 1, parent, 1);
    yard_finish(&a, 1, parent, 1);
    yard_await_state(y, parent, STATE(SUCCEEDED));
    char names[3][64];
    OK(fork_first(y, "fork-once", names[0], &e));
    OK(fork_first(y, "fork-once", names[1], &e));
    yard_run(y, &a, 1, fork, 1);
    agent_say_ended(a, fork, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC, 0);
    yard_await_state(y, fork, STATE(FAILED));
    pg_force(y->conninfo, "UPDATE checkpoint SET state = 5, delete_time = now()");
    OK(fork_first(y, "fork-once", names[2], &e));
    assert_string_equal(names[0], "jobs/2");
    assert_string_equal(names[1], "jobs/2");
    assert_string_equal(names[2], "jobs/2");
    FAILS(fork_first(y, "fork-twice", names[0], &e), ST_NOT_FOUND, "fork: jobs/1 has no committed checkpoint");
    FAILS(by_name(y, "RetryJob", "2", &e), ST_FAILED_PRECONDITION,
          "jobs/2 has nothing to go on from: jobs/1/checkpoints/1, which it began with, has been deleted");
    assert_string_equal(told_reason, "JOB_ORIGIN_GONE");
    assert_job(y, fork, STATE(FAILED), 1, 0);
    agent_free(a);
}

/* By the parent's own restart, say, while the fork waits for a slot. */
static void a_fork_whose_origin_is_found_corrupt_fails_before_it_starts_and_frees_its_slot(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t parent = yard_submit(y, 1, 0), fork = parent + 1;
    yard_run(y, &a, 1, parent, 1);
    yard_finish(&a, 1, parent, 1);
    yard_await_state(y, parent, STATE(SUCCEEDED));
    agent_free(a); /* with it goes its slot */
    pg_force(y->conninfo, "UPDATE executor SET state = 2, lost_time = now()");
    yard_stop_controller(y);
    yard_start_controller(y);
    char name[64];
    OK(fork_first(y, "fork", name, &e));
    int64_t next = yard_submit(y, 1, 0);
    pg_force(y->conninfo, "UPDATE checkpoint SET state = 3, reason = 'bits'");
    a = agent_new(y, "host-b", 1, 1);
    agent_attach(a, NULL);
    assert_int_equal(agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START)->start->job, next);
    yard_await_state(y, fork, STATE(FAILED));
    Trainyard__V1__Job *job = yard_job(y, fork);
    assert_string_equal(job->reason, "jobs/2 has nothing to go on from: jobs/1/checkpoints/1, which it began with, is "
                                     "corrupt, and it has no checkpoint of its own");
    trainyard__v1__job__free_unpacked(job, NULL);
    agent_free(a);
}

/* As after a COMMIT whose answer never came: the row is there, and nobody has told the loop. */
static void a_job_whose_stored_answer_was_lost_runs_when_it_is_asked_for_again(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.spec = yard_spec(1, 0);
    request.request_id = "asked-twice";
    uint8_t spec[4096];
    struct store_job_new row = { .request_id = request.request_id,
                                 .name = "test",
                                 .queue = "default",
                                 .world_size = 1,
                                 .accelerator = "cpu",
                                 .spec = spec,
                                 .spec_bytes = trainyard__v1__job_spec__pack(request.spec, spec) };
    int64_t epoch, job;
    bool existed;
    OK(controller_leads(y->controller, &epoch, &e));
    OK(store_job_create(controller_store(y->controller), epoch, &row, &job, &existed, NULL, &e));
    ProtobufCMessage *reply;
    OK(yard_call(y, "CreateJob", &request.base, &reply, &e));
    protobuf_c_message_free_unpacked(reply, NULL);
    assert_int_equal(agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START)->start->job, job);
    agent_free(a);
}

static void say_quarantined(struct service_yard *y, int64_t incarnation, const char *reason) {
    Trainyard__V1__Device device = TRAINYARD__V1__DEVICE__INIT, *devices = &device;
    device.kind = "cuda";
    device.state = TRAINYARD__V1__DEVICE__STATE__QUARANTINED;
    device.reason = (char *)reason;
    Trainyard__V1__DevicesChanged changed = TRAINYARD__V1__DEVICES_CHANGED__INIT;
    changed.devices = &devices;
    changed.n_devices = 1;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_DEVICES_CHANGED;
    m.devices_changed = &changed;
    OK(controller_agent_said(y->controller, "host-a", incarnation, &m, &e));
}

static void of_an_older_starts_devices_nothing_is_logged(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 5, 1);
    agent_attach(a, NULL);
    yard_submit(y, 1, 0);
    FILE *log = tmpfile();
    int terminal = dup(STDERR_FILENO);
    dup2(fileno(log), STDERR_FILENO);
    say_quarantined(y, 4, "said-by-the-older");
    say_quarantined(y, 5, "said-by-the-newer");
    status_t st = by_name(y, "CancelJob", "1", NULL); /* the loop answers in order */
    dup2(terminal, STDERR_FILENO);
    close(terminal);
    static char text[1 << 16];
    rewind(log);
    size_t n = fread(text, 1, sizeof text - 1, log);
    fclose(log);
    text[n] = '\0';
    assert_int_equal(st, ST_OK);
    assert_non_null(strstr(text, "said-by-the-newer"));
    assert_null(strstr(text, "said-by-the-older"));
    agent_free(a);
}

/* A session that waits for the leader's lock, and has it in the moment in which the leader's is lost. */
static void *lock_next(void *conninfo) {
    return pg_begin(conninfo, "SELECT pg_advisory_lock((classid::bigint << 32) | objid::bigint) FROM pg_locks "
                              "WHERE locktype = 'advisory' AND granted");
}

static void a_controller_that_lost_the_lock_to_another_one_is_deposed_while_that_one_leads(void **state) {
    struct service_yard *y = *state;
    struct pg_open *leader = NULL;
    pthread_t next;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    assert_int_equal(pthread_create(&next, NULL, lock_next, y->conninfo), 0);
    pg_await_blocked(y->pg, y->conninfo, 1);
    pg_run(y->conninfo, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted");
    pthread_join(next, (void **)&leader);
    pg_run(y->conninfo, "UPDATE leader SET epoch = epoch + 1, holder = 'another', elected_at = now()");
    assert_string_equal(agent_await_closed(a), "UNAVAILABLE: this controller no longer leads");
    assert_true(controller_deposed(y->controller));
    pg_commit(leader); /* and lets the lock go */
    agent_free(a);
}

/* As between the end of an epoch and the controller's next look at its lock. */
static void a_mutation_under_an_epoch_that_is_over_may_be_asked_for_again(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t epoch, job = yard_submit(y, 1, 0);
    yard_run(y, &a, 1, job, 1);
    yard_finish(&a, 1, job, 1);
    yard_await_state(y, job, STATE(SUCCEEDED));
    OK(controller_leads(y->controller, &epoch, &e));
    FAILS(controller_judge(y->controller, epoch, err_set(&e, ST_FAILED_PRECONDITION, "refused"), &e),
          ST_FAILED_PRECONDITION, "refused");
    pg_run(y->conninfo, "UPDATE leader SET epoch = epoch + 1");
    Trainyard__V1__CreateJobRequest create = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    create.spec = yard_spec(1, 0);
    FAILS(yard_call(y, "CreateJob", &create.base, &reply, &e), ST_UNAVAILABLE, "lead");
    FAILS(by_name(y, "DeleteJob", "1", &e), ST_UNAVAILABLE, "lead");
    FAILS(controller_checkpoint_pin(y->controller, job, 1, true, &e), ST_UNAVAILABLE, "lead");
    FAILS(controller_checkpoint_delete(y->controller, job, 1, &e), ST_UNAVAILABLE, "lead");
    agent_free(a);
}

static void a_cancel_with_the_same_request_id_happens_once(void **state) {
    struct service_yard *y = *state;
    yard_submit(y, 1, 0);
    yard_submit(y, 1, 0);
    Trainyard__V1__CancelJobRequest request = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    request.request_id = "3b241101-e2bb-4255-8caf-4136c566a962";
    for (int job = 1; job <= 2; job++)
        for (int again = 0; again < 2; again++) {
            request.name = job == 1 ? "jobs/1" : "jobs/2";
            ProtobufCMessage *reply;
            OK(yard_call(y, "CancelJob", &request.base, &reply, &e));
            assert_int_equal(((Trainyard__V1__Job *)reply)->state, STATE(CANCELLED));
            protobuf_c_message_free_unpacked(reply, NULL);
        }
    FAILS(by_name(y, "CancelJob", "jobs/1", &e), ST_FAILED_PRECONDITION, "CANCELLED");
}

static void a_wrong_spec_is_refused_with_every_problem(void **state) {
    struct service_yard *y = *state;
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.spec = yard_spec(1, 0);
    request.spec->model->gpt->heads = 5;
    request.spec->train->steps = -1;
    ProtobufCMessage *reply;
    FAILS(yard_call(y, "CreateJob", &request.base, &reply, &e), ST_INVALID_ARGUMENT, "model.gpt.heads");
    FAILS(yard_call(y, "CreateJob", &request.base, &reply, &e), ST_INVALID_ARGUMENT, "train.steps");
}

static void illegal_moves_and_unknown_jobs_are_clear_errors(void **state) {
    struct service_yard *y = *state;
    FAILS(by_name(y, "GetJob", "jobs/99", &e), ST_NOT_FOUND, "jobs/99 does not exist");
    FAILS(by_name(y, "CancelJob", "99", &e), ST_NOT_FOUND, "does not exist");
    FAILS(by_name(y, "GetJob", "jobs/x", &e), ST_INVALID_ARGUMENT, "'jobs/x'");
    int64_t job = yard_submit(y, 1, 0);
    FAILS(by_name(y, "RetryJob", "1", &e), ST_FAILED_PRECONDITION, "not FAILED");
    assert_string_equal(told_reason, "JOB_NOT_FAILED");
    OK(by_name(y, "CancelJob", "1", &e));
    assert_job(y, job, STATE(CANCELLED), 0, 0);
    FAILS(by_name(y, "CancelJob", "1", &e), ST_FAILED_PRECONDITION, "CANCELLED");
    assert_string_equal(told_reason, "JOB_ENDED");
}

static void a_cancelled_gang_is_stopped_before_the_job_is_cancelled(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = yard_submit(y, 1, 0);
    yard_run(y, &a, 1, job, 1);
    OK(by_name(y, "CancelJob", "1", &e));
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP);
    assert_job(y, job, STATE(CANCELLING), 1, 0);
    FAILS(by_name(y, "CancelJob", "1", &e), ST_FAILED_PRECONDITION, "already being cancelled");
    assert_string_equal(told_reason, "JOB_NOT_CANCELLABLE");
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED, 0);
    yard_await_state(y, job, STATE(CANCELLED));
    agent_free(a);
}

static status_t list(struct service_yard *y, int size, const char *token, Trainyard__V1__Job__State filter,
                     Trainyard__V1__ListJobsResponse **ret, struct err *e) {
    Trainyard__V1__ListJobsRequest request = TRAINYARD__V1__LIST_JOBS_REQUEST__INIT;
    request.page_size = size;
    request.page_token = (char *)token;
    request.state = filter;
    return yard_call(y, "ListJobs", &request.base, (ProtobufCMessage **)ret, e);
}

static void pages_hold_every_job_once_and_a_token_belongs_to_its_filter(void **state) {
    struct service_yard *y = *state;
    for (int i = 0; i < 7; i++)
        yard_submit(y, 1, 0);
    char token[64] = "";
    int64_t before = 8, seen = 0;
    do {
        Trainyard__V1__ListJobsResponse *page = NULL;
        OK(list(y, 3, token, STATE(STATE_UNSPECIFIED), &page, &e));
        for (size_t i = 0; i < page->n_jobs; i++, seen++) {
            int64_t id = atoll(page->jobs[i]->name + 5);
            assert_int_equal(id, --before);
        }
        snprintf(token, sizeof token, "%s", page->next_page_token);
        trainyard__v1__list_jobs_response__free_unpacked(page, NULL);
        Trainyard__V1__ListJobsResponse *other;
        if (token[0])
            FAILS(list(y, 3, token, STATE(QUEUED), &other, &e), ST_INVALID_ARGUMENT, "other filters");
    } while (token[0]);
    assert_int_equal(seen, 7);
}

static void a_watcher_sees_every_event_once_and_may_go_on_where_it_was(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = yard_submit(y, 1, 0);
    yard_run(y, &a, 1, job, 1);
    yard_finish(&a, 1, job, 1);
    for (int64_t after = 0; after < 3; after++) {
        Trainyard__V1__WatchJobRequest request = TRAINYARD__V1__WATCH_JOB_REQUEST__INIT;
        request.name = "1";
        request.after_event = after;
        struct rpc_stream *stream;
        OK(rpc_stream_open(y->channel, &trainyard__v1__job_service__descriptor, "WatchJob", &request.base,
                           YARD_PATIENCE_MS, &stream, &e));
        int64_t seen = after;
        const ProtobufCMessage *m;
        bool ended = false;
        for (;;) {
            OK(rpc_stream_next(stream, &m, &e));
            if (!m)
                break;
            const Trainyard__V1__WatchJobResponse *update = (const void *)m;
            if (update->update_case == TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_EVENT)
                assert_int_equal(update->event->number, ++seen);
            if (update->job) {
                assert_int_equal(update->job->state, STATE(SUCCEEDED));
                assert_int_equal(update->job->last_event, seen);
                ended = true;
            }
        }
        assert_true(ended);
        rpc_stream_close(stream);
    }
    agent_free(a);
}

#define YARD(name) cmocka_unit_test_setup_teardown(name, yard_setup, yard_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        YARD(a_gang_goes_from_submit_to_success),
        YARD(a_job_is_not_done_before_its_last_record_is_stored),
        YARD(a_dead_worker_costs_one_restart_and_the_last_one_fails_the_job),
        YARD(of_two_retries_at_once_one_is_told_that_the_job_is_not_failed),
        YARD(a_retry_that_is_refused_for_another_reason_is_not_told_that_its_origin_is_gone),
        YARD(a_fork_whose_origin_is_found_corrupt_fails_before_it_starts_and_frees_its_slot),
        YARD(a_chosen_plan_sets_what_was_left_open_and_nothing_else),
        YARD(a_restarted_agent_costs_an_attempt_but_no_restart),
        YARD(a_controller_that_starts_again_adopts_what_runs),
        YARD(a_host_with_an_old_attempt_gets_a_stop_and_nothing_new_until_it_has_ended),
        YARD(postgresql_may_die_without_the_running_attempt_noticing),
        YARD(a_request_id_makes_one_job),
        YARD(a_fork_is_made_once_and_not_retried_when_what_it_began_with_is_gone),
        YARD(a_job_whose_stored_answer_was_lost_runs_when_it_is_asked_for_again),
        YARD(of_an_older_starts_devices_nothing_is_logged),
        YARD(a_controller_that_lost_the_lock_to_another_one_is_deposed_while_that_one_leads),
        YARD(a_mutation_under_an_epoch_that_is_over_may_be_asked_for_again),
        YARD(a_cancel_with_the_same_request_id_happens_once),
        YARD(a_wrong_spec_is_refused_with_every_problem),
        YARD(illegal_moves_and_unknown_jobs_are_clear_errors),
        YARD(a_cancelled_gang_is_stopped_before_the_job_is_cancelled),
        YARD(pages_hold_every_job_once_and_a_token_belongs_to_its_filter),
        YARD(a_watcher_sees_every_event_once_and_may_go_on_where_it_was),
    };
    return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}

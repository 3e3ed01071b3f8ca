/* PauseJob and ResumeJob as clients and agents see them. */
#include "tests/rpc/service_fixture.h"

#include <stdio.h>

#define STATE(s) TRAINYARD__V1__JOB__STATE__##s

static char last_reason[RPC_REASON_BYTES]; /* the machine-readable reason of the last refusal */

static status_t ask_by(struct service_fixture *y, const char *method, const char *name, const char *request_id,
                       Trainyard__V1__Job__State *ret, struct err *e) {
    /* PauseJob, ResumeJob and CancelJob have the same fields. */
    Trainyard__V1__PauseJobRequest pause = TRAINYARD__V1__PAUSE_JOB_REQUEST__INIT;
    Trainyard__V1__ResumeJobRequest resume = TRAINYARD__V1__RESUME_JOB_REQUEST__INIT;
    Trainyard__V1__CancelJobRequest cancel = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    pause.name = resume.name = cancel.name = (char *)name;
    pause.request_id = resume.request_id = cancel.request_id = (char *)request_id;
    ProtobufCMessage *reply = NULL;
    const ProtobufCMessage *asked = *method == 'P' ? &pause.base : *method == 'R' ? &resume.base : &cancel.base;
    TRY(rpc_call_unary_reason(y->channel, &trainyard__v1__job_service__descriptor, method, asked, FIXTURE_PATIENCE_MS,
                              &reply, last_reason, e));
    if (ret)
        *ret = ((Trainyard__V1__Job *)reply)->state;
    protobuf_c_message_free_unpacked(reply, NULL);
    return ST_OK;
}

static status_t ask(struct service_fixture *y, const char *method, const char *name, struct err *e) {
    return ask_by(y, method, name, "", NULL, e);
}

static void assert_reason(struct service_fixture *y, int64_t id, const char *reason) {
    Trainyard__V1__Job *job = service_job(y, id);
    assert_string_equal(job->reason, reason);
    trainyard__v1__job__free_unpacked(job, NULL);
}

/* The records that a gang of one rank writes when it is stopped after step 7. */
static void report_checkpoint(struct agent *a, int64_t job) {
    Trainyard__V1__ShardReport shard = TRAINYARD__V1__SHARD_REPORT__INIT;
    shard.step = 7;
    shard.world_size = 1;
    shard.directory = "/nowhere/checkpoints/step-7";
    shard.file = "rank-0.safetensors";
    shard.bytes = 1;
    shard.sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    shard.weights_sha256 = shard.sha256;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT, *records = &record;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_SHARD;
    record.shard = &shard;
    agent_report(a, job, 1, 0, 1, &records, 1);
}

static struct agent *run_job(struct service_fixture *y, int64_t *ret_job) {
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    *ret_job = service_submit(y, 1, 0);
    service_run(y, &a, 1, *ret_job, 1);
    return a;
}

static void end_pausing(struct service_fixture *y, struct agent *a, int64_t job) {
    report_checkpoint(a, job);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_COMMITTED);
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED, 1);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
    service_await_state(y, job, STATE(PAUSED));
    assert_reason(y, job, "paused by its user after step 7");
}

static void a_paused_job_frees_its_slot_and_resumes_from_the_checkpoint_of_its_pause(void **state) {
    struct service_fixture *y = *state;
    int64_t job;
    struct agent *a = run_job(y, &job);
    OK(ask(y, "PauseJob", "jobs/1", &e));
    service_await_state(y, job, STATE(PAUSING));
    const Trainyard__V1__StopAttempt *stop = agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP)->stop;
    assert_int_equal(stop->grace_ms, SCHEDULER_CHECKPOINT_GRACE_MS);
    assert_string_equal(stop->reason, "the job is paused");
    FAILS(ask(y, "ResumeJob", "1", &e), ST_FAILED_PRECONDITION, "still being paused");
    end_pausing(y, a, job);
    Trainyard__V1__Job *paused = service_job(y, job);
    assert_string_equal(paused->weights_sha256, ""); /* only a final checkpoint has them */
    trainyard__v1__job__free_unpacked(paused, NULL);

    int64_t other = service_submit(y, 1, 0);
    service_run(y, &a, 1, other, 1);
    service_finish(&a, 1, other, 1);
    service_await_state(y, other, STATE(SUCCEEDED));

    OK(ask(y, "ResumeJob", "1", &e));
    const Trainyard__V1__AttemptStart *start = agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START)->start;
    assert_int_equal(start->job, job);
    assert_int_equal(start->attempt, 2);
    assert_string_equal(start->resume_directory, "/nowhere/checkpoints/step-7");
    Trainyard__V1__Job *resumed = service_job(y, job);
    assert_int_equal(resumed->restarts, 0);
    assert_int_equal(resumed->attempts[1]->from_step, 7);
    trainyard__v1__job__free_unpacked(resumed, NULL);
    agent_free(a);
}

static void a_restarted_controller_completes_a_pause(void **state) {
    struct service_fixture *y = *state;
    int64_t job;
    struct agent *a = run_job(y, &job);
    OK(ask(y, "PauseJob", "1", &e));
    service_stop_controller(y);
    agent_free(a);
    service_start_controller(y);
    Trainyard__V1__RankStatus rank = TRAINYARD__V1__RANK_STATUS__INIT, *ranks = &rank;
    rank.pid = 1;
    rank.joined = true;
    Trainyard__V1__AttemptStatus status = TRAINYARD__V1__ATTEMPT_STATUS__INIT;
    status.job = job;
    status.attempt = 1;
    status.world_size = 1;
    status.ranks = &ranks;
    status.n_ranks = 1;
    a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, &status);
    assert_int_equal(agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP)->stop->grace_ms,
                     SCHEDULER_CHECKPOINT_GRACE_MS);
    end_pausing(y, a, job);
    service_stop_controller(y);
    agent_free(a);
    service_start_controller(y);
    a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t other = service_submit(y, 1, 0);
    service_run(y, &a, 1, other, 1); /* the paused job does not block it */
    service_await_state(y, job, STATE(PAUSED));
    OK(ask(y, "ResumeJob", "1", &e));
    service_await_state(y, job, STATE(QUEUED));
    agent_free(a);
}

static void a_pause_and_a_resume_with_the_same_request_id_happen_once(void **state) {
    struct service_fixture *y = *state;
    static const char *const ids[] = { "3b241101-e2bb-4255-8caf-4136c566a962", "9d1b7a52-0c64-4a9b-9c39-e51fbb0d3c11" };
    Trainyard__V1__Job__State now;
    service_submit(y, 1, 0);
    OK(ask_by(y, "PauseJob", "1", ids[0], &now, &e));
    assert_int_equal(now, STATE(PAUSED));
    OK(ask_by(y, "PauseJob", "1", ids[0], &now, &e));
    assert_int_equal(now, STATE(PAUSED));
    OK(ask_by(y, "ResumeJob", "1", ids[0], &now, &e)); /* the same id, another request */
    assert_int_equal(now, STATE(QUEUED));
    OK(ask_by(y, "PauseJob", "1", ids[0], &now, &e)); /* already done: no effect */
    assert_int_equal(now, STATE(QUEUED));
    OK(ask_by(y, "PauseJob", "1", ids[1], &now, &e));
    assert_int_equal(now, STATE(PAUSED));
    OK(ask_by(y, "ResumeJob", "1", ids[0], &now, &e));
    assert_int_equal(now, STATE(PAUSED));
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM event WHERE kind = 'state_changed'"), 4);
}

static void moves_that_cannot_be_are_refused_with_a_reason_for_programs(void **state) {
    struct service_fixture *y = *state;
    FAILS(ask(y, "PauseJob", "99", &e), ST_NOT_FOUND, "jobs/99 does not exist");
    assert_string_equal(last_reason, "JOB_NOT_FOUND");
    FAILS(ask(y, "ResumeJob", "jobs/x", &e), ST_INVALID_ARGUMENT, "'jobs/x'");
    int64_t job = service_submit(y, 1, 0);
    FAILS(ask(y, "ResumeJob", "1", &e), ST_FAILED_PRECONDITION, "job 1 is QUEUED: only a PAUSED job is resumed");
    assert_string_equal(last_reason, "JOB_NOT_PAUSED");
    OK(ask(y, "PauseJob", "1", &e));
    assert_reason(y, job, "paused by its user while it waited");
    FAILS(ask(y, "PauseJob", "1", &e), ST_FAILED_PRECONDITION, "already paused");
    assert_string_equal(last_reason, "JOB_NOT_PAUSABLE");
    FAILS(controller_delete(y->controller, job, &e), ST_FAILED_PRECONDITION, "PAUSED");
    OK(ask(y, "CancelJob", "1", &e));
    service_await_state(y, job, STATE(CANCELLED));
    FAILS(ask(y, "PauseJob", "1", &e), ST_FAILED_PRECONDITION, "job 1 is CANCELLED: it cannot be paused");
    assert_string_equal(last_reason, "JOB_ENDED");
    FAILS(ask(y, "ResumeJob", "1", &e), ST_FAILED_PRECONDITION, "job 1 is CANCELLED: only a PAUSED job is resumed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_paused_job_frees_its_slot_and_resumes_from_the_checkpoint_of_its_pause),
        FIXTURE_TEST(a_restarted_controller_completes_a_pause),
        FIXTURE_TEST(a_pause_and_a_resume_with_the_same_request_id_happen_once),
        FIXTURE_TEST(moves_that_cannot_be_are_refused_with_a_reason_for_programs),
    };
    return cmocka_run_group_tests_name("service pause", tests, service_group_setup, service_group_teardown);
}

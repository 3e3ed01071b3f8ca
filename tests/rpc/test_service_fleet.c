/* What a large fleet, and a database with failures of its own, ask of the controller. */
#include "service/store/queue.h"
#include "tests/rpc/service_fixture.h"

#include "base/limits.h"

#define STATE(s)    TRAINYARD__V1__JOB__STATE__##s
#define ORDER(kind) TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_##kind

/* The widest gang, with addresses as long as allowed: each host gets all of them in one message. */
static void a_gang_of_the_largest_size_gets_its_addresses(void **state) {
    struct service_fixture *y = *state;
    enum { HOSTS = 8, EACH = LIMIT_WORLD_SIZE / HOSTS };
    static char address[LIMIT_RENDEZVOUS_BYTES + 1];
    struct agent *agents[HOSTS];
    char id[16];
    for (int i = 0; i < HOSTS; i++) {
        snprintf(id, sizeof id, "host-%d", i);
        agents[i] = agent_new(y, id, 1, EACH);
        agent_attach_alive(agents[i]);
    }
    const int64_t job = service_submit(y, LIMIT_WORLD_SIZE, 0);
    memset(address, 'a', LIMIT_RENDEZVOUS_BYTES);
    for (int i = 0; i < HOSTS; i++) {
        const Trainyard__V1__AttemptStart *start = agent_expect(agents[i], ORDER(START))->start;
        assert_int_equal(start->n_ranks, EACH);
        for (int r = 0; r < EACH; r++) {
            snprintf(address, 8, "%04d...", start->ranks[r]);
            address[7] = 'a';
            agent_say_offer(agents[i], job, 1, start->ranks[r], address);
        }
    }
    for (int i = 0; i < HOSTS; i++) {
        const Trainyard__V1__Rendezvous *all = agent_expect(agents[i], ORDER(RENDEZVOUS))->rendezvous->rendezvous;
        assert_int_equal(all->n_addresses, LIMIT_WORLD_SIZE);
        for (int r = 0; r < LIMIT_WORLD_SIZE; r++) {
            assert_int_equal(all->addresses[r].len, LIMIT_RENDEZVOUS_BYTES);
            assert_int_equal(atoi((const char *)all->addresses[r].data), r);
        }
    }
    for (int i = 0; i < HOSTS; i++)
        agent_free(agents[i]);
}

/* Each new event fails three times. A sequence is not rolled back. */
static const char FAILING[] =
    "CREATE SEQUENCE tries;"
    "CREATE FUNCTION fail_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "IF nextval('tries') % 4 <> 0 THEN RAISE EXCEPTION 'could not read block 7' USING ERRCODE = 'io_error'; END IF; "
    "RETURN NEW; END $$;"
    "CREATE TRIGGER fail_event BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION fail_event()";

static void io_errors_of_postgresql_do_not_end_the_leader(void **state) {
    struct service_fixture *y = *state;
    int64_t before, after;
    OK(controller_leads(y->controller, &before, &e));
    struct agent *agents[] = { agent_new(y, "a", 1, 1) };
    agent_attach_alive(agents[0]);
    pg_run(y->conninfo, FAILING);
    const int64_t job = service_submit(y, 1, 0);
    service_run(y, agents, 1, job, 1);
    service_finish(agents, 1, job, 1);
    service_await_state(y, job, STATE(SUCCEEDED));
    assert_false(controller_deposed(y->controller));
    OK(controller_leads(y->controller, &after, &e));
    assert_int_equal(before, after);
    assert_true(pg_number(y->conninfo, "SELECT last_value FROM tries") >= 4 * 4); /* created, started, runs, ended */
    agent_free(agents[0]);
}

static status_t create_in(struct service_fixture *y, const char *queue, const char *request_id, struct err *e) {
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.spec = service_spec(1, 0);
    request.spec->queue = (char *)(uintptr_t)queue;
    request.spec->_queue_case = TRAINYARD__V1__JOB_SPEC___QUEUE_QUEUE;
    request.wait_for_hosts = true;
    request.request_id = (char *)(uintptr_t)request_id;
    status_t st = service_call(y, "CreateJob", &request.base, &reply, e);
    if (st == ST_OK)
        protobuf_c_message_free_unpacked(reply, NULL);
    return st;
}

static status_t create_once(struct service_fixture *y, const char *request_id, struct err *e) {
    return create_in(y, "default", request_id, e);
}

static status_t create(struct service_fixture *y, struct err *e) { return create_once(y, "", e); }

static void no_job_is_created_beyond_the_maximum_until_others_have_ended(void **state) {
    struct service_fixture *y = *state;
    const deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    struct err why = { "" };
    OK(create_once(y, "018f0000-0000-7000-8000-000000000001", &why));
    controller_set_max_jobs(y->controller, 2);
    while (create(y, &why) == ST_OK) /* the jobs are counted at each tick */
        assert_true(clock_mono_ms() < deadline);
    assert_int_equal(create(y, &why), ST_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(why.msg, "takes at most 2 (--max-jobs)"));
    OK(create_once(y, "018f0000-0000-7000-8000-000000000001", &why)); /* its job exists */
    controller_set_max_jobs(y->controller, 0);
    OK(create(y, &e));
}

static void jobs_name_a_bounded_number_of_queues_that_were_not_created(void **state) {
    struct service_fixture *y = *state;
    const struct store_queue_settings settings = STORE_QUEUE_DEFAULTS;
    struct err why = { "" };
    char queue[32];
    int n = 0;
    do { /* the queues are counted at each tick */
        snprintf(queue, sizeof queue, "queue-%d", n);
        n++;
    } while (n < 10 * CONTROLLER_MAX_QUEUES && create_in(y, queue, "", &why) == ST_OK);
    assert_true(n > CONTROLLER_MAX_QUEUES);
    assert_non_null(strstr(why.msg, "was not created, and there are 2000 queues"));
    OK(controller_queue_create(y->controller, queue, &settings, deadline_in(FIXTURE_PATIENCE_MS), &e));
    OK(create_in(y, queue, "", &e));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_gang_of_the_largest_size_gets_its_addresses),
        FIXTURE_TEST(io_errors_of_postgresql_do_not_end_the_leader),
        FIXTURE_TEST(no_job_is_created_beyond_the_maximum_until_others_have_ended),
        FIXTURE_TEST(jobs_name_a_bounded_number_of_queues_that_were_not_created),
    };
    return cmocka_run_group_tests(tests, service_group_setup, service_group_teardown);
}

/* Lists of jobs: every filter, every order in both directions, pages, and the indexes that serve them. */
#include "tests/store/store_fixture.h"

#include "service/store/job_list.h"
#include "service/store/migrate.h"

#include <stdio.h>
#include <string.h>

enum { ORDERS = STORE_JOBS_BY_USER + 1, MANY = 100000, PAGE = 100 };

/* The caller sets what the lists select by. */
static int64_t create(struct fixture *f, struct store_job_new job) {
    int64_t id;
    bool existed;
    job.request_id = fixture_request(f);
    job.queue = "default";
    job.world_size = 1;
    job.accelerator = "cpu";
    job.spec = "spec";
    job.spec_bytes = 4;
    OK(store_job_create(f->store, f->epoch, &job, &id, &existed, NULL, &e));
    return id;
}

static int64_t job_of(struct fixture *f, const char *name, const char *user, const struct store_job_label *labels,
                      size_t n_labels) {
    return create(f, (struct store_job_new){ .name = name, .user = user, .labels = labels, .n_labels = n_labels });
}

/* The ids of all pages of `limit` jobs, one after another: "3 2 1". */
static const char *ids(struct fixture *f, struct store_job_filter filter, int limit, char ret[256]) {
    struct store_job *jobs;
    size_t n, used = 0;
    filter.limit = limit;
    ret[0] = '\0';
    do {
        OK(store_job_list(f->store, f->m, &filter, &jobs, &n, &e));
        for (size_t i = 0; i < n; i++)
            used += (size_t)snprintf(ret + used, 256 - used, "%s%lld", used ? " " : "", (long long)jobs[i].id);
        if (n > 0)
            filter.after = store_job_place(&jobs[n - 1], filter.order);
    } while (n == (size_t)limit);
    return ret;
}

static void expect_ids(struct fixture *f, struct store_job_filter filter, const char *expected) {
    char got[256];
    for (int limit = 1; limit <= 7; limit++)
        assert_string_equal(ids(f, filter, limit, got), expected);
}

static void labels_and_users_select_jobs(void **state) {
    struct fixture *f = *state;
    const struct store_job_label a[] = { { "team", "a" }, { "size", "7" } }, b[] = { { "team", "b" }, { "size", "7" } };
    const struct store_job_label team_a = { "team", "a" }, size = { "size", NULL }, te = { "te", NULL };
    const struct store_job_label both[] = { team_a, size }, none[] = { { "team", "a" }, { "team", "b" } };
    assert_int_equal(job_of(f, "x", "ada", a, 2), 1);
    assert_int_equal(job_of(f, "y", "bob", b, 2), 2);
    assert_int_equal(job_of(f, "x", "ada", a, 1), 3);
    assert_int_equal(job_of(f, "z", NULL, NULL, 0), 4);
    expect_ids(f, (struct store_job_filter){ .user = "" }, "4 3 2 1");
    expect_ids(f, (struct store_job_filter){ .user = "ada" }, "3 1");
    expect_ids(f, (struct store_job_filter){ .user = "ad" }, "");
    expect_ids(f, (struct store_job_filter){ .labels = &team_a, .n_labels = 1 }, "3 1");
    expect_ids(f, (struct store_job_filter){ .labels = &size, .n_labels = 1 }, "2 1");
    expect_ids(f, (struct store_job_filter){ .labels = both, .n_labels = 2 }, "1");
    expect_ids(f, (struct store_job_filter){ .labels = none, .n_labels = 2 }, "");
    expect_ids(f, (struct store_job_filter){ .labels = &te, .n_labels = 1 }, "");
    expect_ids(f, (struct store_job_filter){ .name = "x", .labels = &size, .n_labels = 1, .user = "ada" }, "1");
    struct store_job job;
    OK(store_job_get(f->store, f->m, 1, &job, &e));
    assert_string_equal(job.user, "ada");
}

static int64_t job_of_project(struct fixture *f, const char *project) {
    return create(f, (struct store_job_new){ .name = "x", .project = project });
}

static void projects_select_jobs(void **state) {
    struct fixture *f = *state;
    const char *project;
    bool found;
    assert_int_equal(job_of_project(f, "vision"), 1);
    assert_int_equal(job_of_project(f, NULL), 2);
    assert_int_equal(job_of_project(f, "speech"), 3);
    assert_int_equal(job_of_project(f, "vision"), 4);
    assert_int_equal(job_of_project(f, ""), 5);
    expect_ids(f, (struct store_job_filter){ .project = "vision" }, "4 1");
    expect_ids(f, (struct store_job_filter){ .project = "default" }, "5 2");
    expect_ids(f, (struct store_job_filter){ .project = "visio" }, "");
    expect_ids(f, (struct store_job_filter){ .project = NULL }, "5 4 3 2 1");
    expect_ids(f, (struct store_job_filter){ .project = "vision", .order = STORE_JOBS_BY_NAME }, "1 4");
    struct store_job job;
    OK(store_job_get(f->store, f->m, 3, &job, &e));
    assert_string_equal(job.project, "speech");
    fixture_move(f, 3, 0, STORE_JOB_QUEUED, STORE_JOB_CANCELLED);
    pg_force(f->conninfo, "UPDATE job SET delete_time = now() WHERE id = 3");
    OK(store_job_project(f->store, f->m, 3, &project, &found, &e));
    assert_true(found);
    assert_string_equal(project, "speech");
    OK(store_job_project(f->store, f->m, 6, &project, &found, &e));
    assert_false(found);
}

static void orders_have_pages_in_both_directions(void **state) {
    struct fixture *f = *state;
    const char *names[] = { "b", "a", "b", "c", "a" }, *users[] = { "v", "v", "u", "u", "w" };
    for (int i = 0; i < 5; i++)
        assert_int_equal(job_of(f, names[i], users[i], NULL, 0), i + 1);
    fixture_move(f, 2, 0, STORE_JOB_QUEUED, STORE_JOB_CANCELLED);
    fixture_move(f, 4, 0, STORE_JOB_QUEUED, STORE_JOB_CANCELLED);
    pg_force(f->conninfo, "UPDATE job SET start_time = now() - id * interval '1 s' WHERE id < 4");
    pg_force(f->conninfo, "UPDATE job SET end_time = to_timestamp(7) WHERE state = 11"); /* the same: then by id */
    static const struct {
        enum store_job_order order;
        const char *forward, *reverse;
    } cases[] = { { STORE_JOBS_BY_ID, "5 4 3 2 1", "1 2 3 4 5" },   { STORE_JOBS_BY_NAME, "2 5 1 3 4", "4 3 1 5 2" },
                  { STORE_JOBS_BY_USER, "3 4 1 2 5", "5 2 1 4 3" }, { STORE_JOBS_BY_STATE, "1 3 5 2 4", "4 2 5 3 1" },
                  { STORE_JOBS_BY_START, "1 2 3", "3 2 1" },        { STORE_JOBS_BY_END, "4 2", "2 4" } };
    assert_int_equal(sizeof cases / sizeof *cases, ORDERS);
    for (size_t i = 0; i < ORDERS; i++) {
        expect_ids(f, (struct store_job_filter){ .order = cases[i].order }, cases[i].forward);
        expect_ids(f, (struct store_job_filter){ .order = cases[i].order, .reverse = true }, cases[i].reverse);
    }
    expect_ids(f, (struct store_job_filter){ .order = STORE_JOBS_BY_NAME, .state = STORE_JOB_QUEUED }, "5 1 3");
}

static void a_page_behind_a_deleted_job_is_refused_and_not_empty(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 3; i++)
        job_of(f, "a", "u", NULL, 0);
    struct store_job_filter filter = { .order = STORE_JOBS_BY_NAME, .after.id = 2, .limit = 10 };
    struct store_job *jobs;
    size_t n;
    OK(store_job_list(f->store, f->m, &filter, &jobs, &n, &e));
    assert_int_equal(n, 1);
    pg_force(f->conninfo, "DELETE FROM job WHERE id = 2");
    FAILS(store_job_list(f->store, f->m, &filter, &jobs, &n, &e), ST_FAILED_PRECONDITION, "jobs/2, at which");
    filter.order = STORE_JOBS_BY_ID;
    OK(store_job_list(f->store, f->m, &filter, &jobs, &n, &e));
    assert_int_equal(n, 1);
}

/* Only indexes are read, and few rows, although the table has a hundred thousand. */
static void lists_of_many_jobs_read_indexes_only(void **state) {
    struct fixture *f = *state;
    struct store *other;
    const struct store_job_label rare = { "rare", "yes" };
    pg_force(f->conninfo,
             "INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, steps, "
             "keep_last, keep_best, user_name, project, create_time, start_time, end_time, attempt) "
             "SELECT 'name-' || i % 1000, 'default', CASE WHEN i % 5000 = 0 THEN 10 ELSE 9 END, 0, 1, 'cpu', "
             "0, 1, 1, 1, 'user-' || i % 500, 'project-' || i % 500, now() - i * interval '1 s', now() - i * interval "
             "'1 s', "
             "now() - i * interval '1 s', 1 FROM generate_series(1, 100000) i");
    pg_force(f->conninfo, "INSERT INTO job_label SELECT id, 'team', 'a' FROM job");
    pg_force(f->conninfo, "INSERT INTO job_label SELECT id, 'rare', 'yes' FROM job WHERE id % 9000 = 0");
    pg_run(f->conninfo, "VACUUM ANALYZE job");
    pg_run(f->conninfo, "VACUUM ANALYZE job_label");
    OK(store_open(&(struct store_options){ .conninfo = f->conninfo, .patience_ms = 20000 }, &other, &e));
    const long long scans = pg_number(f->conninfo, "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'job'");
    const struct store_job_filter filters[] = {
        { 0 },
        { .user = "user-7" },
        { .project = "project-7" },
        { .name = "name-7" },
        { .state = STORE_JOB_FAILED },
        { .labels = &rare, .n_labels = 1 },
        { .labels = (const struct store_job_label[]){ { "team", "a" } }, .n_labels = 1 },
    };
    int lists = 0;
    for (int order = 0; order < ORDERS; order++)
        for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
            struct store_job_filter filter = filters[i];
            struct store_job *jobs;
            size_t n;
            if (order != STORE_JOBS_BY_ID && i > 0)
                continue; /* another order sorts what the filter's index selects */
            filter.order = (enum store_job_order)order;
            filter.limit = PAGE;
            OK(store_job_list(other, f->m, &filter, &jobs, &n, &e));
            assert_true(n >= 11 && n <= PAGE);
            filter.after = store_job_place(&jobs[n / 2], filter.order);
            OK(store_job_list(other, f->m, &filter, &jobs, &n, &e));
            lists += 2;
        }
    other = store_close(other); /* a backend that ends reports its statistics */
    long long now, read;
    do { /* they arrive before the backend's row in pg_stat_activity goes */
        now = pg_number(f->conninfo, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                                     "AND application_name = 'trainyard' AND query LIKE 'SELECT j.id%'");
    } while (now > 0);
    assert_int_equal(pg_number(f->conninfo, "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'job'"), scans);
    read = pg_number(f->conninfo, "SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'job'");
    print_message("%d lists of %d jobs read %lld rows\n", lists, MANY, read);
    assert_true(read > 0 && read <= 4LL * PAGE * lists);
}

/* A spec as an older version stored it: steps (a varint) and three labels, one of them without a value. */
static void a_migration_reads_the_labels_of_specs(void **state) {
    struct fixture *f = *state;
    char conninfo[256];
    int from;
    snprintf(conninfo, sizeof conninfo, "%s", pg_database(f->pg, false));
    OK(store_migrate(conninfo, 26, &from, &e));
    pg_run(conninfo, "INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, steps, "
                     "keep_last, keep_best) VALUES ('old', 'default', 1, 0, 1, 'cpu', 0, 1, 1, 1)");
    pg_run(conninfo, "INSERT INTO job_spec (job, body) VALUES (1, "
                     "'\\x50ac02'::bytea || '\\x5a090a047465616d120161' || '\\x69000000000000f03f' || "
                     "'\\x5a070a036b65791200' || '\\x5a060a046e6f6e65' || '\\x0a036f6c64'::bytea)");
    OK(store_migrate(conninfo, store_schema_version(), &from, &e));
    assert_int_equal(pg_number(conninfo, "SELECT count(*) FROM job_label WHERE job = 1"), 3);
    assert_int_equal(pg_number(conninfo, "SELECT count(*) FROM job_label WHERE (key, value) IN (('team', 'a'), "
                                         "('key', ''), ('none', ''))"),
                     3);
    OK(store_migrate(conninfo, 26, &from, &e));
    OK(store_migrate(conninfo, store_schema_version(), &from, &e));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(labels_and_users_select_jobs),         TEST(projects_select_jobs),
        TEST(orders_have_pages_in_both_directions), TEST(a_page_behind_a_deleted_job_is_refused_and_not_empty),
        TEST(lists_of_many_jobs_read_indexes_only), TEST(a_migration_reads_the_labels_of_specs),
    };
    return cmocka_run_group_tests_name("job lists", tests, fixture_group_setup, fixture_group_teardown);
}

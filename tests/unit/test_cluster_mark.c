/* A folder of checkpoints belongs to one cluster: if several clusters claim it at once, one gets it, and no other
 * cluster changes it. */
#include "base/cleanup.h"
#include "base/cluster_mark.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define OURS  "11111111-2222-3333-4444-555555555555"
#define OTHER "99999999-2222-3333-4444-555555555555"

static char folder[] = "/tmp/ty-mark-XXXXXX";

static int setup(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ty-mark-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

static status_t mark(const char *cluster, enum cluster_mark_how how, bool *ret_taken, struct err *e) {
    return cluster_mark(NULL, folder, cluster, how, ret_taken, e);
}

/* Simulates a file system without hard links, such as FAT and some network file systems. */
static bool without_links;

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    if (!without_links)
        return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    errno = EPERM;
    return -1;
}

static void mark_write(const char *text) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, CLUSTER_MARK_NAME);
    assert_int_equal(file_write_atomic(path, text, strlen(text), 0644, NULL), ST_OK);
}

static int count_files(void) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(d);
    return n;
}

static void a_folder_is_taken_once_and_refused_to_others(void **state) {
    (void)state;
    bool taken = true;
    struct err why = { "" };
    assert_int_equal(mark(OURS, CLUSTER_MARK_CHECK, &taken, &why), ST_OK); /* nobody's yet */
    assert_false(taken);
    assert_int_equal(count_files(), 0);
    assert_int_equal(mark("", CLUSTER_MARK_TAKE, &taken, &why), ST_OK); /* of trainyard-train */
    assert_int_equal(count_files(), 0);
    assert_int_equal(mark(OURS, CLUSTER_MARK_TAKE, &taken, &why), ST_OK);
    assert_true(taken);
    assert_int_equal(mark(OURS, CLUSTER_MARK_TAKE, &taken, &why), ST_OK);
    assert_false(taken);
    assert_int_equal(mark(OURS, CLUSTER_MARK_CHECK, NULL, &why), ST_OK);
    for (int how = CLUSTER_MARK_CHECK; how <= CLUSTER_MARK_TAKE; how++) {
        assert_int_equal(mark(OTHER, (enum cluster_mark_how)how, &taken, &why), ST_FAILED_PRECONDITION);
        assert_non_null(strstr(why.msg, OURS));
        assert_non_null(strstr(why.msg, OTHER));
        assert_non_null(strstr(why.msg, "remove its " CLUSTER_MARK_NAME));
        assert_false(taken);
    }
    assert_int_equal(count_files(), 1);
}

static void a_file_that_holds_no_id_is_refused(void **state) {
    (void)state;
    static const char *const damaged[] = { "", "\n", OURS "0\n", "11111111-2222-3333-4444-55555555555\n", "ours\n" };
    struct err why = { "" };
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        mark_write(damaged[i]);
        assert_int_equal(mark(OURS, CLUSTER_MARK_TAKE, NULL, &why), ST_DATA_LOSS);
        assert_non_null(strstr(why.msg, "holds no cluster's id"));
    }
    mark_write(OURS); /* without the end of the line, as a person may write it */
    assert_int_equal(mark(OURS, CLUSTER_MARK_TAKE, NULL, &why), ST_OK);
}

/* A user who can write beside the folders of jobs must not make another file be read instead of the mark. */
static void a_symbolic_link_is_not_followed(void **state) {
    (void)state;
    char real[64], link[64];
    struct err why = { "" };
    snprintf(real, sizeof real, "%s/real", folder);
    snprintf(link, sizeof link, "%s/%s", folder, CLUSTER_MARK_NAME);
    assert_int_equal(file_write_atomic(real, OURS, strlen(OURS), 0644, NULL), ST_OK);
    assert_int_equal(symlink("real", link), 0);
    assert_int_equal(mark(OURS, CLUSTER_MARK_TAKE, NULL, &why), ST_PERMISSION_DENIED);
}

/* A named pipe without a writer would block its reader. */
static void what_is_no_file_is_refused_and_not_waited_for(void **state) {
    (void)state;
    char path[64];
    struct err why = { "" };
    snprintf(path, sizeof path, "%s/%s", folder, CLUSTER_MARK_NAME);
    assert_int_equal(mkfifo(path, 0644), 0);
    assert_int_equal(mark(OURS, CLUSTER_MARK_CHECK, NULL, &why), ST_DATA_LOSS);
    assert_non_null(strstr(why.msg, "not a regular file"));
    assert_int_equal(unlink(path) | mkdir(path, 0755), 0);
    assert_int_equal(mark(OURS, CLUSTER_MARK_TAKE, NULL, &why), ST_DATA_LOSS);
}

struct racer {
    char cluster[40];
    status_t status;
    bool taken;
};

static pthread_barrier_t start;

static void *race(void *ctx) {
    struct racer *r = ctx;
    pthread_barrier_wait(&start);
    r->status = mark(r->cluster, CLUSTER_MARK_TAKE, &r->taken, NULL);
    return NULL;
}

static void race_for_a_folder(void) {
    enum { RACERS = 16 };
    static struct racer racers[RACERS];
    pthread_t threads[RACERS];
    int taken = 0, good = 0;
    pthread_barrier_init(&start, NULL, RACERS);
    for (int i = 0; i < RACERS; i++) {
        snprintf(racers[i].cluster, sizeof racers[i].cluster, "%08x-2222-3333-4444-555555555555", i / 2);
        pthread_create(&threads[i], NULL, race, &racers[i]);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(threads[i], NULL);
        taken += racers[i].taken;
        good += racers[i].status == ST_OK;
        assert_true(racers[i].status == ST_OK || racers[i].status == ST_FAILED_PRECONDITION);
    }
    pthread_barrier_destroy(&start);
    assert_int_equal(taken, 1);
    assert_int_equal(good, 2); /* two of each cluster race */
    assert_int_equal(count_files(), 1);
}

static void of_many_that_take_a_folder_at_once_one_does(void **state) {
    (void)state;
    race_for_a_folder();
}

static void and_so_without_hard_links(void **state) {
    (void)state;
    without_links = true;
    race_for_a_folder();
    without_links = false;
}

static void the_folder_of_all_jobs_is_cut_from_a_path_in_it(void **state) {
    (void)state;
    char ret[PATH_MAX];
    assert_int_equal(cluster_mark_folder("/ck/team/7/attempt-1", 2, ret, sizeof ret, NULL), ST_OK);
    assert_string_equal(ret, "/ck/team");
    assert_int_equal(cluster_mark_folder("/ck//7/attempt-1/step-10", 3, ret, sizeof ret, NULL), ST_OK);
    assert_string_equal(ret, "/ck");
    assert_int_equal(cluster_mark_folder("/7/attempt-1", 2, ret, sizeof ret, NULL), ST_OK);
    assert_string_equal(ret, "/");
    assert_int_equal(cluster_mark_folder("7/attempt-1", 2, ret, sizeof ret, NULL), ST_INVALID_ARGUMENT);
    assert_int_equal(cluster_mark_folder("", 3, ret, sizeof ret, NULL), ST_INVALID_ARGUMENT);
    assert_int_equal(cluster_mark_folder("/ck/7/attempt-1", 2, ret, 3, NULL), ST_INVALID_ARGUMENT);
}

#define ON_FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_FOLDER(a_folder_is_taken_once_and_refused_to_others),
        ON_FOLDER(a_file_that_holds_no_id_is_refused),
        ON_FOLDER(a_symbolic_link_is_not_followed),
        ON_FOLDER(what_is_no_file_is_refused_and_not_waited_for),
        ON_FOLDER(of_many_that_take_a_folder_at_once_one_does),
        ON_FOLDER(and_so_without_hard_links),
        ON_FOLDER(the_folder_of_all_jobs_is_cut_from_a_path_in_it),
    };
    return cmocka_run_group_tests_name("cluster mark", tests, NULL, NULL);
}

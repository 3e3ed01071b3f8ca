/* The worker threads of a server: limited jobs leave threads to the others. */
#include "api/rpc/pool.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { THREADS = 4, LIMIT = 2, JOBS = 9 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t begun, may_end, quick;
static int running, highest, order[JOBS], n_order;

static void slow(struct pool_job *job) {
    (void)job;
    pthread_mutex_lock(&lock);
    if (++running > highest)
        highest = running;
    pthread_mutex_unlock(&lock);
    sem_post(&begun);
    sem_wait(&may_end);
    pthread_mutex_lock(&lock);
    running--;
    pthread_mutex_unlock(&lock);
}

static void fast(struct pool_job *job) {
    (void)job;
    sem_post(&quick);
}

static void other_jobs_run_while_limited_ones_use_all_that_they_may(void **state) {
    (void)state;
    struct pool *p;
    struct pool_job jobs[JOBS], others[JOBS];
    assert_int_equal(pool_open(THREADS, 2 * JOBS, LIMIT, &p, NULL), 0);
    for (int i = 0; i < JOBS; i++) {
        jobs[i].run = slow;
        others[i].run = fast;
        assert_true(pool_offer(p, &jobs[i], true));
    }
    for (int i = 0; i < LIMIT; i++)
        sem_wait(&begun);
    for (int i = 0; i < JOBS; i++) {
        pool_post(p, &others[i], false); /* behind the limited jobs that wait */
        sem_wait(&quick);
    }
    for (int i = LIMIT; i < JOBS; i++) {
        sem_post(&may_end);
        sem_wait(&begun);
    }
    for (int i = 0; i < LIMIT; i++)
        sem_post(&may_end);
    pool_close(p);
    assert_int_equal(highest, LIMIT);
    assert_int_equal(running, 0);
}

struct numbered {
    struct pool_job job; /* first */
    int number;
};

static void note(struct pool_job *job) {
    order[n_order++] = ((struct numbered *)job)->number;
    sem_wait(&may_end);
}

static void jobs_of_both_kinds_run_in_the_order_of_their_arrival_and_before_the_pool_closes(void **state) {
    (void)state;
    struct pool *p;
    struct numbered jobs[JOBS];
    assert_int_equal(pool_open(1, JOBS, 1, &p, NULL), 0);
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (struct numbered){ .job = { .run = note }, .number = i };
        pool_post(p, &jobs[i].job, i % 3 == 0);
    }
    for (int i = 0; i < JOBS; i++)
        sem_post(&may_end);
    pool_close(p);
    assert_int_equal(n_order, JOBS);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(order[i], i);
}

int main(void) {
    sem_init(&begun, 0, 0);
    sem_init(&may_end, 0, 0);
    sem_init(&quick, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_jobs_run_while_limited_ones_use_all_that_they_may),
        cmocka_unit_test(jobs_of_both_kinds_run_in_the_order_of_their_arrival_and_before_the_pool_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

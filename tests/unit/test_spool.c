/* The spool: no appended record is lost, doubled or changed, at whatever moment a crash happens. Also its limits. */
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "executor/agent/spool.h"
#include "executor/agent/spool_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct spool_key key = { 7, 2, 1 };

struct place {
    char folder[48], spool[64];
};

static void place_open(struct place *p) {
    snprintf(p->folder, sizeof p->folder, "/tmp/ty-spool-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->spool, sizeof p->spool, "%s/spool", p->folder);
}

static void place_close(struct place *p) { assert_int_equal(dir_remove(p->folder, NULL), ST_OK); }

static struct spool *open_or_fail(const struct place *p, int64_t limit) {
    struct spool *s;
    struct err why = { "" };
    if (spool_open(p->spool, limit, &s, &why) != ST_OK)
        fail_msg("%s", why.msg);
    return s;
}

/* Record n is n itself, then bytes that follow from it, of a length that follows from it. */
static size_t record_make(int64_t n, uint8_t ret[1024]) {
    size_t length = 8 + (size_t)(n * 2654435761u % 900);
    memcpy(ret, &n, 8);
    for (size_t i = 8; i < length; i++)
        ret[i] = (uint8_t)(n * 31 + (int64_t)i);
    return length;
}

static int64_t append(struct spool_log *log, int64_t n) {
    uint8_t record[1024];
    int64_t sequence;
    if (spool_append(log, record, record_make(n, record), &sequence, NULL) != ST_OK)
        return 0;
    return sequence;
}

struct seen {
    int64_t next, count, stop_after;
};

static bool check_visit(void *ctx, int64_t sequence, const uint8_t *data, size_t n) {
    struct seen *seen = ctx;
    uint8_t expected[1024];
    assert_int_equal(sequence, seen->next);
    assert_int_equal(n, record_make(sequence, expected));
    assert_memory_equal(data, expected, n);
    seen->next++;
    return ++seen->count != seen->stop_after;
}

/* Every record from `first` to the last is read once, whole and in order; returns how many. */
static int64_t read_all(struct spool_log *log, int64_t first) {
    struct seen seen = { .next = first };
    assert_int_equal(spool_read(log, first, SIZE_MAX, check_visit, &seen, NULL), ST_OK);
    assert_int_equal(seen.next, spool_log_last(log) + 1);
    return seen.count;
}

static void records_come_back_in_order_after_a_reopen(void **state) {
    (void)state;
    struct place p;
    place_open(&p);
    struct spool *s = open_or_fail(&p, 64 << 20);
    struct spool_log *log;
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    assert_int_equal(spool_log_last(log), 0);
    for (int64_t n = 1; n <= 5000; n++)
        assert_int_equal(append(log, n), n);
    assert_int_equal(read_all(log, 1), 5000);
    assert_int_equal(read_all(log, 4321), 680);
    spool_close(s);

    s = open_or_fail(&p, 64 << 20);
    assert_int_equal(spool_count(s), 1);
    log = spool_log_find(s, &key);
    assert_non_null(log);
    assert_int_equal(spool_log_last(log), 5000);
    assert_null(spool_log_damage(log));
    assert_int_equal(read_all(log, 1), 5000);
    assert_int_equal(append(log, 5001), 5001);
    spool_close(s);
    place_close(&p);
}

static void a_batch_keeps_to_its_bytes_and_the_next_continues(void **state) {
    (void)state;
    struct place p;
    place_open(&p);
    struct spool *s = open_or_fail(&p, 64 << 20);
    struct spool_log *log;
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    for (int64_t n = 1; n <= 3000; n++)
        append(log, n);
    struct seen seen = { .next = 1 };
    int batches = 0;
    while (seen.next <= 3000) {
        int64_t before = seen.next;
        assert_int_equal(spool_read(log, seen.next, 10000, check_visit, &seen, NULL), ST_OK);
        assert_in_range(seen.next - before, 1, 10000 / 8);
        batches++;
    }
    assert_in_range(batches, 3000 * 458 / 10000, 3000); /* 458 bytes on average */
    seen = (struct seen){ .next = 2990, .stop_after = 3 };
    assert_int_equal(spool_read(log, 2990, SIZE_MAX, check_visit, &seen, NULL), ST_OK);
    assert_int_equal(seen.count, 3);
    spool_close(s);
    place_close(&p);
}

static void acknowledged_segments_go_and_the_numbering_stays(void **state) {
    (void)state;
    struct place p;
    place_open(&p);
    struct spool *s = open_or_fail(&p, 1 << 20);
    struct spool_log *log;
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    int64_t most = 0;
    for (int64_t n = 1; n <= 20000; n++) { /* nine times the limit, in all */
        assert_int_equal(append(log, n), n);
        if (n % 100 == 0)
            spool_ack(log, n - 50);
        if (spool_bytes(s) > most)
            most = spool_bytes(s);
    }
    assert_in_range(most, 1, 256 << 10);
    spool_ack(log, 20000);
    assert_int_equal(spool_log_acked(log), 20000);
    spool_ack(log, 5);     /* an old one */
    spool_ack(log, 30000); /* one that cannot be */
    assert_int_equal(spool_log_acked(log), 20000);
    spool_close(s);
    s = open_or_fail(&p, 1 << 20);
    log = spool_log_find(s, &key);
    assert_int_equal(spool_log_last(log), 20000);
    assert_int_equal(append(log, 20001), 20001);
    spool_log_remove(log);
    assert_int_equal(spool_bytes(s), 0);
    assert_null(spool_log_find(s, &key));
    spool_close(s);
    s = open_or_fail(&p, 1 << 20);
    assert_int_equal(spool_count(s), 0);
    spool_close(s);
    place_close(&p);
}

/* Bytes of all files in the log's folder. */
static int64_t bytes_on_disk(const struct place *p) {
    char folder[128], path[500];
    int64_t sum = 0;
    snprintf(folder, sizeof folder, "%s/7-2-1", p->spool);
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode))
            sum += info.st_size;
    }
    closedir(d);
    return sum;
}

/* The database that stored them may be set back to a backup. */
static void what_is_acknowledged_is_kept_while_there_is_room_and_can_be_read_again(void **state) {
    (void)state;
    struct place p;
    place_open(&p);
    struct spool *s = open_or_fail(&p, 1 << 20);
    struct spool_log *log;
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    for (int64_t n = 1; n <= 400; n++)
        assert_int_equal(append(log, n), n);
    const int64_t all = spool_bytes(s);
    assert_in_range(all, 64 << 10, 256 << 10);
    spool_ack(log, 400);
    assert_int_equal(spool_bytes(s), 0);
    spool_rewind(log, 100);
    assert_int_equal(spool_log_acked(log), 100);
    assert_in_range(spool_bytes(s), all / 2, all);
    assert_int_equal(read_all(log, 101), 300);
    spool_rewind(log, 200); /* waits already */
    assert_int_equal(spool_log_acked(log), 100);
    spool_ack(log, 400);

    /* Beyond a quarter of the limit the oldest go. */
    for (int64_t n = 401; n <= 10000; n++) {
        assert_int_equal(append(log, n), n);
        spool_ack(log, n);
        assert_int_equal(spool_bytes(s), 0);
    }
    assert_in_range(bytes_on_disk(&p), 128 << 10, (256 << 10) + (64 << 10));
    const int64_t first = spool_log_first(log);
    assert_in_range(first, 9000, 9900);
    spool_rewind(log, 0);
    assert_int_equal(spool_log_acked(log), first - 1);
    assert_int_equal(read_all(log, first), 10000 - first + 1);
    spool_ack(log, 10000);

    /* All of it goes when records that wait need the room. */
    int64_t n = 10001;
    while (append(log, n))
        n++;
    assert_in_range(spool_bytes(s), (1 << 20) - 1100, 1 << 20);
    assert_int_equal(bytes_on_disk(&p), spool_bytes(s));
    assert_int_equal(read_all(log, 10001), n - 10001);
    spool_close(s);
    place_close(&p);
}

static void a_full_spool_refuses_records_until_an_acknowledgement(void **state) {
    (void)state;
    struct place p;
    place_open(&p);
    struct spool *s = open_or_fail(&p, 64 << 10);
    struct spool_log *log;
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    int64_t n = 1;
    while (append(log, n))
        n++;
    assert_in_range(spool_bytes(s), (64 << 10) - 1100, 64 << 10);
    struct err why = { "" };
    int64_t sequence;
    uint8_t record[1024];
    assert_int_equal(spool_append(log, record, record_make(n, record), &sequence, &why), ST_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(why.msg, "the spool is full"));
    assert_int_equal(read_all(log, 1), n - 1);
    spool_ack(log, n - 1);
    assert_int_equal(append(log, n), n);
    assert_int_equal(read_all(log, n), 1);
    spool_close(s);
    place_close(&p);
}

/* The one segment file of a small log. */
static void segment_name(const struct place *p, char ret[160]) { snprintf(ret, 160, "%s/7-2-1/%020d", p->spool, 1); }

static void a_torn_tail_is_cut_and_overwritten(void **state) {
    (void)state;
    struct place p;
    place_open(&p);
    struct spool *s = open_or_fail(&p, 64 << 20);
    struct spool_log *log;
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    for (int64_t n = 1; n <= 10; n++)
        append(log, n);
    int64_t whole = spool_bytes(s);
    append(log, 11);
    int64_t longer = spool_bytes(s);
    spool_close(s);
    char path[160];
    segment_name(&p, path);
    for (int64_t size = longer - 1; size >= whole; size--) {
        assert_int_equal(truncate(path, size), 0);
        s = open_or_fail(&p, 64 << 20);
        log = spool_log_find(s, &key);
        assert_int_equal(spool_log_last(log), 10);
        assert_int_equal(spool_bytes(s), whole);
        assert_null(spool_log_damage(log));
        assert_int_equal(append(log, 11), 11);
        assert_int_equal(read_all(log, 1), 11);
        spool_close(s);
    }
    place_close(&p);
}

static void every_flipped_bit_is_noticed(void **state) {
    (void)state;
    uint8_t record[SPOOL_RECORD_HEADER + 40];
    memset(record, 'x', sizeof record);
    spool_record_header(record, 5, record + SPOOL_RECORD_HEADER, 40);
    const uint8_t *payload;
    size_t n;
    assert_int_equal(spool_record_parse(record, sizeof record, 5, &payload, &n), sizeof record);
    assert_int_equal(n, 40);
    assert_ptr_equal(payload, record + SPOOL_RECORD_HEADER);
    assert_int_equal(spool_record_parse(record, sizeof record, 6, &payload, &n), 0);
    assert_int_equal(spool_record_parse(record, sizeof record - 1, 5, &payload, &n), 0);
    for (size_t bit = 0; bit < 8 * sizeof record; bit++) {
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(spool_record_parse(record, sizeof record, 5, &payload, &n), 0);
        record[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    /* Castagnoli's polynomial and no other: the sum of the twelve zero bytes of an empty header. */
    uint8_t zero[SPOOL_RECORD_HEADER] = { 0 };
    spool_record_header(zero, 0, "", 0);
    assert_int_equal(zero[0] | zero[1] << 8 | zero[2] << 16 | zero[3] << 24, 0x2b60b55d);
}

static void damage_in_the_middle_ends_the_log_there_and_is_reported(void **state) {
    (void)state;
    struct place p;
    place_open(&p);
    struct spool *s = open_or_fail(&p, 256 << 10); /* segments of 16 KiB */
    struct spool_log *log;
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    for (int64_t n = 1; n <= 200; n++)
        append(log, n);
    spool_close(s);
    char path[160];
    segment_name(&p, path);
    int fd = open(path, O_RDWR);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, 5000), 1);
    byte = (char)(byte ^ 4);
    assert_int_equal(pwrite(fd, &byte, 1, 5000), 1);
    close(fd);
    s = open_or_fail(&p, 256 << 10);
    log = spool_log_find(s, &key);
    int64_t last = spool_log_last(log);
    assert_in_range(last, 4, 16);
    assert_non_null(spool_log_damage(log));
    assert_non_null(strstr(spool_log_damage(log), "job 7 attempt 2 rank 1"));
    assert_int_equal(read_all(log, 1), last);
    assert_int_equal(append(log, last + 1), last + 1);
    assert_int_equal(read_all(log, 1), last + 1);
    spool_close(s);
    place_close(&p);
}

/* A child appends and acknowledges at random, and says on a pipe what it has appended (before and after each), until it
 * is killed. What it said it had appended must be there, once, and nothing that it did not begin. */
struct said {
    int64_t begun, done, acked;
};

static void appender_run(const struct place *p, int pipe_end, unsigned seed) {
    struct spool *s;
    struct spool_log *log;
    if (spool_open(p->spool, 256 << 10, &s, NULL) != ST_OK || spool_log_open(s, &key, &log, NULL) != ST_OK)
        _exit(1);
    struct said said = { .done = spool_log_last(log), .acked = spool_log_acked(log) };
    for (;;) {
        said.begun = said.done + 1;
        if (write(pipe_end, &said, sizeof said) != sizeof said)
            _exit(1);
        if (append(log, said.begun) == said.begun)
            said.done = said.begun;
        if (rand_r(&seed) % 40 == 0 || spool_bytes(s) > 200 << 10) {
            int64_t span = said.done - said.acked;
            said.acked += span ? rand_r(&seed) % (span + 1) : 0;
            /* Told first: what is acknowledged is stored elsewhere, so losing it here is no loss. */
            if (write(pipe_end, &said, sizeof said) != sizeof said)
                _exit(1);
            spool_ack(log, said.acked);
        }
    }
}

static struct said kill_one(const struct place *p, unsigned *seed) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    unsigned child_seed = (unsigned)rand_r(seed);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        appender_run(p, ends[1], child_seed);
    }
    close(ends[1]);
    struct said said = { 0 }, next;
    /* Killed after a random number of its messages, and whatever it does while the signal is on its way. */
    int messages = 1 + rand_r(seed) % 600;
    for (int i = 0; i < messages; i++)
        assert_int_equal(read(ends[0], &said, sizeof said), sizeof said);
    kill(pid, SIGKILL);
    while (read(ends[0], &next, sizeof next) == sizeof next)
        said = next;
    waitpid(pid, NULL, 0);
    close(ends[0]);
    return said;
}

static void kill_9_at_any_moment_loses_and_doubles_nothing(void **state) {
    (void)state;
    const char *given = getenv("TRAINYARD_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)clock_mono_ns();
    print_message("TRAINYARD_SEED=%u\n", seed);
    struct place p;
    place_open(&p);
    for (int round = 0; round < 100; round++) {
        struct said said = kill_one(&p, &seed);
        struct spool *s = open_or_fail(&p, 256 << 10);
        struct spool_log *log = spool_log_find(s, &key);
        assert_non_null(log);
        assert_null(spool_log_damage(log));
        assert_true(spool_log_last(log) >= said.done);
        assert_true(spool_log_last(log) <= said.begun);
        assert_true(spool_log_first(log) <= said.acked + 1);
        assert_int_equal(read_all(log, spool_log_first(log)), spool_log_last(log) - spool_log_first(log) + 1);
        spool_close(s);
    }
    place_close(&p);
}

/* A mount namespace of its own; an ordinary user needs a user namespace around it, in which it is root. */
static bool namespace_enter(void) {
    uid_t uid = getuid();
    gid_t gid = getgid();
    if (unshare(CLONE_NEWNS) == 0)
        return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return false;
    char uids[32], gids[32];
    snprintf(uids, sizeof uids, "0 %u 1", uid);
    snprintf(gids, sizeof gids, "0 %u 1", gid);
    struct err why;
    const struct {
        const char *path, *text;
    } files[] = { { "/proc/self/setgroups", "deny" }, { "/proc/self/uid_map", uids }, { "/proc/self/gid_map", gids } };
    for (int i = 0; i < 3; i++) {
        int fd = open(files[i].path, O_WRONLY);
        if (fd < 0 || fd_write_all(fd, files[i].text, strlen(files[i].text), &why) != ST_OK)
            return false;
        close(fd);
    }
    return true;
}

/* On a file system of 128 KiB. 77 where that cannot be had. */
static int full_disk_run(const struct place *p) {
    if (!namespace_enter())
        return 77;
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (mkdir(p->spool, 0700) < 0 || mount("none", p->spool, "tmpfs", 0, "size=128k") < 0)
        return 77;
    struct spool *s = open_or_fail(p, 64 << 20);
    struct spool_log *log;
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    int64_t n = 1;
    while (append(log, n))
        n++;
    struct err why = { "" };
    int64_t sequence;
    uint8_t record[1024];
    assert_int_equal(spool_append(log, record, record_make(n, record), &sequence, &why), ST_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(why.msg, "No space left on device"));
    assert_in_range(n, 100, 400);
    assert_int_equal(read_all(log, 1), n - 1);
    spool_close(s);
    s = open_or_fail(p, 64 << 20);
    log = spool_log_find(s, &key);
    assert_int_equal(read_all(log, 1), n - 1);
    spool_ack(log, n - 1); /* nothing is free, and yet room can be made */
    for (int64_t more = n; more < n + 100; more++)
        assert_int_equal(append(log, more), more);
    assert_int_equal(read_all(log, n), 100);
    spool_close(s);
    return 0;
}

static void a_full_disk_reads_as_a_full_spool(void **state) {
    (void)state;
    struct place p;
    place_open(&p);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(full_disk_run(&p));
    int status;
    waitpid(pid, &status, 0);
    place_close(&p);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

/* A segment's name is its first record's number in twenty digits. */
static void files_that_are_no_segments_are_passed_over(void **state) {
    (void)state;
    static const char *const names[] = { "00000000000000000000",  "-0000000000000000001", "1",
                                         "00000000000000000001x", "99999999999999999999", "notes" };
    struct place p;
    place_open(&p);
    struct spool *s = open_or_fail(&p, 64 << 20);
    struct spool_log *log;
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    for (int64_t n = 1; n <= 10; n++)
        assert_int_equal(append(log, n), n);
    const int64_t bytes = spool_bytes(s);
    spool_close(s);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/7-2-1/%s", p.spool, names[i]);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs("no record", f);
        fclose(f);
    }
    s = open_or_fail(&p, 64 << 20);
    log = spool_log_find(s, &key);
    assert_null(spool_log_damage(log));
    assert_int_equal(read_all(log, 1), 10);
    assert_int_equal(spool_bytes(s), bytes);
    spool_close(s);
    place_close(&p);
}

static void a_record_has_at_least_a_byte_and_no_more_than_the_most(void **state) {
    (void)state;
    struct place p;
    int64_t sequence;
    static uint8_t most[SPOOL_RECORD_HEADER + LIMIT_RECORD_BYTES + 1];
    place_open(&p);
    struct spool *s = open_or_fail(&p, 64 << 20);
    struct spool_log *log;
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    assert_int_equal(spool_append(log, most, 0, &sequence, NULL), ST_INVALID_ARGUMENT);
    assert_int_equal(spool_append(log, most, LIMIT_RECORD_BYTES + 1, &sequence, NULL), ST_INVALID_ARGUMENT);
    assert_int_equal(spool_append(log, most, LIMIT_RECORD_BYTES, &sequence, NULL), ST_OK);
    spool_close(s);
    place_close(&p);
    /* Nor is one read, whatever its checksum says. */
    static const size_t lengths[] = { 0, LIMIT_RECORD_BYTES + 1, LIMIT_RECORD_BYTES };
    for (int i = 0; i < 3; i++) {
        const uint8_t *payload;
        size_t n;
        spool_record_header(most, 5, most + SPOOL_RECORD_HEADER, lengths[i]);
        assert_int_equal(spool_record_parse(most, SPOOL_RECORD_HEADER + lengths[i], 5, &payload, &n),
                         i < 2 ? 0 : SPOOL_RECORD_HEADER + lengths[i]);
    }
}

static void nothing_is_read_of_what_is_acknowledged_or_not_there(void **state) {
    (void)state;
    struct place p;
    place_open(&p);
    struct spool *s = open_or_fail(&p, 64 << 20);
    struct spool_log *log;
    struct seen seen = { .next = 1 };
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    assert_int_equal(spool_read(log, 1, SIZE_MAX, check_visit, &seen, NULL), ST_OK);
    for (int64_t n = 1; n <= 3; n++)
        assert_int_equal(append(log, n), n);
    assert_int_equal(spool_read(log, 4, SIZE_MAX, check_visit, &seen, NULL), ST_OK);
    assert_int_equal(spool_read(log, 0, SIZE_MAX, check_visit, &seen, NULL), ST_OK);
    assert_int_equal(seen.count, 0);
    spool_close(s);
    place_close(&p);
}

/* Another log that has nothing yet is asked for room too. */
static void a_full_spool_harms_no_empty_log(void **state) {
    (void)state;
    static const struct spool_key other = { 7, 2, 0 };
    struct place p;
    place_open(&p);
    struct spool *s = open_or_fail(&p, 1 << 16);
    struct spool_log *empty, *log;
    assert_int_equal(spool_log_open(s, &other, &empty, NULL), ST_OK);
    assert_int_equal(spool_log_open(s, &key, &log, NULL), ST_OK);
    int64_t last = 0;
    while (append(log, last + 1))
        last++;
    assert_int_equal(spool_log_last(empty), 0);
    assert_int_equal(read_all(log, 1), last);
    spool_close(s);
    place_close(&p);
}

static void a_spool_that_is_too_small_is_refused(void **state) {
    (void)state;
    struct place p;
    place_open(&p);
    struct spool *s = NULL;
    struct err why = { "" };
    assert_int_equal(spool_open(p.spool, 1000, &s, &why), ST_INVALID_ARGUMENT);
    assert_string_equal(why.msg, "a spool of 1000 bytes is too small; at least 65536 are needed");
    place_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_back_in_order_after_a_reopen),
        cmocka_unit_test(a_batch_keeps_to_its_bytes_and_the_next_continues),
        cmocka_unit_test(acknowledged_segments_go_and_the_numbering_stays),
        cmocka_unit_test(what_is_acknowledged_is_kept_while_there_is_room_and_can_be_read_again),
        cmocka_unit_test(a_full_spool_refuses_records_until_an_acknowledgement),
        cmocka_unit_test(a_torn_tail_is_cut_and_overwritten),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(damage_in_the_middle_ends_the_log_there_and_is_reported),
        cmocka_unit_test(kill_9_at_any_moment_loses_and_doubles_nothing),
        cmocka_unit_test(a_full_disk_reads_as_a_full_spool),
        cmocka_unit_test(files_that_are_no_segments_are_passed_over),
        cmocka_unit_test(a_record_has_at_least_a_byte_and_no_more_than_the_most),
        cmocka_unit_test(nothing_is_read_of_what_is_acknowledged_or_not_there),
        cmocka_unit_test(a_full_spool_harms_no_empty_log),
        cmocka_unit_test(a_spool_that_is_too_small_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

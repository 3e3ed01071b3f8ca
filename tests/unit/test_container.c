/* Containers: what a process in one sees of its image and of its host. Each test enters one in a process of its own, as
 * this user and, if that is root, as one without privileges. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "executor/container/container.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NOBODY = 65534 };

/* Below TMPDIR, so also below the container's own /tmp if that is /tmp. */
static char folder[PATH_MAX - 64];

static char *in_folder(const char *name) { return alloc_format("%s/%s", folder, name); }

static void make_file(const char *name) {
    CLEANUP(freep) char *path = in_folder(name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    assert_true(fd >= 0 && write(fd, name, strlen(name)) == (ssize_t)strlen(name) && fchmod(fd, 0666) == 0);
    close(fd);
}

static void make_folder(const char *name) {
    CLEANUP(freep) char *path = in_folder(name);
    assert_true(mkdir(path, 0777) == 0 && chmod(path, 0777) == 0);
}

/* image: the root, with a file where a mount needs a folder. data: read-only; in it `open`, which is not. work: of the
 * container. */
static int setup(void **state) {
    const char *given = getenv("TMPDIR");
    char name[PATH_MAX - 64];
    const char *place = *state ? *state : given ? given : "/tmp";
    snprintf(name, sizeof name, "%s/test-container,a:b-XXXXXX", place);
    if (!mkdtemp(name) || chmod(name, 0777) < 0 || !realpath(name, folder))
        return -1;
    make_folder("image");
    make_file("image/own");
    make_file("image/proc");
    make_folder("data");
    make_file("data/text");
    make_folder("data/open");
    make_folder("work");
    make_folder("temporary");
    CLEANUP(freep) char *link = in_folder("link");
    CLEANUP(freep) char *data = in_folder("data");
    return symlink(data, link);
}

static int teardown(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

static bool reads(const char *path) {
    const int fd = open(path, O_RDONLY);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool writes(const char *path) {
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* In the container. 0, or the line of the first claim that does not hold. */
#define CLAIM(that)                                                                                                    \
    do                                                                                                                 \
        if (!(that))                                                                                                   \
            return __LINE__;                                                                                           \
    while (0)

static int claims(uid_t user) {
    CLEANUP(freep) char *text = in_folder("data/text");
    CLEANUP(freep) char *by_link = in_folder("link/text");
    CLEANUP(freep) char *open_file = in_folder("data/open/made");
    CLEANUP(freep) char *image = in_folder("image/own");
    struct stat st;
    CLAIM(reads("/own") && !writes("/own") && !writes("/new"));
    CLAIM(!writes(image)); /* the host's path of the image is not there, but below /dev/shm, which is the host's */
    CLAIM(reads(image) == (strncmp(folder, "/dev/shm/", 9) == 0));
    CLAIM(reads(text) && !writes(text)); /* mounted to be read */
    CLAIM(reads(by_link));
    CLAIM(writes(open_file)); /* within it, mounted to be written */
    CLAIM(writes("/tmp/made") && writes("/dev/null") && reads("/dev/urandom") && reads("/proc/self/stat"));
    CLAIM(stat("/tmp/made", &st) == 0 && st.st_uid == user && geteuid() == user && getuid() == user);
    CLAIM(access("/usr", F_OK) < 0);
    return 0;
}

static int in_container(struct container_options *o, bool as_nobody) {
    struct container *c = NULL;
    struct err why = { "" };
    const char *step;
    if (as_nobody && (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
        return __LINE__;
    const uid_t user = geteuid();
    o->group = getegid();
    o->helper = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    if (prctl(PR_SET_DUMPABLE, 0) < 0) /* as a process with secrets */
        return __LINE__;
    if (container_open(o, &c, &why) != ST_OK) {
        fprintf(stderr, "%s\n", why.msg);
        return __LINE__;
    }
    if (container_enter(c, &step) != 0) {
        fprintf(stderr, "%s: %s\n", step, strerror(errno));
        return __LINE__;
    }
    return prctl(PR_GET_DUMPABLE) == 0 ? claims(user) : __LINE__;
}

/* Before anything is allocated: skip() does not return. */
static void skip_without_containers(bool as_nobody) {
    struct err why;
    if (container_probe(as_nobody, "/proc/self/exe", &why) == ST_OK)
        return;
    fprintf(stderr, "skipped: %s\n", why.msg);
    skip();
}

static void enter_as(bool as_nobody) {
    skip_without_containers(as_nobody);
    CLEANUP(freep) char *image = in_folder("image");
    CLEANUP(freep) char *link = in_folder("link");
    CLEANUP(freep) char *open_folder = in_folder("data/open");
    CLEANUP(freep) char *work = in_folder("work");
    CLEANUP(freep) char *temporary = in_folder("temporary");
    CLEANUP(freep) struct container_options *o = alloc_zeroed(1, sizeof *o);
    o->root = open(image, O_PATH | O_DIRECTORY);
    o->work = work;
    o->temporary = temporary;
    assert_true(container_mount(o, link, CONTAINER_READ));
    assert_true(container_mount(o, open_folder, CONTAINER_WRITE));
    assert_true(container_mount(o, "/", CONTAINER_WRITE)); /* is left out */
    assert_true(container_mount(o, "/no/such/folder", CONTAINER_READ));
    int report[2], line = 0;
    assert_int_equal(pipe(report), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        line = in_container(o, as_nobody);
        _exit(write(report[1], &line, sizeof line) != sizeof line);
    }
    assert_int_equal(read(report[0], &line, sizeof line), sizeof line);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(report[0]);
    close(report[1]);
    close(o->root);
    assert_int_equal(line, 0);
}

static void a_process_sees_its_image_and_what_is_mounted(void **state) {
    (void)state;
    enter_as(false);
}

/* state: the folder for the files. */
static char shared_memory[] = "/dev/shm";

static void an_image_and_data_in_shared_memory_cannot_be_written_either(void **state) {
    (void)state;
    enter_as(geteuid() == 0);
}

static void a_user_without_privileges_sees_the_same_and_keeps_its_number(void **state) {
    (void)state;
    if (geteuid() != 0)
        skip();
    enter_as(true);
}

static void everything_but_mounts_and_the_ways_to_them_is_readable(void **state) {
    (void)state;
    CLEANUP(freep) char *image = in_folder("image");
    CLEANUP(freep) char *data = in_folder("data");
    CLEANUP(freep) char *work = in_folder("work");
    CLEANUP(freep) char *temporary = in_folder("temporary");
    CLEANUP(freep) struct container_options *o = alloc_zeroed(1, sizeof *o);
    CLEANUP(container_closep) struct container *c = NULL;
    CLEANUP(closep) int root = open(image, O_PATH | O_DIRECTORY);
    CLEANUP(closep) int self = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    const char *path;
    bool own = false, processes = false;
    o->root = root;
    o->helper = self;
    o->group = getegid();
    o->work = work;
    o->temporary = temporary;
    assert_true(container_mount(o, data, CONTAINER_READ));
    assert_int_equal(container_open(o, &c, NULL), ST_OK);
    for (size_t i = 0; (path = container_readable(c, i)); i++) {
        own |= strcmp(path, "/own") == 0;
        processes |= strcmp(path, "/proc") == 0;
        assert_true(strncmp(data, path, strlen(path)) != 0 || data[strlen(path)] != '/');
        assert_string_not_equal(path, data);
        assert_true(strncmp(path, "/dev", 4) != 0 && strcmp(path, "/tmp") != 0);
    }
    assert_true(own && processes);
}

static void a_step_that_failed_has_a_sentence(void **state) {
    (void)state;
    struct err e;
    assert_int_equal(container_failure("/data", ENOENT, &e), ST_FAILED_PRECONDITION);
    assert_string_equal(e.msg, "'/data' cannot be mounted in the container: No such file or directory");
}

int main(int argc, char **argv) {
    const int helped = container_helper_run(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_process_sees_its_image_and_what_is_mounted, setup, teardown),
        cmocka_unit_test_prestate_setup_teardown(an_image_and_data_in_shared_memory_cannot_be_written_either, setup,
                                                 teardown, shared_memory),
        cmocka_unit_test_setup_teardown(a_user_without_privileges_sees_the_same_and_keeps_its_number, setup, teardown),
        cmocka_unit_test_setup_teardown(everything_but_mounts_and_the_ways_to_them_is_readable, setup, teardown),
        cmocka_unit_test(a_step_that_failed_has_a_sentence),
    };
    return helped >= 0 ? helped : cmocka_run_group_tests(tests, NULL, NULL);
}

/* The messages to a supervisor, over the socket that it listens on, and the signs of life of the watchdog. */
#include "base/supervisor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

/* name: after the '@' of the abstract namespace. */
static int listen_as(const char *name) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path + 1, name, strlen(name));
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, n), 0);
    return fd;
}

static void expect(int fd, const char *message) {
    char got[64] = "";
    ssize_t n = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
    if (!message) {
        assert_int_equal(n, -1);
        return;
    }
    assert_string_equal(got, message);
}

static int setup(void **state) {
    static char name[64];
    static int fd;
    char text[66];
    snprintf(name, sizeof name, "ty-supervisor-%d", (int)getpid());
    snprintf(text, sizeof text, "@%s", name);
    fd = listen_as(name);
    *state = &fd;
    return setenv("NOTIFY_SOCKET", text, 1);
}

static int teardown(void **state) {
    unsetenv("NOTIFY_SOCKET");
    return close(*(int *)*state);
}

static void signs_of_life_are_sent_in_time_and_only_while_the_work_goes_on(void **state) {
    const int fd = *(int *)*state;
    struct supervisor s;
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    setenv("WATCHDOG_USEC", "3000000", 1);
    supervisor_init(&s);
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_null(getenv("WATCHDOG_USEC"));
    supervisor_notify(&s, "READY=1");
    expect(fd, "READY=1");
    supervisor_watch(&s, 0, 5000);
    expect(fd, "WATCHDOG=1");
    supervisor_watch(&s, 7, 5999); /* too early */
    expect(fd, NULL);
    supervisor_watch(&s, 7, 6000);
    expect(fd, "WATCHDOG=1");
    for (int64_t now = 6200; now < 20000; now += 200) /* the work stands still */
        supervisor_watch(&s, 7, now);
    expect(fd, NULL);
    supervisor_watch(&s, 8, 20000);
    expect(fd, "WATCHDOG=1");
    supervisor_done(&s);
}

static void without_a_watchdog_or_with_that_of_another_process_nothing_is_sent(void **state) {
    const int fd = *(int *)*state;
    struct supervisor s;
    supervisor_init(&s);
    supervisor_watch(&s, 1, 1000);
    expect(fd, NULL);
    supervisor_done(&s);
    char name[66];
    snprintf(name, sizeof name, "@ty-supervisor-%d", (int)getpid());
    setenv("NOTIFY_SOCKET", name, 1);
    setenv("WATCHDOG_PID", "1", 1);
    setenv("WATCHDOG_USEC", "3000000", 1);
    supervisor_init(&s);
    supervisor_watch(&s, 1, 1000);
    expect(fd, NULL);
    supervisor_done(&s);
}

static void without_a_supervisor_nothing_happens(void **state) {
    (void)state;
    static const char *const sockets[] = { "", "relative", "@", "/nowhere/at/all" };
    struct supervisor s;
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++) {
        setenv("NOTIFY_SOCKET", sockets[i], 1);
        supervisor_init(&s);
        assert_int_equal(s.fd, -1);
        supervisor_notify(&s, "READY=1");
        supervisor_watch(&s, 1, 1000);
        supervisor_done(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(signs_of_life_are_sent_in_time_and_only_while_the_work_goes_on, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(without_a_watchdog_or_with_that_of_another_process_nothing_is_sent, setup,
                                        teardown),
        cmocka_unit_test(without_a_supervisor_nothing_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

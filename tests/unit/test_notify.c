/* The file of --notify: what it may contain, and what it is refused for; the signature of a webhook; and the
 * pauses between tries. */
#include "base/alloc.h"
#include "service/notify/config.h"
#include "service/notify/notifier.h"
#include "service/notify/signature.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/ty-notify-XXXXXX", file[64], key[64];

static void put(const char *path, const char *text, mode_t mode) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static int setup(void **state) {
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(key, sizeof key, "%s/key", folder);
    put(key, "sixteen bytes of key\n", 0600);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    unlink(file);
    unlink(key);
    return rmdir(folder);
}

/* In `text`, KEY is the path of the key. */
static status_t read_text(const char *text, struct notify_config *ret, struct err *e) {
    char whole[4096];
    const char *at = strstr(text, "KEY");
    if (at)
        snprintf(whole, sizeof whole, "targets: [%.*s%s%s]\n", (int)(at - text), text, key, at + 3);
    else
        snprintf(whole, sizeof whole, "targets: [%s]\n", text);
    put(file, whole, 0600);
    return notify_config_read(file, ret, e);
}

static void a_target_has_a_receiver_events_and_a_key(void **state) {
    (void)state;
    struct err e = { "" };
    struct notify_config c;
    if (read_text("{name: hook, webhook: {url: 'https://x.example/', secret_file: KEY}}, "
                  "{name: mail, events: [RESTARTING, executor_lost, FAILED], command: {argv: [/bin/true, a], "
                  "timeout_seconds: 3}}",
                  &c, &e) != ST_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.targets[0].row.n_states, 3); /* SUCCEEDED, FAILED, CANCELLED */
    assert_int_equal(c.targets[0].n_key, 20);
    assert_string_equal(c.targets[0].key, "sixteen bytes of key");
    assert_int_equal(c.targets[0].timeout_ms, 10000);
    assert_int_equal(c.targets[1].row.n_states, 2);
    assert_int_equal(c.targets[1].row.states[0], STORE_JOB_RESTARTING);
    assert_int_equal(c.targets[1].row.n_kinds, 1);
    assert_string_equal(c.targets[1].row.kinds[0], "executor_lost");
    assert_int_equal(c.targets[1].timeout_ms, 3000);
    notify_config_done(&c);
    assert_int_equal(notify_config_read(NULL, &c, &e), ST_OK);
    assert_int_equal(c.n, 0);
}

static void a_wrong_target_is_refused_with_its_field(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        { "{name: A, command: {argv: [/bin/true]}}", "targets[0].name: 'A' is not 1 to 63" },
        { "{name: '', command: {argv: [/bin/true]}}", "targets[0].name: '' is not 1 to 63" },
        { "{name: .a, command: {argv: [/bin/true]}}", "targets[0].name: '.a' is not 1 to 63" },
        { "{name: a}", "targets[0].webhook or command is missing" },
        { "{name: a, command: {}}", "the first word must be the absolute path of a program" },
        { "{name: a, command: {argv: ['true']}}", "the first word must be the absolute path of a program" },
        { "{name: a, command: {argv: [/nonexistent]}}", "'/nonexistent' cannot be executed" },
        { "{name: a, command: {argv: [/bin/true], environment: [X]}}", "command.environment: 'X' is not NAME=value" },
        { "{name: a, events: [Failed], command: {argv: [/bin/true]}}", "events: 'Failed' is neither a state" },
        { "{name: a, events: [''], command: {argv: [/bin/true]}}", "events: '' is neither a state" },
        { "{name: a, command: {argv: [/bin/true], timeout_seconds: 301}}", "301 is not from 1 to 300" },
        { "{name: a, command: {argv: [/bin/true], timeout_seconds: -1}}", "-1 is not from 1 to 300" },
        { "{name: a, webhook: {url: 'ftp://x/', secret_file: KEY}}", "webhook.url: it is not a URL" },
        { "{name: a, webhook: {url: 'https://x/ y', secret_file: KEY}}", "is not a URL" },
        { "{name: a, webhook: {url: 'https://x/'}}", "webhook.secret_file: it is missing" },
        { "{name: a, webhook: {url: 'https://x/', secret_file: /nonexistent}}", "/nonexistent" },
        { "{name: a, webhook: {url: 'https://x/', secret_file: KEY, ca_file: /nonexistent}}", "webhook.ca_file" },
        { "{name: a, webhook: {url: 'https://x/', secret_file: KEY, ca_file: /dev/null}}",
          "webhook.ca_file: '/dev/null' has no certificate in PEM form" },
        { "{name: a, webhok: {}}", "unknown field; did you mean webhook?" },
        { "{name: a, command: {argv: [/bin/true]}}, {name: a, command: {argv: [/bin/true]}}",
          "targets[1].name: another target is named 'a'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = { "" };
        struct notify_config c;
        assert_int_not_equal(read_text(cases[i].text, &c, &e), ST_OK);
        if (!strstr(e.msg, cases[i].sentence) || strncmp(e.msg, "'/tmp/", 6) != 0)
            fail_msg("%s: '%s' does not have '%s'", cases[i].text, e.msg, cases[i].sentence);
    }
}

static void the_path_and_the_password_of_a_url_are_not_shown(void **state) {
    (void)state;
    static const struct {
        const char *url, *origin;
    } cases[] = {
        { "https://user:hidden@x.example/hidden?hidden#hidden", "https://x.example" },
        { "http://hidden@[::1]:8080/hidden", "http://[::1]:8080" },
        { "HTTPS://hidden:hidden@x.example/hidden", NULL },
        { "https://hidden:hidden@x.example/hid den", NULL },
        { "https://hidden:hidden@/hidden", NULL },
        { "https://hidden:hidden@x.example:port/hidden", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        struct err e = { "" };
        struct notify_config c;
        snprintf(text, sizeof text, "{name: a, webhook: {url: '%s', secret_file: KEY}}", cases[i].url);
        const status_t st = read_text(text, &c, &e);
        assert_int_equal(st, cases[i].origin ? ST_OK : ST_INVALID_ARGUMENT);
        assert_null(strstr(e.msg, "hidden"));
        if (cases[i].origin)
            assert_string_equal(c.targets[0].origin, cases[i].origin);
        notify_config_done(&c);
    }
}

static void the_pauses_of_a_notification_double_and_take_about_an_hour(void **state) {
    (void)state;
    int64_t sum_ms = 0;
    assert_int_equal(notifier_pause_ms(1), 1000);
    assert_int_equal(notifier_pause_ms(2), 2000);
    assert_int_equal(notifier_pause_ms(9), 256000);
    assert_int_equal(notifier_pause_ms(10), 300000);
    for (int tries = 1; tries < NOTIFY_MAX_TRIES; tries++)
        sum_ms += notifier_pause_ms(tries);
    assert_in_range(sum_ms, 50 * 60000, 70 * 60000);
}

static void a_key_that_others_can_read_or_that_is_short_is_refused(void **state) {
    (void)state;
    struct err e = { "" };
    struct notify_config c;
    static const char text[] = "{name: a, webhook: {url: 'https://x/', secret_file: KEY}}";
    put(key, "sixteen bytes of key\n", 0640);
    assert_int_equal(read_text(text, &c, &e), ST_PERMISSION_DENIED);
    assert_non_null(strstr(e.msg, "chmod 600"));
    put(key, "fifteen bytes..\n", 0600);
    assert_int_equal(read_text(text, &c, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "has no line of 16 to 1024 bytes"));
    put(key, "", 0600);
    assert_int_equal(read_text(text, &c, &e), ST_INVALID_ARGUMENT);
    put(key, "sixteen bytes of key\n", 0600);
}

static void too_many_targets_are_refused(void **state) {
    (void)state;
    struct err e = { "" };
    struct notify_config c;
    char text[2048] = "";
    for (int i = 0; i <= STORE_MAX_NOTIFICATION_TARGETS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s{name: t%d, command: {argv: [/bin/true]}}",
                 i ? ", " : "", i);
    assert_int_equal(read_text(text, &c, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "at most 8 are allowed"));
}

/* printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 'sixteen bytes of key' */
static void the_signature_is_the_hmac_of_the_time_and_the_body(void **state) {
    (void)state;
    char is[SIGNATURE_BYTES], other[SIGNATURE_BYTES];
    signature_of("sixteen bytes of key", 20, 1700000000, "{\"a\":1}", 7, is);
    assert_string_equal(is, "e422cc463df6eb4af61acf87ea5894789bc7d6c7c289259410623ff40cb1b67b");
    signature_of("sixteen bytes of key", 20, 1700000001, "{\"a\":1}", 7, other);
    assert_string_not_equal(is, other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_has_a_receiver_events_and_a_key),
        cmocka_unit_test(a_wrong_target_is_refused_with_its_field),
        cmocka_unit_test(the_path_and_the_password_of_a_url_are_not_shown),
        cmocka_unit_test(the_pauses_of_a_notification_double_and_take_about_an_hour),
        cmocka_unit_test(a_key_that_others_can_read_or_that_is_short_is_refused),
        cmocka_unit_test(too_many_targets_are_refused),
        cmocka_unit_test(the_signature_is_the_hmac_of_the_time_and_the_body),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

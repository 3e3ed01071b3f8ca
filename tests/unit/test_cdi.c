/* Specs of the Container Device Interface: which files they name, and which texts are refused. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "executor/container/cdi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char found[4096];
static int n_found;

static void on_mount(void *ctx, const char *path) {
    (void)ctx;
    n_found++;
    if (strlen(found) + strlen(path) + 2 < sizeof found)
        strcat(strcat(found, path), " ");
}

static status_t read_text(const char *text, bool *ret_gpus, struct err *e) {
    *found = '\0';
    n_found = 0;
    return cdi_read(text, strlen(text), on_mount, NULL, ret_gpus, e);
}

static void the_mounts_of_all_devices_are_named(void **state) {
    (void)state;
    bool gpus = false;
    assert_int_equal(
        read_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  env: [A=b]\n  mounts:\n"
                  "  - {hostPath: /a, containerPath: /z, options: [ro]}\n  - hostPath: \"/b c\"\ndevices:\n"
                  "- name: all\n  containerEdits: {mounts: [{hostPath: /d}], deviceNodes: [{path: /e}]}\n",
                  &gpus, NULL),
        ST_OK);
    assert_true(gpus);
    assert_string_equal(found, "/a /b c /d ");
    assert_int_equal(read_text("{\"cdiVersion\": \"1\", \"kind\": \"nvidia.com/gpu\", \"containerEdits\": {\"mounts\": "
                               "[{\"hostPath\": \"/a\"}]}}",
                               &gpus, NULL),
                     ST_OK);
    assert_string_equal(found, "/a ");
}

static void the_spec_of_another_device_names_nothing(void **state) {
    (void)state;
    bool gpus = true;
    assert_int_equal(
        read_text("cdiVersion: 1\nkind: amd.com/gpu\ncontainerEdits: {mounts: [{hostPath: /a}]}", &gpus, NULL), ST_OK);
    assert_false(gpus);
    assert_string_equal(found, "");
}

static void what_is_no_spec_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "kind: nvidia.com/gpu",
        "- a\n- b",
        "cdiVersion: 1\nkind: [",
        "cdiVersion: 1\nkind: nvidia.com/gpu\ncontainerEdits: {mounts: [{hostPath: a}]}",
        "cdiVersion: 1\nkind: nvidia.com/gpu\ncontainerEdits: {mounts: [text]}"
    };
    struct err why;
    bool gpus;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(read_text(texts[i], &gpus, &why), ST_INVALID_ARGUMENT);
        assert_string_not_equal(why.msg, "");
    }
}

/* 64 devices with one list of 64 mounts, each written once. */
static void a_short_text_that_names_many_mounts_is_refused(void **state) {
    (void)state;
    CLEANUP(freep) char *text = alloc_zeroed(16384, 1);
    struct err why;
    bool gpus;
    strcpy(text, "cdiVersion: 1\nkind: nvidia.com/gpu\ncontainerEdits: &a {mounts: [");
    for (int i = 0; i < 64; i++)
        strcat(text, "{hostPath: /x}, ");
    strcat(text, "]}\ndevices: [");
    for (int i = 0; i < 64; i++)
        strcat(text, "{containerEdits: *a}, ");
    strcat(text, "]\n");
    assert_int_equal(read_text(text, &gpus, &why), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(why.msg, "the CDI spec names more than 1024 mounts");
    assert_true(n_found <= CDI_MOUNTS_MAX);
}

static void a_long_text_is_refused(void **state) {
    (void)state;
    CLEANUP(freep) char *text = alloc_zeroed(CDI_BYTES_MAX + 2, 1);
    bool gpus;
    memset(text, '\n', CDI_BYTES_MAX + 1);
    assert_int_equal(read_text(text, &gpus, NULL), ST_RESOURCE_EXHAUSTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mounts_of_all_devices_are_named),
        cmocka_unit_test(the_spec_of_another_device_names_nothing),
        cmocka_unit_test(what_is_no_spec_is_refused),
        cmocka_unit_test(a_short_text_that_names_many_mounts_is_refused),
        cmocka_unit_test(a_long_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

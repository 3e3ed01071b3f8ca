/* Opening devices on the host of the test, with or without the plugin and a driver. */
#include "kernels/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void a_device_that_no_build_has_is_refused(void **state) {
    (void)state;
    struct kernels *k = NULL;
    struct err e = { "" };
    assert_int_equal(kernels_open(&(struct kernels_config){ .device = "abacus", .threads = 1 }, &k, &e),
                     ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "device 'abacus' is neither 'cpu' nor 'cuda'");
}

/* The library, one that it needs, the driver or the device may be missing. */
static void a_host_without_cuda_gets_one_sentence(void **state) {
    (void)state;
    for (int again = 0; again < 2; again++) {
        CLEANUP(kernels_closep) struct kernels *k = NULL;
        struct err e = { "" };
        const status_t st = kernels_open(&(struct kernels_config){ .device = "cuda" }, &k, &e);
        if (st == ST_OK) {
            assert_string_equal(k->device, "cuda");
            continue;
        }
        print_message("# %s\n", e.msg);
        assert_int_equal(st, ST_FAILED_PRECONDITION);
        assert_null(k);
        assert_int_equal(strncmp(e.msg, "device 'cuda' ", strlen("device 'cuda' ")), 0);
        assert_null(strchr(e.msg, '\n'));
    }
}

static void what_the_plugin_lacks_is_named(void **state) {
    (void)state;
    const struct kernels_plugin *plugin = NULL;
    const void *symbol = NULL;
    struct err e = { "" };
    if (kernels_plugin_cuda(&plugin, &e) != ST_OK) {
        print_message("# %s\n", e.msg);
        skip();
    }
    assert_int_equal(kernels_plugin_cuda_symbol("abacus", &symbol, &e), ST_FAILED_PRECONDITION);
    assert_string_equal(e.msg, "this build's libtrainyard_cuda.so has no abacus");
    struct err none = { "" };
    assert_int_equal(kernels_plugin_cuda_symbol(KERNELS_PLUGIN_NAME, &symbol, &none), ST_OK);
    assert_ptr_equal(symbol, plugin);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_no_build_has_is_refused),
        cmocka_unit_test(a_host_without_cuda_gets_one_sentence),
        cmocka_unit_test(what_the_plugin_lacks_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

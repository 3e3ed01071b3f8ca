/* Runs beside a ../lib/libtrainyard_cuda.so of another build, which must be refused. */
#include "kernels/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void a_plugin_of_another_build_is_refused(void **state) {
    (void)state;
    struct kernels *k = NULL;
    struct err e = { "" };
    assert_int_equal(kernels_open(&(struct kernels_config){ .device = "cuda", .threads = 1 }, &k, &e),
                     ST_FAILED_PRECONDITION);
    assert_null(k);
    assert_non_null(strstr(e.msg, "device 'cuda' needs a libtrainyard_cuda.so of the same build as this program, not"));
    assert_non_null(strstr(e.msg, "/tests/foreign/bin/../lib/libtrainyard_cuda.so"));
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_plugin_of_another_build_is_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The addresses that ranks offer to a rendezvous fit into one message for every world size, and are the same when they
 * are unpacked. */
#include "base/limits.h"
#include "engine/collective/address_list.h"
#include "engine/collective/open_files.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { SIZE = sizeof(struct sockaddr_storage) + 8 }; /* of an address of Gloo: with a number */

/* An address as Gloo makes it, with anything in the bytes that are not used. */
static void make_address(int host, int port, int number, char *ret) {
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    const int64_t last = number;
    in.sin_addr.s_addr = htonl(0x0a000000 + (uint32_t)host);
    memset(ret, rand() % 256, SIZE);
    memcpy(ret, &in, offsetof(struct sockaddr_in, sin_zero));
    memcpy(ret + SIZE - sizeof last, &last, sizeof last);
}

static void assert_same_address(const char *have, const char *want) {
    const size_t used = offsetof(struct sockaddr_in, sin_zero);
    assert_memory_equal(have, want, used);
    assert_memory_equal(have + SIZE - 8, want + SIZE - 8, 8);
    for (size_t i = used; i < sizeof(struct sockaddr_storage); i++)
        assert_int_equal(have[i], 0);
}

static size_t packed_bytes_of(const char *list, int n) {
    struct bytes packed, again;
    struct err e = { "" };
    bytes_init(&packed, 1 << 20);
    bytes_init(&again, 1 << 20);
    if (address_list_pack(list, n, SIZE, &packed, &e) != ST_OK ||
        address_list_unpack(packed.data, packed.len, n, &again, &e) != ST_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(again.len, (size_t)n * SIZE);
    for (int i = 0; i < n; i++)
        assert_same_address(again.data + i * SIZE, list + i * SIZE);
    const size_t ret = packed.len;
    bytes_done(&packed);
    bytes_done(&again);
    return ret;
}

/* Each peer has a port of its own, or a number. Before lists were packed, those of 177 ranks were larger than a
 * message. */
static void the_addresses_of_1024_ranks_fit_into_one_message(void **state) {
    (void)state;
    enum { RANKS = LIMIT_WORLD_SIZE };
    static char list[(RANKS - 1) * SIZE];
    for (int numbered = 0; numbered < 2; numbered++) {
        size_t all = 0;
        for (int rank = 0; rank < RANKS; rank++) {
            for (int peer = 0; peer < RANKS - 1; peer++)
                make_address(rank, numbered ? 7 : 32768 + rand() % 28000, numbered ? peer : -1, list + peer * SIZE);
            const size_t bytes = packed_bytes_of(list, RANKS - 1);
            assert_true(bytes <= LIMIT_RENDEZVOUS_BYTES);
            all += bytes;
        }
        print_message("%zu bytes for %d ranks\n", all, RANKS);
        assert_true(all > RANKS && all <= LIMIT_RPC_MESSAGE_BYTES * 3 / 4);
    }
}

static void one_address_and_equal_addresses_are_the_same_again(void **state) {
    (void)state;
    enum { N = 5 };
    char list[N * SIZE];
    for (int i = 0; i < N; i++)
        make_address(1, 80, 3, list + i * SIZE);
    assert_int_equal(packed_bytes_of(list, 1), 6 + SIZE);
    assert_int_equal(packed_bytes_of(list, N), 6 + SIZE);
    make_address(1, 81, 3, list + 3 * SIZE);
    assert_int_equal(packed_bytes_of(list, N), 6 + SIZE + N);
}

static void a_list_that_cannot_be_packed_is_refused(void **state) {
    (void)state;
    enum { N = 100 };
    static char list[N * SIZE];
    struct bytes packed;
    struct err e = { "" };
    for (int i = 0; i < N; i++)
        make_address(i, i, i, list + i * SIZE);
    bytes_init(&packed, 1 << 20);
    assert_int_equal(address_list_pack(list, N, SIZE, &packed, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, "the addresses of a rank for 100 peers take 12742 bytes, more than 3072: they differ in "
                               "126 bytes");
    assert_int_equal(address_list_pack(list, N, 8, &packed, &e), ST_INTERNAL);
    memset(list, 0, sizeof list);
    assert_int_equal(address_list_pack(list, N, SIZE, &packed, &e), ST_INTERNAL);
    assert_int_equal(packed.len, 0);
    bytes_done(&packed);
}

static void assert_refused(const void *packed, size_t bytes, int n) {
    struct bytes ret;
    struct err e = { "" };
    bytes_init(&ret, 1 << 20);
    assert_int_equal(address_list_unpack(packed, bytes, n, &ret, &e), ST_INTERNAL);
    bytes_done(&ret);
}

static void a_packed_list_that_is_cut_or_changed_is_refused(void **state) {
    (void)state;
    enum { N = 12 };
    static char list[N * SIZE];
    struct bytes packed;
    struct err e;
    for (int i = 0; i < N; i++)
        make_address(1, 1000 + i, 1, list + i * SIZE);
    bytes_init(&packed, 1 << 20);
    assert_int_equal(address_list_pack(list, N, SIZE, &packed, &e), ST_OK);
    for (size_t n = 0; n < packed.len; n++)
        assert_refused(packed.data, n, N);
    assert_refused(packed.data, packed.len, N - 1);
    assert_refused(packed.data, packed.len, N + 1);
    memcpy(packed.data + 2, &(uint16_t){ SIZE }, 2); /* the range ends behind the address */
    assert_refused(packed.data, packed.len, N);
    memcpy(packed.data, &(uint16_t){ UINT16_MAX }, 2); /* the size of an address */
    assert_refused(packed.data, packed.len, N);
    bytes_done(&packed);
}

/* The limits of this process are changed, so this test is the last one. */
static void the_limit_of_open_files_is_raised_or_named(void **state) {
    (void)state;
    struct rlimit limit;
    struct err e = { "" };
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 4096)
        skip();
    limit = (struct rlimit){ .rlim_cur = 256, .rlim_max = 4096 };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(open_files_allow(1023, &e), ST_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(limit.rlim_cur, 1023 + 512 + 1024);
    limit = (struct rlimit){ .rlim_cur = 256, .rlim_max = 2048 }; /* without a large checkpoint it suffices */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(open_files_allow(1023, &e), ST_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(limit.rlim_cur, 2048);
    limit = (struct rlimit){ .rlim_cur = 256, .rlim_max = 1024 };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(open_files_allow(1023, &e), ST_FAILED_PRECONDITION);
    assert_string_equal(e.msg, "a rank with 1023 peers needs 1535 open files, but this host allows a process 1024: "
                               "raise LimitNOFILE of the executor's service, or ulimit -n");
    assert_int_equal(open_files_allow(0, &e), ST_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_addresses_of_1024_ranks_fit_into_one_message),
        cmocka_unit_test(one_address_and_equal_addresses_are_the_same_again),
        cmocka_unit_test(a_list_that_cannot_be_packed_is_refused),
        cmocka_unit_test(a_packed_list_that_is_cut_or_changed_is_refused),
        cmocka_unit_test(the_limit_of_open_files_is_raised_or_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

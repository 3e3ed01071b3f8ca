/* executor/program/traceback: what Python, PyTorch and C++ print when they fail, as one exception and one sentence. */
#include "base/utf8.h"
#include "executor/program/traceback.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SENTENCE_BYTES = 200 };

static void check(const char *text, bool many, enum exception_kind kind, const char *sentence) {
    struct exception x;
    char got[SENTENCE_BYTES];
    assert_true(traceback_find(text, strlen(text), many, &x));
    traceback_sentence(&x, got, sizeof got);
    assert_string_equal(got, sentence);
    assert_int_equal(x.kind, kind);
}

#define HEADER "Traceback (most recent call last):\n"
#define MAIN   "  File \"/data/train.py\", line 9, in <module>\n    main()\n"
#define STEP   "  File \"/data/train.py\", line 5, in step\n    loss = model(x)\n           ^^^^^^^^\n"
#define TORCH  "  File \"/venv/lib/python3.11/site-packages/torch/nn/modules/module.py\", line 1773, in _call_impl\n"

static void the_place_is_the_last_frame_in_the_users_own_code(void **state) {
    (void)state;
    check(HEADER MAIN STEP TORCH "ValueError: expected 4 columns\n", false, EXCEPTION_OTHER,
          "ValueError: expected 4 columns, at /data/train.py:5 in step");
    check(HEADER MAIN "KeyboardInterrupt", false, EXCEPTION_OTHER, "KeyboardInterrupt, at /data/train.py:9");
    check("epoch 1\n" HEADER "  File \"<frozen runpy>\", line 198, in _run_module_as_main\n"
          "  File \"/usr/lib/python3.11/json/decoder.py\", line 355, in raw_decode\njson.decoder.JSONDecodeError: x\n",
          false, EXCEPTION_OTHER, "json.decoder.JSONDecodeError: x");
    check(HEADER "  File \"<string>\", line 1, in <module>\nZeroDivisionError: division by zero\n", false,
          EXCEPTION_OTHER, "ZeroDivisionError: division by zero, at <string>:1");
}

static void a_prefix_of_a_rank_separates_its_lines_from_those_of_others(void **state) {
    (void)state;
    check("[rank1]: Traceback (most recent call last):\n[rank0]: something else\n"
          "[rank1]:   File \"/data/a.py\", line 3, in f\nINFO: epoch 2\n  File \"/data/no.py\", line 1, in no\n"
          "[rank1]: RuntimeError: boom\n",
          false, EXCEPTION_OTHER, "RuntimeError: boom, at /data/a.py:3 in f");
    check(HEADER STEP "INFO: a line of another thread\nValueError: boom\n", false, EXCEPTION_OTHER,
          "ValueError: boom, at /data/train.py:5 in step");
}

static void syntax_errors_have_no_function(void **state) {
    (void)state;
    check("  File \"/data/train.py\", line 3\n    def f(\n         ^\nSyntaxError: '(' was never closed\n", false,
          EXCEPTION_CODE, "SyntaxError: '(' was never closed, at /data/train.py:3");
    check(HEADER MAIN "  File \"/data/model.py\", line 7\n    x = = 1\nIndentationError: unexpected indent\n", false,
          EXCEPTION_CODE, "IndentationError: unexpected indent, at /data/model.py:7");
}

#define DURING "\nDuring handling of the above exception, another exception occurred:\n\n"
#define CAUSE  "\nThe above exception was the direct cause of the following exception:\n\n"
#define PEER   "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:31415\n"

static void the_last_of_a_chain_counts_unless_a_lost_peer_is_its_end(void **state) {
    (void)state;
    check(HEADER STEP "KeyError: 'x'\n" CAUSE HEADER MAIN "RuntimeError: no such column\n", false, EXCEPTION_OTHER,
          "RuntimeError: no such column, at /data/train.py:9");
    check(HEADER STEP "KeyError: 'x'\n" DURING HEADER MAIN PEER, false, EXCEPTION_OTHER,
          "KeyError: 'x', at /data/train.py:5 in step");
    check(HEADER STEP "KeyError: 'x'\ncontinues\n" HEADER MAIN PEER, false, EXCEPTION_PEER,
          "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:31415, at "
          "/data/train.py:9");
}

static void of_several_processes_the_one_that_did_not_lose_a_peer_counts(void **state) {
    (void)state;
    const char *text = HEADER STEP
        "ValueError: first\n" HEADER MAIN PEER HEADER "  File \"/venv/bin/torchrun\", line 8, in <module>\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n";
    check(text, true, EXCEPTION_OTHER, "ValueError: first, at /data/train.py:5 in step");
    check(HEADER MAIN "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, remote\n"
                      "ncclRemoteError: A call failed possibly due to a network error\n",
          true, EXCEPTION_PEER,
          "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, remote, at /data/train.py:9");
}

static void of_a_group_the_group_itself_counts(void **state) {
    (void)state;
    check("  + Exception Group Traceback (most recent call last):\n"
          "  |   File \"/data/train.py\", line 2, in <module>\n  |     raise ExceptionGroup(\"two\", [a, b])\n"
          "  | ExceptionGroup: two (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
          "    | Traceback (most recent call last):\n    |   File \"/data/other.py\", line 1, in f\n"
          "    | ValueError: 1\n    +---------------- 2 ----------------\n    | TypeError: 2\n"
          "    +------------------------------------\n",
          false, EXCEPTION_OTHER, "ExceptionGroup: two (2 sub-exceptions), at /data/train.py:2");
}

static void failures_that_a_retry_repeats_are_known(void **state) {
    (void)state;
    static const struct {
        const char *line;
        enum exception_kind kind;
    } lines[] = {
        { "ModuleNotFoundError: No module named 'flash_attn'", EXCEPTION_CODE },
        { "ImportError: cannot import name 'x' from 'y' (/y.py)", EXCEPTION_CODE },
        { "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", EXCEPTION_MEMORY },
        { "torch.cuda.OutOfMemoryError: CUDA out of memory", EXCEPTION_MEMORY },
        { "MemoryError", EXCEPTION_MEMORY },
        { "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB", EXCEPTION_MEMORY },
        { "RuntimeError: CUDA error: out of memory", EXCEPTION_MEMORY },
        { "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes", EXCEPTION_MEMORY },
        { "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes",
          EXCEPTION_MEMORY },
        { "ConnectionResetError: [Errno 104] Connection reset by peer", EXCEPTION_PEER },
        { "torch.distributed.DistNetworkError: Connection was likely closed. Did the remote server shutdown or crash?",
          EXCEPTION_PEER },
        { "RuntimeError: a memory of old times", EXCEPTION_OTHER },
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[512];
        struct exception x;
        snprintf(text, sizeof text, HEADER MAIN "%s\n", lines[i].line);
        assert_true(traceback_find(text, strlen(text), false, &x));
        if (x.kind != lines[i].kind)
            fail_msg("'%s' is of kind %d", lines[i].line, (int)x.kind);
    }
    check("/usr/bin/python3: No module named nothing\n", false, EXCEPTION_CODE,
          "ModuleNotFoundError: No module named nothing");
}

static void crashes_of_c_have_the_place_in_python(void **state) {
    (void)state;
    check("Fatal Python error: Segmentation fault\n\nThread 0x00007f01 (most recent call first):\n"
          "  File \"/data/other.py\", line 1 in wait\n\nCurrent thread 0x00007f02 (most recent call first):\n"
          "  File \"/usr/lib/python3.11/ctypes/__init__.py\", line 519 in string_at\n"
          "  File \"/data/train.py\", line 6 in inner\n  File \"/data/train.py\", line 8 in <module>\n",
          false, EXCEPTION_OTHER, "Fatal Python error: Segmentation fault, at /data/train.py:6 in inner");
    check("terminate called after throwing an instance of 'c10::DistBackendError'\n"
          "  what():  [PG ID 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)\n"
          "Fatal Python error: Aborted\n\nCurrent thread 0x00007f02 (most recent call first):\n"
          "  File \"/data/train.py\", line 6 in inner\n",
          false, EXCEPTION_PEER,
          "c10::DistBackendError: [PG ID 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4), at "
          "/data/train.py:6 in inner");
}

static void a_crash_while_the_interpreter_ends_hides_no_exception(void **state) {
    (void)state;
    static const char *const crashes[] = {
        "terminate called without an active exception\nFatal Python error: Aborted\n",
        "Fatal Python error: Segmentation fault\n",
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "  what():  it ended\nFatal Python error: Aborted\n"
    };
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 HEADER MAIN "KeyError: 'weight'\n%s\nCurrent thread 0x00007f02 (most recent call first):\n"
                             "  File \"/data/other.py\", line 1 in __del__\n  <no Python frame>\n",
                 crashes[i]);
        check(text, false, EXCEPTION_OTHER, "KeyError: 'weight', at /data/train.py:9");
    }
}

static void a_text_without_an_exception_has_none(void **state) {
    (void)state;
    static const char *const texts[] = { "",
                                         "\n\n",
                                         "error: no such file\n",
                                         HEADER,
                                         HEADER MAIN,
                                         "ValueError: x\n",
                                         "  File \"/data/train.py\", line 9, in f\n" };
    struct exception x;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(traceback_find(texts[i], strlen(texts[i]), false, &x));
}

static void a_sentence_is_bounded_and_printable_whatever_its_parts_are(void **state) {
    (void)state;
    enum { N = 20000 };
    static char text[3 * N + 200];
    static const char *const parts[] = { "x", "\xc3\xa9", "\xff\x01" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *at = text + sprintf(text, HEADER "  File \"/data/");
        for (int k = 0; k < N / 20; k++)
            at += sprintf(at, "%s", parts[i]);
        at += sprintf(at, "/train.py\", line 5, in step\nValueError: ");
        for (int k = 0; k < N / 2; k++)
            at += sprintf(at, "%s", parts[i]);
        struct exception x;
        char got[SENTENCE_BYTES];
        assert_true(traceback_find(text, (size_t)(at - text), false, &x));
        traceback_sentence(&x, got, sizeof got);
        assert_true(strlen(got) < sizeof got && utf8_valid(got, strlen(got)));
        assert_non_null(strstr(got, "..., at ..."));
        assert_non_null(strstr(got, "/train.py:5 in step"));
    }
}

static void the_file_of_torch_elastic_names_the_exception(void **state) {
    (void)state;
    static const char stack[] =
        "{\"message\": {\"message\": \"ValueError: boom\", \"extraInfo\": {\"py_callstack\": \"Traceback (most recent "
        "call last):\\n  File \\\"/venv/lib/python3.11/site-packages/torch/x.py\\\", line 1, in wrapper\\n  File "
        "\\\"/data/train.py\\\", line 5, in step\\nValueError: boom\\n\", \"timestamp\": \"1\"}}}";
    static const char plain[] = "{\"message\": \"MemoryError: no more\"}";
    struct exception x;
    char got[SENTENCE_BYTES];
    CLEANUP(redactor_freep) struct redactor *none = redactor_new(), *one = redactor_new();
    redactor_ready(none);
    redactor_add(one, "bo\tken-1234", 11);
    redactor_ready(one);
    assert_true(traceback_error_file(stack, sizeof stack - 1, none, &x));
    traceback_sentence(&x, got, sizeof got);
    assert_string_equal(got, "ValueError: boom, at /data/train.py:5 in step");
    assert_true(traceback_error_file(plain, sizeof plain - 1, none, &x));
    assert_int_equal(x.kind, EXCEPTION_MEMORY);
    static const char secret[] = "{\"message\": \"ValueError: bo\\tken-1234 is no key\"}";
    assert_true(traceback_error_file(secret, sizeof secret - 1, one, &x));
    assert_string_equal(x.message, "*** is no key");
    static const char *const wrong[] = {
        "", "{", "[]", "{}", "{\"message\": 1}", "{\"message\": {\"message\": []}}", "{\"message\": \"\"}"
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(traceback_error_file(wrong[i], strlen(wrong[i]), none, &x));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_place_is_the_last_frame_in_the_users_own_code),
        cmocka_unit_test(a_prefix_of_a_rank_separates_its_lines_from_those_of_others),
        cmocka_unit_test(syntax_errors_have_no_function),
        cmocka_unit_test(the_last_of_a_chain_counts_unless_a_lost_peer_is_its_end),
        cmocka_unit_test(of_several_processes_the_one_that_did_not_lose_a_peer_counts),
        cmocka_unit_test(of_a_group_the_group_itself_counts),
        cmocka_unit_test(failures_that_a_retry_repeats_are_known),
        cmocka_unit_test(crashes_of_c_have_the_place_in_python),
        cmocka_unit_test(a_crash_while_the_interpreter_ends_hides_no_exception),
        cmocka_unit_test(a_text_without_an_exception_has_none),
        cmocka_unit_test(a_sentence_is_bounded_and_printable_whatever_its_parts_are),
        cmocka_unit_test(the_file_of_torch_elastic_names_the_exception),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

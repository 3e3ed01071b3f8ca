/* api/code/requirements and executor/environment/failure: what the lines of requirements and of installers mean. */
#include "api/code/requirements.h"
#include "executor/environment/failure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static status_t next(const char *text, struct requirements_line *ret, bool *ret_end, struct err *e) {
    const char *at = text;
    int number = 0;
    return requirements_next(&at, text + strlen(text), &number, ret, ret_end, e);
}

static void lines_that_pip_accepts_are_accepted(void **state) {
    (void)state;
    static const char *const lines[] = {
        "torch",
        "torch==2.*",
        "torch >= 2, < 3",
        "numpy~=1.26",
        "a.b_c-d[x,y]>=1 ; python_version < '3'",
        "x@ https://h/x.whl",
        "x (>1)",
        "git+https://h/x@main#egg=x",
        "https://h/x.tar.gz",
        "./local",
        "../x",
        "/data/x.whl",
        "x-1.0-py3-none-any.whl",
        "C:\\x",
        "--pre",
        "--only-binary :all:",
        "-i https://h/simple",
        "${TOKEN}",
        "x --hash=sha256:00",
        "x  # why",
        "x ;sys_platform == 'linux'",
        "--extra-index-url https://h",
        "-e git+https://h/x#egg=x",
        "x===1!2",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct requirements_line line;
        struct err why = { "" };
        bool over;
        if (next(lines[i], &line, &over, &why) != ST_OK)
            fail_msg("%s: %s", lines[i], why.msg);
        assert_false(over || *line.include);
    }
}

static void lines_that_are_refused_are_named(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "\n# x\nfoo bar", "line 3: 'foo bar' is not a requirement of pip" },
        { "=2", "line 1: '=2' is not a requirement of pip" },
        { "\xc3\xa4", "line 1: '\xc3\xa4' is not a requirement of pip" },
        { "-r https://h/x", "line 1: includes 'https://h/x', which is not the path of a file" },
        { "--requirement=", "line 1: names no file" },
        { "-e .", "line 1: '-e .' installs a folder that other jobs do not have: name the folder without -e" },
        { "--editable=./x",
          "line 1: '--editable=./x' installs a folder that other jobs do not have: name the folder without -e" },
        { "--pre -e .",
          "line 1: '--pre -e .' installs a folder that other jobs do not have: name the folder without -e" },
        { "--pre --edit .",
          "line 1: '--pre --edit .' installs a folder that other jobs do not have: name the folder without -e" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct requirements_line line;
        struct err why = { "" };
        bool over;
        assert_int_equal(next(cases[i][0], &line, &over, &why), ST_INVALID_ARGUMENT);
        assert_string_equal(why.msg, cases[i][1]);
    }
}

static void includes_hashes_and_local_paths_are_found(void **state) {
    (void)state;
    static const struct {
        const char *text, *include;
        bool local, hashed, sources;
    } cases[] = {
        { "-r base.txt", "base.txt", false, false, false },
        { "-rbase.txt # x", "base.txt", false, false, false },
        { "--requirement base.txt", "base.txt", false, false, false },
        { "-c=limits.txt", "limits.txt", false, false, false },
        { "--constraint=limits.txt", "limits.txt", false, false, false },
        { "x==1 \\\n  --hash=sha256:0 \\\n  --hash=sha256:1", "", false, true, false },
        { "# --hash=x\nx", "", false, false, false },
        { "./x", "", true, false, true },
        { "./x-1.0.tar.gz ; python_version > '3'", "", true, false, false },
        { "x @ file:./x", "", true, false, true },
        { "--find-links wheels", "", true, false, false },
        { "-f https://h/wheels", "", false, false, false },
        { "x @ file:///data/x.whl", "", true, false, false },
        { "https://h/x.whl", "", false, false, false },
        { "--no-index", "", false, false, false },
        { "--only-binary=:all:", "", false, false, false },
        { "--trusted-host h", "", false, false, false },
        { "--no-index --find-links wheels", "", true, false, true },
        { "--pre -r base.txt", "", true, false, true },
        { "-f https://h/wheels -f wheels", "", true, false, true },
        { "--find-l wheels", "", true, false, true },
        { "--requirem base.txt", "", true, false, true },
        { "./a://b", "", true, false, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct requirements_line line;
        bool over;
        assert_int_equal(next(cases[i].text, &line, &over, NULL), ST_OK);
        assert_string_equal(line.include, cases[i].include);
        assert_int_equal(line.local, cases[i].local);
        assert_int_equal(line.sources, cases[i].sources);
        assert_int_equal(line.hashed, cases[i].hashed);
    }
}

static void included_paths_are_relative_to_their_file_and_stay_in_the_folder(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        { "requirements.txt", "base.txt", "base.txt" },
        { "a/b.txt", "../c/./d.txt", "c/d.txt" },
        { "a/b.txt", "c.txt", "a/c.txt" },
        { "/data/a/b.txt", "../c.txt", "/data/c.txt" },
        { "a/b.txt", "../../c.txt", NULL },
        { "b.txt", "..", NULL },
        { "/b.txt", "../../c", NULL },
        { "a/b.txt", "/etc/c.txt", "/etc/c.txt" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char joined[REQUIREMENTS_PATH_BYTES];
        const bool inside = requirements_join(cases[i][0], cases[i][1], joined);
        assert_int_equal(inside, cases[i][2] != NULL);
        if (inside)
            assert_string_equal(joined, cases[i][2]);
    }
}

static void a_build_that_cannot_reach_the_index_is_no_fault_of_the_requirements(void **state) {
    (void)state;
    static const struct {
        const char *lines[4];
        bool refused;
        const char *error;
    } cases[] = {
        { { "ERROR: Could not find a version that satisfies the requirement x==9 (from versions: 1.0, 2.0)",
            "ERROR: No matching distribution found for x==9", "", "hint" },
          true,
          "No matching distribution found for x==9" },
        { { "ERROR: Could not find a version that satisfies the requirement x (from versions: none)",
            "ERROR: No matching distribution found for x" },
          false,
          "No matching distribution found for x" },
        { { "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(': Failed to establish "
            "a "
            "new connection: [Errno 111] Connection refused')': /simple/x/",
            "ERROR: No matching distribution found for x" },
          false,
          "No matching distribution found for x" },
        { { "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device" },
          false,
          "Could not install packages due to an OSError: [Errno 28] No space left on device" },
        { { "error: command 'gcc' failed: No such file or directory", "ERROR: Failed building wheel for x" },
          false,
          "Failed building wheel for x" },
        { { "ERROR: Cannot install a and b because these package versions have conflicting dependencies.",
            "ERROR: ResolutionImpossible: for help visit" },
          true,
          "ResolutionImpossible: for help visit" },
        { { "Successfully installed" }, false, "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct build_failure f = { .error = "" };
        for (size_t line = 0; line < 4 && cases[i].lines[line]; line++)
            build_failure_feed(&f, cases[i].lines[line]);
        assert_int_equal(build_failure_refused(&f), cases[i].refused);
        assert_string_equal(f.error, cases[i].error);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_that_pip_accepts_are_accepted),
        cmocka_unit_test(lines_that_are_refused_are_named),
        cmocka_unit_test(includes_hashes_and_local_paths_are_found),
        cmocka_unit_test(included_paths_are_relative_to_their_file_and_stay_in_the_folder),
        cmocka_unit_test(a_build_that_cannot_reach_the_index_is_no_fault_of_the_requirements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

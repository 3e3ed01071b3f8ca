/* The steps, each of them one process:
 *
 *   requirements.txt   python -m venv; pip install -r
 *   pyproject.toml     python -m venv; the names of its dependencies as a file, or the folder of the project; pip
 *                      install
 *   uv.lock            uv sync --frozen
 *   an image           skopeo copy, if it comes from a registry; its layers, by a process of the builder's user, or
 *                      unsquashfs, if it is a squashfs
 *
 * What is built from sources of the code is built in a writable copy of all code, since paths may lead out of a folder.
 * pip gets the path of the requirements, not their text, since paths in them are relative to their folder. */
#include "executor/environment/build.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/utf8.h"
#include "executor/environment/failure.h"
#include "executor/environment/image_key.h"
#include "executor/environment/tree.h"
#include "executor/image/squashfs.h"
#include "executor/image/unpack.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LINE_BYTES = 2000,
    LINES_MAX = 2000, /* of a build, in the job's log */
    BATCH = 32,
    MEASURE_TICKS = 5,
    ARGUMENTS = 20,
};

struct build {
    const struct build_options *o;
    struct build_failure failure;
    char line[LINE_BYTES];
    size_t n_line;
    char *lines[BATCH];
    size_t n_lines;
    int logged, ticks;
    deadline_ms_t until;
    const char *argv[ARGUMENTS + 1];
    size_t n_argv;
    char env[PATH_MAX], python[PATH_MAX], temporary[PATH_MAX], list[PATH_MAX], project[PATH_MAX];
    char copy[PATH_MAX], copy_file[PATH_MAX], copy_project[PATH_MAX]; /* of the code, and in it */
};

/* The dependencies of a project, one line each. Python has tomllib since 3.11; pip brings its own copy for older ones.
 */
static const char dependencies_script[] =
    "import sys\n"
    "try:\n"
    "    import tomllib\n"
    "except ImportError:\n"
    "    from pip._vendor import tomli as tomllib\n"
    "try:\n"
    "    project = tomllib.load(open(sys.argv[1], 'rb')).get('project')\n"
    "except tomllib.TOMLDecodeError as e:\n"
    "    sys.exit('ERROR: trainyard: pyproject.toml: %s' % e)\n"
    "if project is None or 'dependencies' in project.get('dynamic', []):\n"
    "    sys.exit('ERROR: trainyard: pyproject.toml does not list its dependencies: set program.python.project')\n"
    "lines = project.get('dependencies', [])\n"
    "for line in lines:\n"
    "    if not line[:1].isalnum() or '\\n' in line or '\\r' in line:\n"
    "        sys.exit('ERROR: trainyard: pyproject.toml: %r is not the name of a package' % line)\n"
    "with open(sys.argv[2], 'w') as f:\n"
    "    f.write(''.join(line + '\\n' for line in lines))\n";

/* ---- output ---- */

static void lines_send(struct build *b) {
    if (b->n_lines)
        b->o->log(b->o->ctx, b->lines, b->n_lines);
    while (b->n_lines)
        free(b->lines[--b->n_lines]);
}

static void line_end(struct build *b) {
    char printable[LINE_BYTES];
    b->line[b->n_line] = '\0';
    utf8_copy_printable(b->line, printable, sizeof printable);
    b->n_line = 0;
    build_failure_feed(&b->failure, printable);
    if (b->logged > LINES_MAX)
        return;
    b->lines[b->n_lines++] = alloc_copy_text(++b->logged > LINES_MAX ? "further lines of the build are not logged"
                                                                     : printable);
    if (b->n_lines == BATCH)
        lines_send(b);
}

static void on_output(void *ctx, const char *data, size_t n) {
    struct build *b = ctx;
    for (size_t i = 0; i < n; i++) {
        if (data[i] != '\n' && b->n_line < LINE_BYTES - 1)
            b->line[b->n_line++] = data[i];
        else if (data[i] == '\n')
            line_end(b);
    }
    lines_send(b);
}

static status_t on_tick(void *ctx, struct err *e) {
    struct build *b = ctx;
    struct tree_facts facts;
    struct err why;
    if (++b->ticks % MEASURE_TICKS || tree_measure(b->o->folder, &facts, &why) != ST_OK)
        return ST_OK;
    return facts.bytes <= b->o->order->cache_bytes
               ? ST_OK
               : err_set(e, ST_RESOURCE_EXHAUSTED,
                         "the environment has more than %lld MiB, all that the executor keeps "
                         "(--environment-cache-mib)",
                         (long long)(b->o->order->cache_bytes >> 20));
}

/* ---- steps ---- */

static void put(struct build *b, const char *argument) {
    if (b->n_argv < ARGUMENTS)
        b->argv[b->n_argv++] = argument;
}

static status_t step_explain(const struct build *b, int status, struct err *e) {
    const struct build_failure *f = &b->failure;
    if (WIFEXITED(status) && WEXITSTATUS(status) == BUILDER_NOT_EXECUTED && strcmp(b->argv[0], "skopeo") == 0)
        return err_set(e, ST_NOT_FOUND, "an image of a registry needs the program skopeo, which is not on this host");
    if (strstr(f->last, "'unsquashfs' cannot be executed"))
        return err_set(e, ST_NOT_FOUND,
                       "an image in a squashfs (.sqsh, .sif) needs the program unsquashfs, which is not on this host: "
                       "install its package squashfs-tools");
    if (WIFEXITED(status) && WEXITSTATUS(status) == BUILDER_NOT_EXECUTED && strcmp(b->argv[0], "uv") == 0)
        return err_set(
            e, ST_NOT_FOUND,
            "uv.lock needs the program uv, which is not on this host: install uv, or name a requirements.txt");
    if (strstr(f->last, "ensurepip is not") || strstr(f->last, "No module named venv") ||
        strstr(f->last, "No module named ensurepip"))
        return err_set(e, ST_NOT_FOUND, "the host's Python cannot make environments: install its package python3-venv");
    if (*f->error)
        return err_set(e, ST_FAILED_PRECONDITION, "%s", f->error);
    if (WIFSIGNALED(status))
        return err_set(e, ST_INTERNAL, "'%.60s' was killed by signal %d", b->argv[0], WTERMSIG(status));
    return err_set(e, ST_INTERNAL, "'%.60s' failed with exit status %d: %s", b->argv[0], WEXITSTATUS(status),
                   *f->last ? f->last : "it wrote nothing");
}

/* Executes what was put since the last step. before: as in builder_order; it gets the build. */
static status_t step_run_after(struct build *b, const char *directory, bool (*before)(void *ctx), struct err *e) {
    int status = 0;
    b->argv[b->n_argv] = NULL;
    b->n_argv = 0;
    const struct builder_order order = { .directory = directory,
                                         .before = before,
                                         .ctx = b,
                                         .argv = b->argv,
                                         .until = b->until,
                                         .output = on_output,
                                         .tick = on_tick,
                                         .owner = b };
    status_t st = builder_run(b->o->builder, &order, &status, e);
    if (b->n_line)
        line_end(b);
    lines_send(b);
    if (st == ST_DEADLINE_EXCEEDED)
        return err_set(e, st, "the build took more than %d s (--environment-timeout of the executor)",
                       (int)b->o->order->limit_s);
    TRY(st);
    return status == 0 ? ST_OK : step_explain(b, status, e);
}

static status_t step_run(struct build *b, const char *directory, struct err *e) {
    return step_run_after(b, directory, NULL, e);
}

static status_t venv_make(struct build *b, struct err *e) {
    put(b, b->o->key->python);
    put(b, "-I");
    put(b, "-m");
    put(b, "venv");
    put(b, b->env);
    return step_run(b, b->o->folder, e);
}

/* -I: else the working directory comes first in sys.path, and a folder "pip" of the code would run instead of pip. */
static void put_pip(struct build *b) {
    static const char *const words[] = {
        "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"
    };
    put(b, b->python);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        put(b, words[i]);
}

static status_t pip_install(struct build *b, const char *file, const char *directory, struct err *e) {
    put_pip(b);
    if (b->o->key->hashed)
        put(b, "--require-hashes");
    put(b, "-r");
    put(b, file);
    return step_run(b, directory, e);
}

/* A build writes beside the sources, and the code is read-only. */
static status_t code_copy(struct build *b, struct err *e) {
    put(b, "cp");
    put(b, "-R");
    put(b, "--no-preserve=mode");
    put(b, "--");
    put(b, b->o->order->code);
    put(b, b->copy);
    return step_run(b, b->o->folder, e);
}

/* Relative paths in the file begin at the folder of the code. A file that names none has no business there. */
static status_t requirements_install(struct build *b, struct err *e) {
    const bool code = *b->o->order->code;
    if (!b->o->key->local)
        return pip_install(b, b->o->key->file, b->o->folder, e);
    if (!code || !b->o->key->sources)
        return pip_install(b, b->o->key->file, code ? b->o->order->code : b->project, e);
    TRY(code_copy(b, e));
    return pip_install(b, b->copy_file, b->copy, e);
}

static status_t pyproject_install(struct build *b, struct err *e) {
    if (b->o->order->python->project) {
        TRY(code_copy(b, e));
        put_pip(b);
        put(b, b->copy_project);
        return step_run(b, b->o->folder, e);
    }
    put(b, b->python);
    put(b, "-I");
    put(b, "-c");
    put(b, dependencies_script);
    put(b, b->o->key->file);
    put(b, b->list);
    TRY(step_run(b, b->o->folder, e));
    return pip_install(b, b->list, b->o->folder, e);
}

static status_t uv_sync(struct build *b, struct err *e) {
    static const char *const words[] = { "uv",
                                         "sync",
                                         "--frozen",
                                         "--no-progress",
                                         "--no-editable",
                                         "--compile-bytecode",
                                         /* uv.toml may ask for links to uv's cache, which is removed */ "--link-mode",
                                         "copy",
                                         "--python" };
    const bool code = *b->o->order->code;
    if (code)
        TRY(code_copy(b, e));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        put(b, words[i]);
    put(b, b->o->key->python);
    if (!b->o->order->python->project)
        put(b, "--no-install-project");
    return step_run(b, code ? b->copy_project : b->project, e);
}

/* ---- images ---- */

static status_t source_open(const struct build *b, int *ret, struct err *e) {
    char layout[PATH_MAX + 8];
    if (!b->o->order->image->name)
        return image_key_open(b->o->order, b->o->image, ret, e);
    snprintf(layout, sizeof layout, "%s/layout", b->temporary);
    *ret = open(layout, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? err_errno(e, "open what skopeo has fetched") : ST_OK;
}

/* The step becomes a run of unsquashfs, which opens the file anew: it has another descriptor, and a path could lead
 * elsewhere by now. What it cannot make without privileges, such as devices, is no failure. */
static status_t unsquash_put(struct build *b, int source, int64_t offset, struct err *e) {
    static const char *const words[] = { "unsquashfs", "-quiet", "-no-progress", "-no-xattrs", "-no-exit-code", "-d" };
    const int kept = fcntl(source, F_DUPFD, 10);
    if (kept < 0)
        return err_errno(e, "duplicate a descriptor");
    snprintf(b->list, sizeof b->list, "%lld", (long long)offset);
    snprintf(b->project, sizeof b->project, "/proc/self/fd/%d", kept);
    b->n_argv = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        put(b, words[i]);
    put(b, "env/root");
    put(b, "-offset");
    put(b, b->list);
    put(b, b->project);
    put(b, NULL);
    return ST_OK;
}

static status_t unpack(struct build *b, struct err *e) {
    CLEANUP(closep) int source = -1;
    char root[PATH_MAX + 8], variables[PATH_MAX + 16];
    struct utsname host;
    bool squashfs = false;
    int64_t offset = 0;
    snprintf(root, sizeof root, "%s/root", b->env);
    snprintf(variables, sizeof variables, "%s/variables", b->env);
    TRY(source_open(b, &source, e));
    TRY(dir_make(b->env, 0755, e));
    if (uname(&host) < 0)
        return err_errno(e, "find the kind of this machine");
    if (!b->o->order->image->name)
        TRY(squashfs_find(source, host.machine, &squashfs, &offset, e));
    if (squashfs)
        return unsquash_put(b, source, offset, e);
    const struct image_order order = { .source = source,
                                       .temporary = b->temporary,
                                       .root = root,
                                       .variables = variables,
                                       .max_bytes = b->o->order->cache_bytes };
    return image_unpack(&order, e);
}

static status_t variables_read(const struct build *b, struct err *e) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/variables", b->env);
    if (access(path, F_OK) == 0) /* of an OCI image */
        return ST_OK;
    CLEANUP(closep) int root = open("env/root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return root < 0 ? err_errno(e, "open what unsquashfs has unpacked") : squashfs_variables_write(root, path, e);
}

/* For a builder's process. build_failure_feed knows the refusals by their prefix. */
static bool report_failure(status_t st, const struct err *why) {
    if (st != ST_OK)
        printf("ERROR: %s%s\n", st == ST_INVALID_ARGUMENT ? "trainyard: " : "", why->msg);
    return st == ST_OK;
}

static bool unpack_before(void *ctx) {
    struct err why;
    return report_failure(unpack(ctx, &why), &why);
}

static bool variables_before(void *ctx) {
    struct err why;
    return report_failure(variables_read(ctx, &why), &why);
}

/* The name ends with a digest, which skopeo compares. Without a policy of the host, every name may be copied. */
static status_t image_make(struct build *b, struct err *e) {
    static const char *const words[] = { "skopeo", "--insecure-policy", "copy", "--quiet" };
    char source[PATH_MAX];
    if (b->o->order->image->name) {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            put(b, words[i]);
        snprintf(source, sizeof source, "docker://%s", b->o->order->image->name);
        put(b, source);
        put(b, "oci:tmp/layout:image");
        TRY(step_run(b, b->o->folder, e));
    }
    put(b, "true");
    TRY(step_run_after(b, b->o->folder, unpack_before, e));
    put(b, "true");
    TRY(step_run_after(b, b->o->folder, variables_before, e));
    return image_key_check(b->o->order, b->o->key, b->o->image, e);
}

static status_t paths_fill(struct build *b, struct err *e) {
    const bool image = b->o->order->image;
    const char *folder = b->o->folder, *file = image ? "/" : b->o->key->file, *slash = strrchr(file, '/');
    const char *requirements = image ? "" : b->o->order->python->requirements;
    if (!slash || snprintf(b->env, PATH_MAX, "%s/env", folder) >= PATH_MAX ||
        snprintf(b->python, PATH_MAX, "%s/env/bin/python", folder) >= PATH_MAX ||
        snprintf(b->temporary, PATH_MAX, "%s/tmp", folder) >= PATH_MAX ||
        snprintf(b->list, PATH_MAX, "%s/tmp/requirements.txt", folder) >= PATH_MAX ||
        snprintf(b->copy, PATH_MAX, "%s/tmp/code", folder) >= PATH_MAX ||
        snprintf(b->copy_file, PATH_MAX, "%s/tmp/code/%s", folder, requirements) >= PATH_MAX ||
        snprintf(b->project, PATH_MAX, "%.*s", (int)(slash - file), file) >= PATH_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "the path of the cache of environments is too long");
    snprintf(b->copy_project, PATH_MAX, "%.*s", (int)(strrchr(b->copy_file, '/') - b->copy_file), b->copy_file);
    return ST_OK;
}

status_t environment_build(const struct build_options *options, bool *ret_refused, struct err *e) {
    CLEANUP(freep) struct build *b = alloc_zeroed(1, sizeof *b);
    b->o = options;
    b->until = deadline_in((int64_t)options->order->limit_s * 1000);
    *ret_refused = false;
    TRY(paths_fill(b, e));
    status_t st;
    if (options->order->image) {
        st = image_make(b, e);
    } else if (options->key->kind == REQUIREMENTS_UV_LOCK) {
        st = uv_sync(b, e);
    } else {
        st = venv_make(b, e);
        if (st == ST_OK && options->key->kind == REQUIREMENTS_PYPROJECT)
            st = pyproject_install(b, e);
        else if (st == ST_OK)
            st = requirements_install(b, e);
    }
    *ret_refused = st == ST_FAILED_PRECONDITION && build_failure_refused(&b->failure);
    return st;
}

/* ---- variables ---- */

static void variable_put(char ***list, size_t *n, const char *name, const char *value) {
    *list = alloc_resize(*list, *n + 2, sizeof **list);
    (*list)[(*n)++] = *name ? alloc_format("%s=%s", name, value) : alloc_copy_text(value);
    (*list)[*n] = NULL;
}

char **build_variables_new(const Trainyard__V1__EnvironmentBuild *order, const char *home, const char *temporary) {
    char **list = NULL;
    size_t n = 0;
    const char *path = getenv("PATH");
    variable_put(&list, &n, "PATH", path ? path : "/usr/bin:/bin");
    variable_put(&list, &n, "LANG", "C.UTF-8");
    variable_put(&list, &n, "HOME", home);
    if (temporary) {
        CLEANUP(freep) char *folder = alloc_copy_text(temporary);
        char *slash = strrchr(folder, '/');
        variable_put(&list, &n, "TMPDIR", temporary);
        if (slash)
            *slash = '\0';
        CLEANUP(freep) char *env = alloc_format("%s/env", folder);
        CLEANUP(freep) char *cache = alloc_format("%s/uv", temporary);
        variable_put(&list, &n, "UV_PROJECT_ENVIRONMENT", env);
        variable_put(&list, &n, "UV_PYTHON_DOWNLOADS", "never");
        variable_put(&list, &n, "UV_CACHE_DIR", cache);
    }
    for (size_t i = 0; i < order->n_variables; i++)
        variable_put(&list, &n, "", order->variables[i]);
    return list;
}

char **build_variables_free(char **variables) {
    for (char **at = variables; at && *at; at++)
        free(*at);
    free(variables);
    return NULL;
}

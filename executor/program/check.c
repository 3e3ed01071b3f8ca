/* A host check of a program looks for the command in PATH, as the rank will: a program that is not there, or that may
 * not be executed, is reported before a slot is taken. */
#include "api/code/requirements.h"
#include "base/cleanup.h"
#include "base/utf8.h"
#include "executor/program/image.h"
#include "executor/program/rank.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SENTENCE_BYTES = 400 };

static void put_problem(struct emitter *emitter, const char *sentence) {
    Trainyard__V1__SpecProblem problem = TRAINYARD__V1__SPEC_PROBLEM__INIT;
    Trainyard__V1__CheckFinding finding = TRAINYARD__V1__CHECK_FINDING__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    problem.text = (char *)(uintptr_t)sentence;
    problem.of_host = true;
    finding.finding_case = TRAINYARD__V1__CHECK_FINDING__FINDING_PROBLEM;
    finding.problem = &problem;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_FINDING;
    record.finding = &finding;
    emitter_put(emitter, &record);
}

/* 0, or errno of the first reason why the file cannot be executed. */
static int file_errno(const char *path) {
    struct stat st;
    if (stat(path, &st) < 0)
        return errno;
    if (S_ISDIR(st.st_mode))
        return EISDIR;
    return access(path, X_OK) < 0 ? errno : 0;
}

/* As execvp: a name with a slash is a path, and any other name is searched. */
static int command_errno(const Trainyard__V1__ProgramSpec *program, const char *search) {
    const char *name = program->command[0];
    int why = ENOENT;
    if (strchr(name, '/') && *name != '/')
        return program->code ? 0 : ENOENT; /* the working directory is the code, which the client has read, or empty */
    if (*name == '/')
        return file_errno(name);
    if (program->python)
        return 0; /* the environment may have it */
    for (const char *at = search; *at; at += *at == ':') {
        const size_t n = strcspn(at, ":");
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%.*s%s%s", (int)n, at, n ? "/" : "", name) < (int)sizeof path) {
            const int found = file_errno(path);
            if (found == 0)
                return 0;
            why = found == ENOENT ? why : found;
        }
        at += n;
    }
    return why;
}

static const char *search_path(const Trainyard__V1__ProgramSpec *program) {
    const char *search = getenv("PATH");
    for (size_t i = 0; i < program->n_environment; i++)
        if (strcmp(program->environment[i]->key, "PATH") == 0)
            search = program->environment[i]->value;
    return search ? search : "";
}

static const char *image_search_path(const Trainyard__V1__ProgramSpec *program) {
    for (size_t i = 0; i < program->n_environment; i++)
        if (strcmp(program->environment[i]->key, "PATH") == 0)
            return program->environment[i]->value;
    return IMAGE_PATH;
}

/* A path that lies in a mounted folder, such as a data root, is not searched in the image. */
static bool is_of_host(const Trainyard__V1__WorkerCheck *check, const char *path) {
    for (size_t i = 0; i < check->n_data_roots; i++) {
        const size_t n = strlen(check->data_roots[i]);
        if (strncmp(path, check->data_roots[i], n) == 0 && path[n] == '/')
            return true;
    }
    return false;
}

/* errno of the command; *ret_image: why the image is none. */
static int image_check(const Trainyard__V1__WorkerCheck *check, struct err *ret_image) {
    const Trainyard__V1__ProgramSpec *program = check->spec->program;
    const char *name = program->command[0];
    const struct job_roots_given given = { check->data_roots,         check->n_data_roots, check->checkpoint_roots,
                                           check->n_checkpoint_roots, check->data_except,  check->n_data_except };
    CLEANUP(closep) int root = -1;
    if (image_root_open(program->image, &given, &root, ret_image) != ST_OK)
        return 0;
    if (*name == '/' && is_of_host(check, name))
        return file_errno(name);
    if (*name != '/' && strchr(name, '/'))
        return program->code ? 0 : ENOENT;
    return image_command_errno(root, name, image_search_path(program));
}

static bool is_in_path(const char *name);

/* Whether the host can fetch or unpack the image at all. */
static void image_source_check(const Trainyard__V1__WorkerCheck *check, struct err *ret) {
    const Trainyard__V1__ImageSpec *image = check->spec->program->image;
    const struct job_roots_given given = { check->data_roots,         check->n_data_roots, check->checkpoint_roots,
                                           check->n_checkpoint_roots, check->data_except,  check->n_data_except };
    CLEANUP(closep) int fd = -1;
    if (image->name && !is_in_path("skopeo"))
        status_ignore(err_set(ret, ST_NOT_FOUND,
                              "program.image.name: an image of a registry needs the program skopeo, "
                              "which is not on this host"));
    else if (image->archive)
        status_ignore(image_archive_open(image, &given, &fd, ret));
}

static bool is_in_path(const char *name) {
    const Trainyard__V1__ProgramSpec search_only = { .command = (char *[]){ (char *)(uintptr_t)name }, .n_command = 1 };
    const char *search = getenv("PATH"); /* of the executor: a job's PATH is for its command */
    return command_errno(&search_only, search ? search : "") == 0;
}

/* What can be known before a build. With code, the client has read the file. */
static void python_check(const Trainyard__V1__ProgramSpec *program, struct emitter *emitter) {
    const Trainyard__V1__PythonSpec *python = program->python;
    const char *file = python->requirements ? python->requirements : "";
    char sentence[SENTENCE_BYTES], interpreter[32];
    struct stat st;
    snprintf(interpreter, sizeof interpreter, "python%.20s", python->version ? python->version : "3");
    *sentence = '\0';
    if (!program->code && stat(file, &st) < 0)
        snprintf(sentence, sizeof sentence, "program.python.requirements: '%.200s': %s", file, strerror(errno));
    else if (!is_in_path(interpreter))
        snprintf(sentence, sizeof sentence, "program.python.version: this host has no program '%s'", interpreter);
    else if (requirements_kind(file) == REQUIREMENTS_UV_LOCK && !is_in_path("uv"))
        snprintf(
            sentence, sizeof sentence,
            "program.python.requirements: a uv.lock needs the program uv, which is not on this host: install uv, or "
            "name a requirements.txt");
    if (*sentence) {
        char printable[SENTENCE_BYTES];
        utf8_copy_printable(sentence, printable, sizeof printable);
        put_problem(emitter, printable);
    }
}

void program_check(const Trainyard__V1__WorkerCheck *check, struct emitter *emitter, struct program_end *end) {
    const Trainyard__V1__ProgramSpec *program = check->spec ? check->spec->program : NULL;
    if (!program || program->n_command == 0) {
        end->cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
        status_ignore(err_set(&end->why, ST_INTERNAL, "the check names no program"));
        return;
    }
    end->cause = TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
    struct err no_image = { "" };
    const int why = !program->image        ? command_errno(program, search_path(program))
                    : program->image->root ? image_check(check, &no_image)
                                           : 0; /* what the image has is known when it is unpacked */
    if (program->image && !program->image->root)
        image_source_check(check, &no_image);
    char sentence[SENTENCE_BYTES], printable[SENTENCE_BYTES];
    if (*no_image.msg)
        put_problem(emitter, no_image.msg);
    snprintf(sentence, sizeof sentence, "program.command[0]: '%.200s' cannot be executed%s: %s", program->command[0],
             program->image ? " in the image" : "", strerror(why));
    utf8_copy_printable(sentence, printable, sizeof printable);
    if (why)
        put_problem(emitter, printable);
    if (program->python)
        python_check(program, emitter);
}

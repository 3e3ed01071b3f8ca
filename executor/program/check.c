/* A host check of a program looks for the command in PATH, as the rank will: a program that is not there, or that may
 * not be executed, is reported before a slot is taken. */
#include "base/utf8.h"
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
static int command_errno(const char *name, const char *search, bool has_code) {
    int why = ENOENT;
    if (strchr(name, '/') && *name != '/')
        return has_code ? 0 : ENOENT; /* the working directory is the code, which the client has read, or empty */
    if (*name == '/')
        return file_errno(name);
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

void program_check(const Trainyard__V1__WorkerCheck *check, struct emitter *emitter, struct program_end *end) {
    const Trainyard__V1__ProgramSpec *program = check->spec ? check->spec->program : NULL;
    if (!program || program->n_command == 0) {
        end->cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
        status_ignore(err_set(&end->why, ST_INTERNAL, "the check names no program"));
        return;
    }
    end->cause = TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
    const int why = command_errno(program->command[0], search_path(program), program->code != NULL);
    char sentence[SENTENCE_BYTES], printable[SENTENCE_BYTES];
    snprintf(sentence, sizeof sentence, "program.command[0]: '%.200s' cannot be executed: %s", program->command[0],
             strerror(why));
    utf8_copy_printable(sentence, printable, sizeof printable);
    if (why)
        put_problem(emitter, printable);
}

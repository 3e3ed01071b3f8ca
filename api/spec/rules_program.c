/* A program's command, its environment and its ranks. */
#include "api/code/entry.h"
#include "api/spec/rules.h"
#include "api/spec/spec.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 128, MARKER_BYTES = 255, SECRET_NAME_BYTES = 128, RESERVED_BYTES = sizeof "TRAINYARD_" - 1 };

static bool is_variable(const char *name) {
    if (!*name || isdigit((unsigned char)*name))
        return false;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_')
            return false;
    return true;
}

static void check_environment(const Trainyard__V1__ProgramSpec *program, struct spec_problems *p) {
    for (size_t i = 0; i < program->n_environment; i++) {
        const char *name = program->environment[i]->key, *value = program->environment[i]->value;
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "program.environment.%.60s", name);
        if (!is_variable(name))
            problem_add(p, "program.environment: '%.60s' is not letters, digits and '_', the first no digit", name);
        else if (strncmp(name, "TRAINYARD_", RESERVED_BYTES) == 0)
            problem_add(p, "%s: names that begin with TRAINYARD_ are the service's", path);
        else
            rules_argument(value, path, p);
    }
}

bool spec_secret_name(const char *name) { return is_variable(name) && strlen(name) <= SECRET_NAME_BYTES; }

static bool is_in_environment(const Trainyard__V1__ProgramSpec *program, const char *name) {
    for (size_t i = 0; i < program->n_environment; i++)
        if (strcmp(program->environment[i]->key, name) == 0)
            return true;
    return false;
}

/* Whether the secrets exist, only the controller knows. */
static void check_secrets(const Trainyard__V1__ProgramSpec *program, struct spec_problems *p) {
    for (size_t i = 0; i < program->n_secrets; i++) {
        const char *name = program->secrets[i]->key, *secret = program->secrets[i]->value;
        if (!spec_secret_name(name))
            problem_add(p, "program.secrets: '%.60s' is not 1 to 128 letters, digits and '_', the first no digit",
                        name);
        else if (strncmp(name, "TRAINYARD_", RESERVED_BYTES) == 0)
            problem_add(p, "program.secrets.%.60s: names that begin with TRAINYARD_ are the service's", name);
        else if (is_in_environment(program, name))
            problem_add(p, "program.secrets.%.60s: is also in program.environment: a variable has one value", name);
        else if (!spec_secret_name(secret))
            problem_add(p,
                        "program.secrets.%.60s: '%.60s' is not the name of a secret: 1 to 128 letters, digits and "
                        "'_', the first no digit",
                        name, secret);
    }
}

static bool is_commit(const char *text) { return strlen(text) == 40 && strspn(text, "0123456789abcdef") == 40; }

/* scheme://user:password@host */
static bool has_password(const char *url) {
    const char *host = strstr(url, "://");
    const size_t n = host ? strcspn(host + 3, "/@") : 0, colon = host ? strcspn(host + 3, ":/@") : 0;
    return host && host[3 + n] == '@' && colon < n;
}

/* The client replaces a folder by its archive, and adds the archive of a commit, before anything else reads them. */
static void check_code(const Trainyard__V1__CodeSpec *code, struct spec_problems *p) {
    if (code->folder)
        problem_add(p,
                    "program.code.folder: is a folder of the client's machine: `trainyard submit` uploads it and sends "
                    "program.code.archive in its place");
    else if (!code->archive)
        problem_add(p, code->git ? "program.code.git: is fetched by the client: `trainyard submit` adds "
                                   "program.code.archive"
                                 : "program.code: needs a folder, or a commit of git");
    else if (!code_archive_name_good(code->archive))
        problem_add(p, "program.code.archive: is not a SHA-256 in 64 hexadecimal digits");
    if (code->git && code->git->url && has_password(code->git->url))
        problem_add(p, "program.code.git.url: must not contain a password: who may read the job could read it");
    if (code->git && code->git->commit && !is_commit(code->git->commit))
        problem_add(p, "program.code.git.commit: is not the full hash of a commit, which is 40 hexadecimal digits");
}

static bool is_python_version(const char *text) {
    const size_t n = strncmp(text, "3.", 2) == 0 ? strspn(text + 2, "0123456789") : 0;
    return n >= 1 && n <= 2 && !text[2 + n];
}

static void check_python(const Trainyard__V1__ProgramSpec *program, struct spec_problems *p) {
    const Trainyard__V1__PythonSpec *python = program->python;
    const char *file = python->requirements ? python->requirements : "";
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    struct err why;
    if (!program->code && *file != '/')
        problem_add(p,
                    "program.python.requirements: '%.80s' is not an absolute path; a path of the folder needs "
                    "program.code",
                    file);
    else if (program->code && code_name_check(file, &why) != ST_OK)
        problem_add(p, "program.python.requirements: '%.80s' is not the path of a file in the folder of the code",
                    file);
    if (python->version && !is_python_version(python->version))
        problem_add(p, "program.python.version: '%.20s' is not a version such as 3.11", python->version);
    if (python->project && (!program->code || (strcmp(name, "uv.lock") != 0 && strcmp(name, "pyproject.toml") != 0)))
        problem_add(p, "program.python.project: needs program.code, and a uv.lock or pyproject.toml as requirements");
}

/* REGISTRY/NAME@sha256:DIGEST, so that every host and every attempt gets the same files. */
static void check_image_name(const char *name, struct spec_problems *p) {
    static const char DIGEST[] = "@sha256:";
    const char *at = strchr(name, '@');
    const bool digest = at && strncmp(at, DIGEST, sizeof DIGEST - 1) == 0 && strlen(at) == sizeof DIGEST - 1 + 64 &&
                        strspn(at + sizeof DIGEST - 1, "0123456789abcdef") == 64;
    const size_t host = strcspn(name, "/@"), good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                                 "0123456789._-/:");
    if (!digest)
        problem_add(p,
                    "program.image.name: '%.80s' has no digest: add @sha256: and what `skopeo inspect --format "
                    "{{.Digest}} docker://%.80s` prints",
                    name, name);
    else if (name[host] != '/' || host == 0 || name + good != at || *name == '-')
        problem_add(p, "program.image.name: '%.160s' is not REGISTRY/NAME@sha256:DIGEST", name);
}

static void check_image(const Trainyard__V1__ProgramSpec *program, struct spec_problems *p) {
    const Trainyard__V1__ImageSpec *image = program->image;
    if (!!image->root + !!image->name + !!image->archive != 1)
        problem_add(p, "program.image: needs one of root, name and archive");
    if (image->root && *image->root != '/')
        problem_add(p, "program.image.root: '%.80s' is not an absolute path", image->root);
    if (image->archive && *image->archive != '/')
        problem_add(p, "program.image.archive: '%.80s' is not an absolute path", image->archive);
    if (image->name)
        check_image_name(image->name, p);
    if (program->python)
        problem_add(p, "program.python: is built for the files of a host, and program.image replaces them: install the "
                       "packages in the image");
}

/* The marker is a file directly in the checkpoint's folder. */
static void check_checkpoints(const Trainyard__V1__ProgramCheckpoints *checkpoints, struct spec_problems *p) {
    const char *marker = checkpoints->marker;
    if (marker && (!*marker || strchr(marker, '/') || strcmp(marker, ".") == 0 || strcmp(marker, "..") == 0 ||
                   strlen(marker) > MARKER_BYTES))
        problem_add(p, "program.checkpoints.marker: '%.60s' is not the name of a file in the checkpoint's folder",
                    marker);
}

void rules_program(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const Trainyard__V1__ParallelSpec *l = spec->parallel;
    if (spec->program->n_command > 0 && !*spec->program->command[0])
        problem_add(p, "program.command[0]: must not be empty");
    if (rules_field_good(&spec->program->base, "environment"))
        check_environment(spec->program, p);
    if (rules_field_good(&spec->program->base, "secrets"))
        check_secrets(spec->program, p);
    if (*spec->program->tensorboard && *spec->program->tensorboard != '/')
        problem_add(p,
                    "program.tensorboard: '%.80s' is not an absolute path: event files below TRAINYARD_WORK "
                    "are found without it",
                    spec->program->tensorboard);
    if (spec->program->code)
        check_code(spec->program->code, p);
    if (spec->program->python)
        check_python(spec->program, p);
    if (spec->program->image)
        check_image(spec->program, p);
    if (spec->program->checkpoints)
        check_checkpoints(spec->program->checkpoints, p);
    if (l->elastic && rules_field_good(&l->elastic->base, "min") && rules_field_good(&l->elastic->base, "max") &&
        l->elastic->min > l->elastic->max)
        problem_add(p, "parallel.data.min: %d is above parallel.data.max %d", l->elastic->min, l->elastic->max);
    if (l->pipeline != 1 || l->zero != 0 || l->nccl)
        problem_add(p, "parallel.%s: is for a model; a program has parallel.data ranks and divides its work itself",
                    l->pipeline != 1 ? "pipeline"
                    : l->zero != 0   ? "zero"
                                     : "nccl");
}

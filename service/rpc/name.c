#include "service/rpc/name.h"

#include "api/spec/spec.h"
#include "api/spec/sweep.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A positive number without a sign or a leading zero; advances past it. */
static bool number(const char **at, int64_t *ret) {
    if (!isdigit((unsigned char)**at) || **at == '0')
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(*at, &end, 10);
    if (errno != 0)
        return false;
    *at = end;
    *ret = value;
    return true;
}

static bool word(const char **at, const char *text) {
    size_t n = strlen(text);
    if (strncmp(*at, text, n) != 0)
        return false;
    *at += n;
    return true;
}

status_t name_job(const char *name, int64_t *ret_job, struct err *e) {
    const char *at = name;
    int64_t job;
    word(&at, "jobs/");
    if (!number(&at, &job) || *at)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.80s' is not the name of a job, such as jobs/42", name);
    *ret_job = job;
    return ST_OK;
}

status_t name_checkpoint(const char *name, int64_t *ret_job, int64_t *ret_id, struct err *e) {
    const char *at = name;
    int64_t job, id;
    if (!word(&at, "jobs/") || !number(&at, &job) || !word(&at, "/checkpoints/") || !number(&at, &id) || *at)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.80s' is not the name of a checkpoint, such as jobs/42/checkpoints/7",
                       name);
    *ret_job = job;
    *ret_id = id;
    return ST_OK;
}

status_t name_job_or_checkpoint(const char *name, int64_t *ret_job, int64_t *ret_id, struct err *e) {
    if (strstr(name, "/checkpoints/"))
        return name_checkpoint(name, ret_job, ret_id, e);
    *ret_id = 0;
    return name_job(name, ret_job, e);
}

status_t name_executor(const char *name, const char **ret_id, struct err *e) {
    const char *at = name;
    word(&at, "executors/");
    if (!*at || strchr(at, '/'))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.80s' is not the name of an executor, such as executors/host-1",
                       name);
    *ret_id = at;
    return ST_OK;
}

status_t name_queue(const char *name, const char *field, struct err *e) {
    enum { MAX_CHARS = 63 };
    static const char rest[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-";
    const size_t n = strlen(name);
    if (n == 0 || n > MAX_CHARS || !isalnum((unsigned char)*name) || strspn(name, rest) != n)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "%s: '%.80s' is not a name: 1 to %d letters, digits, '.', '_' and '-', the first a letter or a "
                       "digit",
                       field, name, MAX_CHARS);
    return ST_OK;
}

status_t name_fork(const char *name, int64_t *ret_job, int64_t *ret_id, int64_t *ret_step, struct err *e) {
    const char *at = name;
    int64_t job, step;
    *ret_step = -1;
    if (!strchr(name, '@'))
        return name_job_or_checkpoint(name, ret_job, ret_id, e);
    word(&at, "jobs/");
    if (!number(&at, &job) || !word(&at, "@") || !number(&at, &step) || *at)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.80s' is not a job at a step, such as jobs/42@300", name);
    *ret_job = job;
    *ret_id = 0;
    *ret_step = step;
    return ST_OK;
}

/* The same rule as the CHECK constraint of the table of secrets. */
status_t name_secret(const char *name, const char **ret, struct err *e) {
    const char *at = name;
    word(&at, "secrets/");
    if (!spec_secret_name(at))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.80s' is not the name of a secret: 1 to 128 letters, digits and '_', the first no digit",
                       name);
    *ret = at;
    return ST_OK;
}

/* The same rule as the CHECK constraint of the table of tokens. */
status_t name_token(const char *name, const char **ret, struct err *e) {
    const char *at = name;
    word(&at, "tokens/");
    size_t n = strlen(at);
    bool good = n >= 1 && n <= 63 && isalnum((unsigned char)at[0]);
    for (size_t i = 0; good && i < n; i++)
        good = isalnum((unsigned char)at[i]) || strchr("-_.", at[i]);
    if (!good)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.80s' is not the name of a token: 1 to 63 letters, digits, '-', '_' and '.'", name);
    *ret = at;
    return ST_OK;
}

/* The same rule as the CHECK constraint of the table of sweeps. */
status_t name_sweep(const char *name, const char **ret, struct err *e) {
    const char *at = name;
    word(&at, "sweeps/");
    const size_t n = strlen(at);
    bool good = n >= 1 && n <= SWEEP_NAME_CHARS && isalnum((unsigned char)at[0]);
    for (size_t i = 0; good && i < n; i++)
        good = isalnum((unsigned char)at[i]) || strchr("-_.", at[i]);
    if (!good)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%.80s' is not the name of a sweep: 1 to %d letters, digits, '-', '_' and '.'", name,
                       SWEEP_NAME_CHARS);
    *ret = at;
    return ST_OK;
}

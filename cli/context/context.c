#include "cli/context/context.h"

#include "api/codec/message.h"
#include "api/codec/text.h"
#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 1 << 20, NAME_BYTES = 64, OTHERS = 077 };

status_t context_path(char ret[CONTEXT_PATH_BYTES], struct err *e) {
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    const bool own = config && *config == '/';
    if (!own && (!home || *home != '/'))
        return err_set(
            e, ST_FAILED_PRECONDITION,
            "contexts are kept in your home folder, but neither XDG_CONFIG_HOME nor HOME is an absolute path");
    const int n = snprintf(ret, CONTEXT_PATH_BYTES, "%s%s/trainyard/contexts.yaml", own ? config : home,
                           own ? "" : "/.config");
    return n < CONTEXT_PATH_BYTES ? ST_OK
                                  : err_set(e, ST_INVALID_ARGUMENT, "the path of your configuration is too long");
}

static status_t check_owner(int fd, const char *path, struct err *e) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, "stat '%.200s'", path);
    if (st.st_uid != geteuid())
        return err_set(e, ST_PERMISSION_DENIED, "'%.200s' belongs to another user: remove it, and log in again", path);
    if (st.st_mode & OTHERS)
        return err_set(e, ST_PERMISSION_DENIED,
                       "'%.200s' contains tokens and is accessible to other users: run chmod 600 on it", path);
    return ST_OK;
}

static status_t check_contexts(const char *path, const Trainyard__Cli__Contexts *contexts, struct err *e) {
    struct err why;
    for (size_t i = 0; i < contexts->n_contexts; i++) {
        const Trainyard__Cli__Context *x = contexts->contexts[i];
        if (context_name_check(x->name, &why) != ST_OK)
            return err_set(e, ST_INVALID_ARGUMENT, "'%.200s': contexts[%zu].name: %s", path, i, why.msg);
        if (!*x->controller)
            return err_set(e, ST_INVALID_ARGUMENT, "'%.200s': context %s has no controller", path, x->name);
    }
    return ST_OK;
}

/* *ret_text: the content; unchanged if there is no file. */
static status_t read_text(const char *path, struct bytes *ret_text, struct err *e) {
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return ST_OK;
    if (fd < 0)
        return err_errno(e, "open '%.200s'", path);
    TRY(check_owner(fd, path, e));
    return fd_read_file(fd, path, ret_text, e);
}

status_t contexts_read(Trainyard__Cli__Contexts **ret, struct err *e) {
    static const struct codec_options options = { .text_bytes = FILE_BYTES };
    char path[CONTEXT_PATH_BYTES];
    struct err why = { "" };
    CLEANUP(bytes_done) struct bytes text;
    CLEANUP(message_freep) ProtobufCMessage *message = NULL;
    bytes_init(&text, FILE_BYTES);
    TRY(context_path(path, e));
    TRY(read_text(path, &text, e));
    if (codec_parse(&trainyard__cli__contexts__descriptor, text.data ? text.data : "", text.len, &options, &message,
                    &why) != ST_OK)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.200s': %s", path, why.msg);
    TRY(check_contexts(path, (Trainyard__Cli__Contexts *)message, e));
    *ret = (Trainyard__Cli__Contexts *)take_ptr(&message);
    return ST_OK;
}

bool contexts_reachable(void) {
    char path[CONTEXT_PATH_BYTES];
    return context_path(path, NULL) == ST_OK && (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == 0 || errno != EACCES);
}

/* The lock is on a file of its own, because contexts_write replaces the file of the contexts. */
status_t contexts_lock(int *ret_lock, struct err *e) {
    char path[CONTEXT_PATH_BYTES], lock[CONTEXT_PATH_BYTES + sizeof ".lock"];
    TRY(context_path(path, e));
    snprintf(lock, sizeof lock, "%s.lock", path);
    *strrchr(path, '/') = '\0';
    TRY(dir_make(path, 0700, e));
    CLEANUP(closep) int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, "open '%.200s'", lock);
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return err_errno(e, "lock '%.200s'", lock);
    *ret_lock = take_fd(&fd);
    return ST_OK;
}

status_t contexts_write(const Trainyard__Cli__Contexts *contexts, struct err *e) {
    char path[CONTEXT_PATH_BYTES];
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, FILE_BYTES);
    TRY(context_path(path, e));
    TRY(codec_print_yaml(&contexts->base, &text, e));
    return file_write_atomic(path, text.data, text.len, 0600, e);
}

Trainyard__Cli__Context *contexts_find(const Trainyard__Cli__Contexts *contexts, const char *name) {
    for (size_t i = 0; i < contexts->n_contexts; i++)
        if (strcmp(contexts->contexts[i]->name, name) == 0)
            return contexts->contexts[i];
    return NULL;
}

status_t contexts_get(const Trainyard__Cli__Contexts *contexts, const char *name, Trainyard__Cli__Context **ret,
                      struct err *e) {
    char known[400] = "";
    for (size_t i = 0, used = 0; i < contexts->n_contexts && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", contexts->contexts[i]->name);
    *ret = contexts_find(contexts, name);
    if (*ret)
        return ST_OK;
    return contexts->n_contexts
               ? err_set(e, ST_NOT_FOUND, "there is no context '%.64s'; contexts are %s", name, known)
               : err_set(e, ST_NOT_FOUND, "there is no context '%.64s': 'trainyard login' makes one", name);
}

status_t context_name_check(const char *name, struct err *e) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t n = strlen(name);
    if (n > 0 && n <= NAME_BYTES && strspn(name, allowed) == n)
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT,
                   "'%.64s' is no name of a context: up to %d letters, digits, '-', '_' and '.'", name, NAME_BYTES);
}

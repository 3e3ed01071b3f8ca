#include "executor/program/image.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/cluster_mark.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { VARIABLES_MAX = 4 << 20 };

const char IMAGE_PATH[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

static status_t path_open(const char *path, int flags, const struct job_roots_given *given, int *ret, struct err *e) {
    struct job_roots roots;
    job_roots_take(given, &roots);
    status_t st = roots_open(&roots.data, path, O_PATH | flags, ret, e);
    job_roots_done(&roots);
    return st;
}

status_t image_root_open(const Trainyard__V1__ImageSpec *image, const struct job_roots_given *given, int *ret,
                         struct err *e) {
    status_t st = path_open(image->root, O_DIRECTORY, given, ret, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "program.image.root: ");
}

status_t image_archive_open(const Trainyard__V1__ImageSpec *image, const struct job_roots_given *given, int *ret,
                            struct err *e) {
    status_t st = path_open(image->archive, 0, given, ret, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "program.image.archive: ");
}

status_t image_unpacked_open(const char *folder, int *ret, char **ret_variables, struct err *e) {
    char path[PATH_MAX];
    struct bytes text;
    snprintf(path, sizeof path, "%.4000s/root", folder);
    CLEANUP(closep) int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_prefix(e, err_errno(e, "open '%.200s'", path), "program.image: ");
    snprintf(path, sizeof path, "%.4000s/variables", folder);
    bytes_init(&text, VARIABLES_MAX);
    status_t st = file_read(path, &text, e);
    if (st == ST_OK)
        st = bytes_append(&text, "\0", 2, e);
    if (st != ST_OK) {
        bytes_done(&text);
        return err_prefix(e, st, "program.image: ");
    }
    *ret = take_fd(&fd);
    *ret_variables = bytes_take(&text);
    return ST_OK;
}

/* ---- the container ---- */

/* What the command may see of the host's folders: those that the sandbox grants. */
static bool mounts_put(struct container_options *o, const Trainyard__V1__WorkerStart *start, const char *job_folder,
                       const struct scratch *scratch, const struct program_paths *paths) {
    bool all = container_mount(o, scratch->directory, CONTAINER_WRITE) &&
               container_mount(o, paths->code, CONTAINER_READ) && container_mount(o, job_folder, CONTAINER_READ) &&
               container_mount(o, paths->checkpoints, CONTAINER_WRITE) &&
               container_mount(o, paths->resume, CONTAINER_READ);
    for (size_t i = 0; i < start->n_data_roots; i++)
        all &= container_mount(o, start->data_roots[i], CONTAINER_READ);
    for (size_t i = 0; start->sandbox && i < start->sandbox->n_writable_roots; i++)
        all &= container_mount(o, start->sandbox->writable_roots[i], CONTAINER_WRITE);
    return all;
}

status_t image_container_open(const Trainyard__V1__WorkerStart *start, int root, gid_t group,
                              const struct scratch *scratch, const struct program_paths *paths, struct container **ret,
                              struct err *e) {
    char work[PATH_MAX + 8], job_folder[PATH_MAX] = "";
    const char *gpus = getenv("CUDA_VISIBLE_DEVICES"), *libraries = getenv("LD_LIBRARY_PATH");
    *ret = NULL;
    if (!start->attempt->spec->program->image)
        return ST_OK;
    CLEANUP(freep) struct container_options *o = alloc_zeroed(1, sizeof *o);
    snprintf(work, sizeof work, "%s/image", scratch->directory);
    if (*start->attempt->checkpoint_directory &&
        cluster_mark_folder(start->attempt->checkpoint_directory, 1, job_folder, sizeof job_folder, NULL) != ST_OK)
        *job_folder = '\0';
    CLEANUP(closep) int self = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    if (self < 0)
        return err_errno(e, "open '/proc/self/exe'");
    o->root = root;
    o->helper = self;
    o->group = group;
    o->work = work;
    o->temporary = scratch->temporary;
    o->gpus = gpus && *gpus;
    o->gpu_folders = libraries; /* of --library-path */
    if (!mounts_put(o, start, job_folder, scratch, paths))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "program.image: more than %d folders are to be mounted",
                       CONTAINER_MOUNTS);
    status_t st = container_open(o, ret, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "program.image: ");
}

/* ---- the command ---- */

/* Links lead to files of the image, also absolute ones. */
static int file_errno(int root, const char *path) {
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
    struct stat st;
    CLEANUP(closep) int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno;
    if (S_ISDIR(st.st_mode))
        return EISDIR;
    return st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH) ? 0 : EACCES;
}

int image_command_errno(int root, const char *name, const char *search) {
    int why = ENOENT;
    if (*name == '/')
        return file_errno(root, name);
    for (const char *at = search; *at; at += *at == ':') {
        const size_t n = strcspn(at, ":");
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%.*s/%s", (int)n, at, name) < (int)sizeof path) {
            const int found = file_errno(root, path);
            if (found == 0)
                return 0;
            why = found == ENOENT ? why : found;
        }
        at += n;
    }
    return why;
}

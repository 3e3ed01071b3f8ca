/* A command that sees the files of an image in place of those of its host: a root folder, and beside it some folders of
 * the host at their own paths. Everything else stays as it is: processes, network, shared memory, users, control
 * groups. The command is therefore a process like any other, which gets its signals and gives its exit status directly.
 *
 *     CLEANUP(container_closep) struct container *c = NULL;
 *     TRY(container_open(&options, &c, e));         // allocates, makes folders
 *     if (fork() == 0) {
 *         const char *step;
 *         errno = container_enter(c, &step);        // only system calls: safe between fork and exec
 *         ...
 *
 * The process gets a namespace of mounts of its own; without CAP_SYS_ADMIN also one of users, in which its user and
 * group have their own numbers and no other user exists. A helper of container_open makes the namespace of users
 * (users.h). A process that is not dumpable (PR_SET_DUMPABLE) therefore never becomes dumpable, and no other process of
 * its user can read its memory. The root of the process is an overlay, which nobody can write:
 *
 *     points     the folders and files on which something is mounted (made by container_open)
 *     root       the image
 *
 * Mounted are the folders of the caller, the host's /proc and /sys, /dev with the usual files, `temporary` as /tmp, and
 * the host's files of names (/etc/resolv.conf, /etc/hosts). What the image has at these paths is not seen. An image, or
 * a folder to be read, cannot be written either if it lies in one that can, such as the host's /dev/shm. Set-user-ID
 * files and devices of the image have no effect.
 *
 * Linux 5.12 is needed; without CAP_SYS_ADMIN also the right to make namespaces of users. */
#ifndef EXECUTOR_CONTAINER_CONTAINER_H
#define EXECUTOR_CONTAINER_CONTAINER_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { CONTAINER_MOUNTS = 256 };

/* With gpus: the folders of the driver's libraries and programs, for LD_LIBRARY_PATH and PATH. */
#define CONTAINER_GPU_LIBRARIES "/.trainyard/lib"
#define CONTAINER_GPU_PROGRAMS  "/.trainyard/bin"

enum container_access {
    CONTAINER_READ,
    CONTAINER_WRITE,
    CONTAINER_PUBLIC, /* read; it is also one of container_readable */
};

struct container_mount {
    const char *path; /* of the host, absolute; the same in the container. One that does not exist is left out */
    enum container_access access;
};

/* Borrowed until container_open returns. */
struct container_options {
    int root;         /* the image's folder, open (O_PATH); stays open until container_close */
    const char *work; /* an empty folder of the process's user, for the mount points: kept while the command runs */
    const char *temporary; /* a folder that becomes /tmp; folders may be made in it */
    struct container_mount mounts[CONTAINER_MOUNTS];
    size_t n_mounts;
    bool gpus; /* also the device files of NVIDIA's driver and InfiniBand, and the driver's libraries and programs */
    const char *gpu_folders; /* where libraries are searched first, separated by colons; NULL: nowhere */
    int helper;              /* an open program (O_PATH will do) whose main begins with container_helper_run */
    unsigned group;          /* the effective group of the process that enters */
};

/* False: there are too many. A NULL or empty path, and "/", is left out. */
bool container_mount(struct container_options *o, const char *path, enum container_access access);

/* Does what the helper is started for, and returns its exit status. -1: the program was started for something else. */
int container_helper_run(int argc, char **argv);

struct container;
/* FAILED_PRECONDITION, with the sentence of container_failure: no namespace of users can be made. Other errors: of
 * files, and of processes. */
MUST_CHECK status_t container_open(const struct container_options *options, struct container **ret, struct err *e);
struct container *container_close(struct container *c);
CLEANUP_DEFINE(struct container *, container_close)

/* 0, or errno; then *ret_step says what failed, and the process must end. The working directory becomes "/". */
int container_enter(const struct container *c, const char **ret_step);
/* The sentence of such a failure: FAILED_PRECONDITION. */
MUST_CHECK status_t container_failure(const char *step, int why, struct err *e);

/* Why the driver's libraries are not as the host's CDI spec says, or are missing; NULL: neither. */
const char *container_gpu_problem(const struct container *c);

/* The paths in the container that everybody may read, for a sandbox that is entered after it: the image's own files,
 * the host's /proc and /sys, and public mounts, but neither other mounts of the caller nor files of /dev. NULL: there
 * are no more. */
const char *container_readable(const struct container *c, size_t index);

/* Tries in a process of its own whether this host can run commands in this way. as_user: the process that tries is a
 * user without privileges, even if the caller has privileges. helper: the path of the helper's program.
 * FAILED_PRECONDITION: this host cannot; the message has the reason. */
MUST_CHECK status_t container_probe(bool as_user, const char *helper, struct err *e);

#endif

#include "executor/container/container.h"

#include "base/alloc.h"
#include "base/file.h"
#include "executor/container/mounts.h"
#include "executor/container/users.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LAYERS_BYTES = 2 * PATH_MAX };

/* The steps; another one is the target of a mount. */
static const char USERS[] = "a namespace of users", MOUNTS[] = "a namespace of mounts", IMAGE[] = "an overlay",
                  ROOT[] = "a new root";

struct container {
    int users; /* the namespace of users; -1: none is needed */
    int image; /* the image's folder; in the child it becomes one of the new namespace */
    char image_path[PATH_MAX];
    char points[PATH_MAX], root[PATH_MAX];
    char layers[LAYERS_BYTES]; /* options of the overlay */
    struct mounts mounts;
};

bool container_mount(struct container_options *o, const char *path, enum container_access access) {
    if (!path || !*path || strcmp(path, "/") == 0)
        return true;
    if (o->n_mounts == CONTAINER_MOUNTS)
        return false;
    o->mounts[o->n_mounts++] = (struct container_mount){ path, access };
    return true;
}

static bool may_mount(void) {
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct have[_LINUX_CAPABILITY_U32S_3] = { 0 };
    return syscall(SYS_capget, &header, have) == 0 && (have[0].effective & 1u << CAP_SYS_ADMIN);
}

/* A comma ends an option, and a colon a layer. */
static bool layer_add(char layers[LAYERS_BYTES], const char *path) {
    size_t n = strlen(layers);
    for (const char *p = path; *p; p++) {
        if (n + 3 > LAYERS_BYTES)
            return false;
        if (strchr(",:\\", *p))
            layers[n++] = '\\';
        layers[n++] = *p;
    }
    layers[n] = '\0';
    return true;
}

static status_t image_locate(struct container *c, int image, struct err *e) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", image);
    const ssize_t n = readlink(link, c->image_path, sizeof c->image_path - 1);
    if (n < 0)
        return err_errno(e, "find the path of the image");
    c->image = image;
    return ST_OK;
}

static status_t users_make(struct container *c, const struct container_options *options, struct err *e) {
    int why = 0;
    if (may_mount())
        return ST_OK;
    TRY(users_open(options->helper, options->group, &c->users, &why, e));
    return why == 0 ? ST_OK : container_failure(USERS, why, e);
}

status_t container_open(const struct container_options *options, struct container **ret, struct err *e) {
    CLEANUP(container_closep) struct container *c = alloc_zeroed(1, sizeof *c);
    char root[40];
    c->users = -1;
    snprintf(root, sizeof root, ":/proc/self/fd/%d", options->root);
    snprintf(c->layers, sizeof c->layers, "lowerdir=");
    if (snprintf(c->points, sizeof c->points, "%s/points", options->work) >= (int)sizeof c->points ||
        snprintf(c->root, sizeof c->root, "%s/root", options->work) >= (int)sizeof c->root ||
        !layer_add(c->layers, c->points) || strlen(c->layers) + sizeof root > sizeof c->layers)
        return err_set(e, ST_INVALID_ARGUMENT, "the path '%.200s' is too long for a container", options->work);
    memcpy(c->layers + strlen(c->layers), root, strlen(root) + 1);
    TRY(image_locate(c, options->root, e));
    TRY(dir_make(c->points, 0755, e));
    TRY(dir_make(c->root, 0755, e));
    TRY(mounts_make(options, c->points, c->root, &c->mounts, e));
    TRY(users_make(c, options, e));
    *ret = take_ptr(&c);
    return ST_OK;
}

struct container *container_close(struct container *c) {
    if (!c)
        return NULL;
    closep(&c->users);
    mounts_done(&c->mounts);
    free(c);
    return NULL;
}

const char *container_readable(const struct container *c, size_t index) {
    return index < c->mounts.n_readable ? c->mounts.readable[index] : NULL;
}

const char *container_gpu_problem(const struct container *c) {
    return *c->mounts.gpu_problem.msg ? c->mounts.gpu_problem.msg : NULL;
}

/* ---- in the child ---- */

/* mount_setattr(2), which glibc has since 2.36: read-only with all that is mounted below. */
static bool read_only(const char *path) {
    const struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
    return syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attr, sizeof attr) == 0;
}

static bool mount_all(const struct container *c, const char **ret_step) {
    for (size_t i = 0; i < c->mounts.n; i++) {
        const struct mounted *m = &c->mounts.all[i];
        *ret_step = m->target;
        if (mount(m->source, m->at, NULL, MS_BIND | MS_REC, NULL) < 0 || (!m->writable && !read_only(m->at)))
            return false;
    }
    return true;
}

/* An overlay takes only folders of its own namespace of mounts. The path could lead elsewhere by now. */
static bool image_reopen(const struct container *c) {
    struct stat before, now;
    const int fd = open(c->image_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &now) < 0 || fstat(c->image, &before) < 0)
        return false;
    if (now.st_dev != before.st_dev || now.st_ino != before.st_ino) {
        errno = ESTALE;
        return false;
    }
    return dup3(fd, c->image, O_CLOEXEC) == c->image; /* the command must not get it: '..' leads out of the image */
}

static bool enter(const struct container *c, const char **ret_step) {
    *ret_step = USERS;
    if (c->users >= 0 && setns(c->users, CLONE_NEWUSER) < 0)
        return false;
    *ret_step = MOUNTS;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return false;
    *ret_step = IMAGE;
    if (!image_reopen(c) || mount("overlay", c->root, "overlay", MS_RDONLY | MS_NODEV | MS_NOSUID, c->layers) < 0 ||
        !mount_all(c, ret_step))
        return false;
    *ret_step = ROOT;
    return chdir(c->root) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 &&
           chdir("/") == 0;
}

int container_enter(const struct container *c, const char **ret_step) { return enter(c, ret_step) ? 0 : errno; }

status_t container_failure(const char *step, int why, struct err *e) {
    const bool namespace = step == USERS || step == MOUNTS;
    if (namespace && why == ENOSPC)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "a container needs %s, and the kernel's limit is reached (user.max_user_namespaces, "
                       "user.max_mnt_namespaces)",
                       step);
    if (namespace)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "a container needs %s, which this process may not make: %s (kernel.unprivileged_userns_clone, "
                       "AppArmor, or RestrictNamespaces= of the unit)",
                       step, strerror(why));
    if (step == IMAGE || step == ROOT)
        return err_set(e, ST_FAILED_PRECONDITION, "a container needs %s, which the kernel refuses: %s", step,
                       strerror(why));
    return err_set(e, ST_FAILED_PRECONDITION, "'%.200s' cannot be mounted in the container: %s", step, strerror(why));
}

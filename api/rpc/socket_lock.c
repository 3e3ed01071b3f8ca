#include "api/rpc/socket_lock.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOCK_PATH_BYTES = 128 }; /* a socket's path has at most 107 */

/* The former owner removes the file while it holds the lock. A descriptor opened before that locks a file that no
 * longer exists at the path. */
static bool still_there(int fd, const char *path) {
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

status_t socket_lock_take(const char *path, int *ret_fd, struct err *e) {
    char lock[LOCK_PATH_BYTES];
    snprintf(lock, sizeof lock, "%s.lock", path);
    CLEANUP(closep) int fd = -1;
    do {
        closep(&fd);
        fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return err_errno(e, "open '%s'", lock);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
            return errno == EWOULDBLOCK
                       ? err_set(e, ST_ALREADY_EXISTS, "the socket '%s' is in use by another process", path)
                       : err_errno(e, "lock '%s'", lock);
    } while (!still_there(fd, lock));
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
        unlink(lock);
        return err_set(e, ST_FAILED_PRECONDITION, "'%s' exists and is not a socket", path);
    }
    *ret_fd = take_fd(&fd);
    return ST_OK;
}

void socket_lock_give(const char *path, int fd) {
    if (fd < 0)
        return;
    char lock[LOCK_PATH_BYTES];
    snprintf(lock, sizeof lock, "%s.lock", path);
    unlink(path);
    unlink(lock);
    close(fd);
}

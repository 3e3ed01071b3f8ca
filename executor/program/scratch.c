#include "executor/program/scratch.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX       "trainyard-program-"
#define FRESH_PREFIX ".trainyard-program-"
enum { OPEN_FOLDERS = 16 };

static const char *temporary(void) {
    const char *path = getenv("TMPDIR");
    return path && *path == '/' ? path : "/tmp";
}

/* nftw passes no context. */
static struct emitter *reporter;

static void tick(void) {
    if (reporter)
        emitter_progress(reporter);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)at;
    tick();
    if (kind == FTW_DP)
        rmdir(path);
    else
        unlink(path);
    return 0;
}

static int open_up(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)at;
    tick();
    if (kind == FTW_DNR || (kind == FTW_D && (st->st_mode & S_IRWXU) != S_IRWXU))
        chmod(path, S_IRWXU);
    return 0;
}

/* Does not leave the folder: links are removed, and nothing behind them is touched. */
static void remove_folder(const char *path) {
    nftw(path, open_up, OPEN_FOLDERS, FTW_PHYS | FTW_MOUNT);
    nftw(path, remove_entry, OPEN_FOLDERS, FTW_PHYS | FTW_MOUNT | FTW_DEPTH);
}

static int lock_open(const char *directory, int flags) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/lock", directory);
    int fd = open(path, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Folders of ranks that were killed. */
static void remove_stale(void) {
    DIR *d = opendir(temporary());
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char path[PATH_MAX - 64];
        struct stat st;
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0 ||
            snprintf(path, sizeof path, "%s/%s", temporary(), entry->d_name) >= (int)sizeof path ||
            lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
            continue;
        CLEANUP(closep) int lock = lock_open(path, 0);
        if (lock >= 0)
            remove_folder(path);
    }
    if (d)
        closedir(d);
}

status_t scratch_open(struct scratch *s, struct err *e) {
    *s = (struct scratch){ .lock = -1, .fifo = -1 };
    char fresh[sizeof s->directory];
    if (snprintf(fresh, sizeof fresh, "%s/" FRESH_PREFIX "XXXXXX", temporary()) >= (int)sizeof fresh)
        return err_set(e, ST_INVALID_ARGUMENT, "TMPDIR: too long a path");
    if (!mkdtemp(fresh))
        return err_errno(e, "create a folder in '%s'", temporary());
    snprintf(s->directory, sizeof s->directory, "%s/" PREFIX "%s", temporary(), strrchr(fresh, '-') + 1);
    s->lock = lock_open(fresh, O_CREAT);
    if (s->lock < 0 || rename(fresh, s->directory) < 0) {
        status_t st = err_errno(e, "prepare the folder '%s'", fresh);
        remove_folder(fresh);
        *s->directory = '\0';
        closep(&s->lock);
        return st;
    }
    snprintf(s->work, sizeof s->work, "%s/work", s->directory);
    snprintf(s->temporary, sizeof s->temporary, "%s/temporary", s->directory);
    snprintf(s->metrics, sizeof s->metrics, "%s/metrics", s->directory);
    snprintf(s->error_file, sizeof s->error_file, "%s/error.json", s->directory);
    if (mkdir(s->work, 0700) < 0 || mkdir(s->temporary, 0700) < 0 || mkfifo(s->metrics, 0600) < 0 ||
        (s->fifo = open(s->metrics, O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0) {
        status_t st = err_errno(e, "prepare the folder '%s'", s->directory);
        scratch_close(s, NULL);
        return st;
    }
    return ST_OK;
}

void scratch_close(struct scratch *s, struct emitter *emitter) {
    reporter = emitter;
    if (*s->directory)
        remove_folder(s->directory);
    *s->directory = '\0';
    closep(&s->fifo);
    closep(&s->lock);
    remove_stale();
    reporter = NULL;
}

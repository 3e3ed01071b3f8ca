/* Folders are polled, since no notification is sent for a file that another host writes to a shared file system.
 *
 * A scan looks at each known folder. A folder is listed again if its time of modification changed, or is so recent that
 * another change could have the same time. A listing adds subfolders at the end of the list of folders, so that the
 * same scan reaches them. Each event file that a listing finds is remembered by a hash of its path, and opened once.
 *
 * A file is read from an offset that always is the beginning of a record. A record that is larger than the buffer is
 * skipped by its length. After a corrupt record the beginning of the next one is not known: the file is given up. Its
 * descriptor stays open, so that its inode is not used for another file: a file that is renamed is not read twice.
 *
 * Scans that take long, on a slow file system, become rarer: they take a tenth of the time. */
#include "executor/program/tracking/tensorboard_files.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/tfrecord.h"
#include "executor/program/tracking/event_scalars.h"
#include "executor/program/tracking/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = TENSORBOARD_RECORD_BYTES + TFRECORD_FRAME_BYTES,
    RECENT_MS = 3000, /* a folder's time of modification has a resolution of up to two seconds */
    SEEN_FILES = 8192,
    SCAN_SHARE = 10,
    NAME_BYTES = 512,
};

struct folder {
    char *path;
    int depth;
    int64_t modified_ns; /* at its last listing; 0: not listed yet */
    bool recent;
};

struct file {
    char *path, *prefix;
    int fd;
    dev_t device;
    ino_t inode;
    bool given_up;
    uint64_t at;
};

struct tensorboard_files {
    struct points *points;
    struct folder folders[TENSORBOARD_FOLDERS];
    size_t n_folders;
    struct file files[TENSORBOARD_FILES];
    size_t n_files;
    uint64_t seen[SEEN_FILES];
    size_t n_seen;
    char *first; /* the folder of the first event file */
    bool skipping, bounded;
    int64_t others;
    deadline_ms_t scan_at;
    char buffer[BUFFER_BYTES];
};

struct tensorboard_files *tensorboard_files_new(struct points *points) {
    struct tensorboard_files *t = alloc_zeroed(1, sizeof *t);
    t->points = points;
    return t;
}

struct tensorboard_files *tensorboard_files_free(struct tensorboard_files *t) {
    for (size_t i = 0; t && i < t->n_folders; i++)
        free(t->folders[i].path);
    for (size_t i = 0; t && i < t->n_files; i++) {
        free(t->files[i].path);
        free(t->files[i].prefix);
        closep(&t->files[i].fd);
    }
    if (t)
        free(t->first);
    free(t);
    return NULL;
}

static void report_bound(struct tensorboard_files *t, const char *what, int limit) {
    if (!t->bounded)
        points_event(t->points, "tensorboard_limit", "not all event files are read: more than %d %s", limit, what);
    t->bounded = true;
}

/* ---- files ---- */

/* The path of the folder in which the file is, ended at its slash. */
static char *folder_of(const char *path) {
    char *folder = alloc_copy_text(path);
    *strrchr(folder, '/') = '\0';
    return folder;
}

static char *prefix_new(struct tensorboard_files *t, const char *path) {
    CLEANUP(freep) char *folder = folder_of(path);
    if (!t->first)
        t->first = alloc_copy_text(folder);
    const size_t n = strlen(t->first);
    if (strcmp(folder, t->first) == 0)
        return alloc_copy_text("");
    if (strncmp(folder, t->first, n) == 0 && folder[n] == '/')
        return alloc_format("%s/", folder + n + 1);
    return alloc_format("%s/", strrchr(folder, '/') + 1);
}

static bool file_seen(struct tensorboard_files *t, const char *path) {
    const uint64_t hash = hash_text(HASH_BEGIN, path);
    for (size_t i = 0; i < t->n_seen; i++)
        if (t->seen[i] == hash)
            return true;
    if (t->n_seen == SEEN_FILES) {
        report_bound(t, "event files", SEEN_FILES);
        return true;
    }
    t->seen[t->n_seen++] = hash;
    return false;
}

static void file_add(struct tensorboard_files *t, const char *path) {
    if (file_seen(t, path) || t->skipping)
        return;
    if (t->n_files == TENSORBOARD_FILES) {
        report_bound(t, "event files of one rank", TENSORBOARD_FILES);
        return;
    }
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        points_event(t->points, "tensorboard_file", "the event file '%.400s' cannot be read: %s", path,
                     strerror(errno));
        return;
    }
    for (size_t i = 0; i < t->n_files; i++)
        if (t->files[i].device == st.st_dev && t->files[i].inode == st.st_ino)
            return;
    t->files[t->n_files++] = (struct file){ .path = alloc_copy_text(path),
                                            .prefix = prefix_new(t, path),
                                            .fd = take_fd(&fd),
                                            .device = st.st_dev,
                                            .inode = st.st_ino };
}

static void file_give_up(struct tensorboard_files *t, struct file *f, const char *why) {
    points_event(t->points, "tensorboard_file", "the event file '%.400s' is not read any further: %s", f->path, why);
    f->given_up = true;
}

struct target {
    struct tensorboard_files *t;
    const struct file *file;
};

static void scalar_add(void *ctx, const char *tag, int64_t step, double value) {
    const struct target *to = ctx;
    points_add(to->t->points, to->file->prefix, tag, step, value);
}

/* Takes the whole records of the buffer. False: the file has nothing more now, or is given up. */
static bool records_take(struct tensorboard_files *t, struct file *f, size_t n) {
    struct target to = { t, f };
    size_t at = 0;
    for (;;) {
        struct tfrecord record;
        switch (tfrecord_next(t->buffer + at, n - at, TENSORBOARD_RECORD_BYTES, &record)) {
        case TFRECORD_WHOLE:
            if (!event_scalars(record.data, record.n, scalar_add, &to, &t->others)) {
                file_give_up(t, f, "a record is no event");
                return false;
            }
            break;
        case TFRECORD_LARGE:
            t->others++;
            f->at += record.bytes;
            return true;
        case TFRECORD_PARTIAL: return n == BUFFER_BYTES && at > 0;
        case TFRECORD_CORRUPT: file_give_up(t, f, "a record is corrupt"); return false;
        }
        at += (size_t)record.bytes;
        f->at += record.bytes;
    }
}

/* Returns how many bytes were read; 0: nothing more now. */
static size_t file_read_on(struct tensorboard_files *t, struct file *f) {
    struct stat st;
    /* A large record may be skipped before all of it is written. */
    if (f->given_up || fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size <= f->at)
        return 0;
    const ssize_t n = pread(f->fd, t->buffer, sizeof t->buffer, (off_t)f->at);
    if (n < 0) {
        file_give_up(t, f, strerror(errno));
        return 0;
    }
    return records_take(t, f, (size_t)n) ? (size_t)n : 0;
}

/* ---- folders ---- */

static void folder_add(struct tensorboard_files *t, const char *path, int depth) {
    for (size_t i = 0; i < t->n_folders; i++)
        if (strcmp(t->folders[i].path, path) == 0)
            return;
    if (t->n_folders == TENSORBOARD_FOLDERS)
        report_bound(t, "folders", TENSORBOARD_FOLDERS);
    else
        t->folders[t->n_folders++] = (struct folder){ .path = alloc_copy_text(path), .depth = depth };
}

static void entry_take(struct tensorboard_files *t, int folder_fd, const char *folder, int depth,
                       const struct dirent *entry) {
    char path[PATH_MAX];
    unsigned char type = entry->d_type;
    struct stat st;
    if (entry->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
        return;
    if (type == DT_UNKNOWN && fstatat(folder_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_UNKNOWN;
    if (type == DT_DIR && depth < TENSORBOARD_DEPTH)
        folder_add(t, path, depth + 1);
    if (type == DT_REG && strstr(entry->d_name, "tfevents"))
        file_add(t, path);
}

static void folder_list(struct tensorboard_files *t, struct folder *f) {
    const int fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (f->depth > 0 ? O_NOFOLLOW : 0));
    struct stat st;
    if (fd < 0)
        return;
    if (fstat(fd, &st) < 0) {
        close(fd);
        return;
    }
    const int64_t modified_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    const bool recent = clock_wall_us() / 1000 - modified_ns / 1000000 < RECENT_MS;
    DIR *d = modified_ns != f->modified_ns || f->recent ? fdopendir(fd) : NULL;
    if (!d) {
        close(fd);
        return;
    }
    int n = 0;
    for (struct dirent *entry; n < TENSORBOARD_ENTRIES && (entry = readdir(d)); n++)
        entry_take(t, fd, f->path, f->depth, entry);
    if (n == TENSORBOARD_ENTRIES)
        report_bound(t, "entries of a folder", TENSORBOARD_ENTRIES);
    closedir(d);
    f->modified_ns = modified_ns;
    f->recent = recent;
}

static void scan(struct tensorboard_files *t) {
    const int64_t begun_ms = clock_mono_ms();
    for (size_t i = 0; i < t->n_folders; i++)
        folder_list(t, &t->folders[i]);
    t->scan_at = deadline_in((clock_mono_ms() - begun_ms) * SCAN_SHARE);
}

/* ---- for the caller ---- */

void tensorboard_files_watch(struct tensorboard_files *t, const char *folder, bool skip) {
    folder_add(t, folder, 0);
    t->skipping = skip;
    if (skip)
        scan(t);
    t->skipping = false;
}

bool tensorboard_files_read(struct tensorboard_files *t) {
    size_t left = TENSORBOARD_READ_BYTES;
    points_from(t->points, "an event file");
    if (clock_mono_ms() >= t->scan_at)
        scan(t);
    for (size_t i = 0; i < t->n_files; i++)
        for (size_t n; (n = file_read_on(t, &t->files[i])) > 0;) {
            points_flush(t->points);
            if (n >= left)
                return true;
            left -= n;
        }
    points_flush(t->points);
    return false;
}

void tensorboard_files_end(struct tensorboard_files *t, void (*tick)(void *ctx), void *ctx) {
    t->scan_at = 0;
    while (tensorboard_files_read(t))
        tick(ctx);
    if (t->others > 0)
        points_event(t->points, "tensorboard_ignored",
                     "%" PRId64 " values in event files are no scalars (images, histograms, text and the like) and are "
                     "not stored",
                     t->others);
}

/* Folders are polled, since no notification is sent for a file that another host writes to a shared file system.
 *
 * A scan looks at each known folder. A folder is listed again if its time of modification changed, or is so recent
 * that another change could have the same time. A listing adds subfolders at the end of the list of folders, so that
 * the same scan reaches them. Each event file that a listing finds is remembered by a hash of its path, and opened
 * once. Files of earlier runs are found by the first scan. Of those that are older than MARGIN_MS nothing is
 * remembered, since their times tell them apart from new files, whatever their number is.
 *
 * A turn takes SCAN_MS for the scan and READ_MS for files, or a little more. The next turn goes on where it ended.
 *
 * A file is read from an offset that always is the beginning of a record. A record that is larger than the buffer is
 * skipped by its length. After a corrupt record the beginning of the next one is not known: the file is given up. Its
 * descriptor stays open, so that its inode is not used for another file: a file that is renamed is not read twice.
 *
 * Scans that take long, on a slow file system, become rarer: they take a tenth of the time. A file system that does not
 * answer at all stops the thread. */
#include "executor/program/tracking/tensorboard_files.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/tfrecord.h"
#include "executor/program/tracking/hash.h"
#include "tracking/event_scalars.h"

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
    SCAN_MS = 100,
    FIRST_SCAN_MS = 10 * 1000,
    READ_MS = 200,
    END_MS = 60 * 1000,
    MARGIN_MS = 60 * 1000, /* between the clocks of this host and of a file system */
};

struct folder {
    char *path;
    int depth;
    int64_t modified_ns; /* at its last listing; 0: not listed yet */
    bool recent;
    bool earlier; /* may have files of earlier runs */
};

/* A listing that goes on in the next turn. */
struct listing {
    DIR *d; /* NULL: none */
    int n;
    int64_t modified_ns;
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
    void (*tick)(void *ctx);
    void *ctx;
    int64_t earlier_ms; /* older files belong to earlier runs */
    size_t folder;      /* that the scan has reached */
    struct listing listing;
    int64_t scan_ms; /* that this scan has taken so far */
    deadline_ms_t scan_at;
    size_t file; /* that the reading has reached */
    char buffer[BUFFER_BYTES];
};

struct tensorboard_files *tensorboard_files_new(struct points *points, void (*tick)(void *ctx), void *ctx) {
    struct tensorboard_files *t = alloc_zeroed(1, sizeof *t);
    t->points = points;
    t->tick = tick;
    t->ctx = ctx;
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
    if (t) {
        free(t->first);
        if (t->listing.d)
            closedir(t->listing.d);
    }
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

/* When a file was made or last written, whichever is earlier. */
static int64_t file_time_ms(int folder_fd, const char *name) {
    struct statx st;
    if (statx(folder_fd, name, AT_SYMLINK_NOFOLLOW, STATX_MTIME | STATX_BTIME, &st) < 0)
        return INT64_MAX;
    const int64_t written = st.stx_mtime.tv_sec * 1000 + st.stx_mtime.tv_nsec / 1000000;
    const int64_t made = st.stx_btime.tv_sec * 1000 + st.stx_btime.tv_nsec / 1000000;
    return st.stx_mask & STATX_BTIME && made < written ? made : written;
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

static void scalar_add(void *ctx, const char *tag, int64_t step, double wall_time, double value) {
    (void)wall_time;
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

static void folder_add(struct tensorboard_files *t, const char *path, int depth, bool earlier) {
    for (size_t i = 0; i < t->n_folders; i++)
        if (strcmp(t->folders[i].path, path) == 0)
            return;
    if (t->n_folders == TENSORBOARD_FOLDERS)
        report_bound(t, "folders", TENSORBOARD_FOLDERS);
    else
        t->folders[t->n_folders++] = (struct folder){ .path = alloc_copy_text(path),
                                                      .depth = depth,
                                                      .earlier = earlier };
}

static void entry_take(struct tensorboard_files *t, int folder_fd, const struct folder *f, const struct dirent *entry) {
    char path[PATH_MAX];
    unsigned char type = entry->d_type;
    struct stat st;
    if (entry->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", f->path, entry->d_name) >= (int)sizeof path)
        return;
    if (type == DT_UNKNOWN && fstatat(folder_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_UNKNOWN;
    if (type == DT_DIR && f->depth < TENSORBOARD_DEPTH)
        folder_add(t, path, f->depth + 1, f->earlier);
    if (type == DT_REG && strstr(entry->d_name, "tfevents") &&
        !(f->earlier && file_time_ms(folder_fd, entry->d_name) < t->earlier_ms))
        file_add(t, path);
}

/* False: the folder has not changed, or is not there. */
static bool listing_open(const struct folder *f, struct listing *ret) {
    CLEANUP(closep) int fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (f->depth > 0 ? O_NOFOLLOW : 0));
    struct stat st;
    *ret = (struct listing){ .d = NULL };
    if (fd < 0 || fstat(fd, &st) < 0)
        return false;
    ret->modified_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    ret->recent = clock_wall_us() / 1000 - ret->modified_ns / 1000000 < RECENT_MS;
    if (ret->modified_ns == f->modified_ns && !f->recent)
        return false;
    ret->d = fdopendir(fd);
    if (ret->d)
        take_fd(&fd);
    return ret->d != NULL;
}

/* False: the folder has no further entry. */
static bool listing_next(struct tensorboard_files *t, struct folder *f) {
    struct listing *l = &t->listing;
    const struct dirent *entry = l->n < TENSORBOARD_ENTRIES ? readdir(l->d) : NULL;
    if (entry) {
        l->n++;
        entry_take(t, dirfd(l->d), f, entry);
        return true;
    }
    if (l->n == TENSORBOARD_ENTRIES)
        report_bound(t, "entries of a folder", TENSORBOARD_ENTRIES);
    closedir(l->d);
    l->d = NULL;
    f->modified_ns = l->modified_ns;
    f->recent = l->recent;
    return false;
}

/* Scans for `ms`. True: the scan is complete. */
static bool scan(struct tensorboard_files *t, int64_t ms) {
    const int64_t begun_ms = clock_mono_ms();
    int64_t passed_ms = 0;
    for (; t->folder < t->n_folders && passed_ms < ms; passed_ms = clock_mono_ms() - begun_ms) {
        struct folder *f = &t->folders[t->folder];
        if (!(t->listing.d || listing_open(f, &t->listing)) || !listing_next(t, f))
            t->folder++;
        t->tick(t->ctx);
    }
    t->scan_ms += passed_ms;
    if (t->folder < t->n_folders)
        return false;
    t->scan_at = deadline_in(t->scan_ms * SCAN_SHARE);
    t->folder = 0;
    t->scan_ms = 0;
    return true;
}

/* Reads files for READ_MS. True: all were read to their ends. */
static bool files_read(struct tensorboard_files *t) {
    const deadline_ms_t until = deadline_in(READ_MS);
    size_t left = TENSORBOARD_READ_BYTES;
    for (; t->file < t->n_files; t->file++) {
        if (clock_mono_ms() >= until)
            return false;
        for (size_t n; (n = file_read_on(t, &t->files[t->file])) > 0; left -= n) {
            points_flush(t->points);
            t->tick(t->ctx);
            if (n >= left || clock_mono_ms() >= until)
                return false;
        }
    }
    t->file = 0;
    return true;
}

/* ---- for the caller ---- */

/* If the first scan takes too long, files of which it does not know count as earlier ones by their time alone. */
void tensorboard_files_watch(struct tensorboard_files *t, const char *folder, bool skip) {
    const int64_t now_ms = clock_wall_us() / 1000;
    folder_add(t, folder, 0, skip);
    if (!skip)
        return;
    t->earlier_ms = now_ms - MARGIN_MS;
    t->skipping = true;
    if (!scan(t, FIRST_SCAN_MS))
        t->earlier_ms = now_ms;
    t->skipping = false;
}

bool tensorboard_files_read(struct tensorboard_files *t) {
    points_from(t->points, "an event file");
    const bool scanned = clock_mono_ms() < t->scan_at || scan(t, SCAN_MS);
    const bool read = files_read(t);
    points_flush(t->points);
    return !scanned || !read;
}

void tensorboard_files_rescan(struct tensorboard_files *t) { t->scan_at = 0; }

void tensorboard_files_end(struct tensorboard_files *t) {
    const deadline_ms_t until = deadline_in(END_MS);
    bool more;
    while ((more = tensorboard_files_read(t)) && clock_mono_ms() < until)
        continue; /* a scan that began earlier may have passed the last files */
    tensorboard_files_rescan(t);
    while ((more = tensorboard_files_read(t)) && clock_mono_ms() < until)
        continue;
    if (more)
        points_event(t->points, "tensorboard_limit", "not all event files were read to their end within %d s",
                     END_MS / 1000);
    if (t->others > 0)
        points_event(t->points, "tensorboard_ignored",
                     "%" PRId64 " values in event files are no scalars (images, histograms, text and the like) and are "
                     "not stored",
                     t->others);
}

/* A list of the entries whose names are those of checkpoints, in the order in which they were found.
 *
 * With a format by rename, a name alone says that the entry is complete, so that a program that makes a folder under
 * its final name and then fills it must be detected. inotify reports IN_CREATE for it, and IN_MOVED_TO for a rename. An
 * entry that a refresh finds before its event has arrived counts when a later refresh finds it again. Where no events
 * arrive (another host made the entry, or inotify is not available), the second refresh decides alone: there a program
 * that does not rename is not detected, except by a file that changes while it is read.
 *
 * An entry whose step has a manifest is done: it is a snapshot, or a second entry of the same step. */
#include "executor/program/checkpoint_scan.h"

#include "base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { IDLE_MS = 1000, INCOMPLETE_MS = 250, EVENT_BYTES = 16 << 10, TRIES = 20 };

struct entry {
    struct checkpoint_found found;
    bool present;  /* in this refresh */
    bool moved;    /* by a rename that was seen */
    bool in_place; /* made under this name */
    bool reported; /* as misnamed */
    bool done;
    int refreshes; /* that found it */
    int tries;
};

struct checkpoint_scan {
    int folder, events; /* -1: no inotify */
    struct checkpoint_format format;
    int world_size;
    struct entry *entries;
    size_t n;
};

struct checkpoint_scan *checkpoint_scan_open(int folder, const char *path, const struct checkpoint_format *format,
                                             int world_size) {
    struct checkpoint_scan *s = alloc_zeroed(1, sizeof *s);
    *s = (struct checkpoint_scan){ .folder = folder, .format = *format, .world_size = world_size };
    s->events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (s->events >= 0 && inotify_add_watch(s->events, path,
                                            IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CLOSE_WRITE |
                                                IN_ONLYDIR | IN_DONT_FOLLOW) < 0)
        closep(&s->events);
    return s;
}

struct checkpoint_scan *checkpoint_scan_close(struct checkpoint_scan *s) {
    if (!s)
        return NULL;
    closep(&s->events);
    free(s->entries);
    free(s);
    return NULL;
}

/* ---- entries ---- */

/* NULL: the name is not a checkpoint's, or there are too many. */
static struct entry *entry_of(struct checkpoint_scan *s, const char *name) {
    int64_t step;
    if (!s->format.step(name, &step))
        return NULL;
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->entries[i].found.name, name) == 0)
            return &s->entries[i];
    if (s->n == CHECKPOINT_ENTRIES)
        return NULL;
    s->entries = alloc_grow(s->entries, s->n, sizeof *s->entries);
    struct entry *added = &s->entries[s->n++];
    *added = (struct entry){ .found.step = step };
    snprintf(added->found.name, sizeof added->found.name, "%s", name);
    return added;
}

static void on_event(struct checkpoint_scan *s, const struct inotify_event *event) {
    struct entry *entry = event->len ? entry_of(s, event->name) : NULL;
    if (!entry)
        return;
    const struct checkpoint_found found = entry->found;
    if (event->mask & (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE))
        *entry = (struct entry){ .found = found,
                                 .present = (event->mask & (IN_CREATE | IN_MOVED_TO)) != 0,
                                 .moved = (event->mask & IN_MOVED_TO) != 0,
                                 .in_place = (event->mask & IN_CREATE) != 0 };
}

static void read_events(struct checkpoint_scan *s) {
    static __thread char data[EVENT_BYTES] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n;
    while (s->events >= 0 && (n = read(s->events, data, sizeof data)) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const void *)(data + at);
            on_event(s, event);
            at += (ssize_t)(sizeof *event + event->len);
        }
}

static void drop_absent(struct checkpoint_scan *s) {
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->entries[i].present)
            s->entries[kept++] = s->entries[i];
    s->n = kept;
}

void checkpoint_scan_refresh(struct checkpoint_scan *s) {
    const int fd = openat(s->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return; /* a file system that is away for a moment */
    }
    for (size_t i = 0; i < s->n; i++)
        s->entries[i].present = false;
    for (struct dirent *e; (e = readdir(d));) {
        struct entry *entry = entry_of(s, e->d_name);
        if (entry) {
            entry->present = true;
            entry->refreshes++;
        }
    }
    closedir(d);
    drop_absent(s);
    read_events(s); /* after the listing: of what it has found, at least the creation is known */
}

/* ---- wait ---- */

bool checkpoint_scan_incomplete(const struct checkpoint_scan *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->entries[i].done && !s->entries[i].reported)
            return true;
    return false;
}

void checkpoint_scan_wait(struct checkpoint_scan *s, int wake) {
    struct pollfd p[] = { { .fd = wake, .events = POLLIN }, { .fd = s->events, .events = POLLIN } };
    poll(p, 2, checkpoint_scan_incomplete(s) ? INCOMPLETE_MS : IDLE_MS);
}

/* ---- complete ---- */

static bool stored(const struct checkpoint_scan *s, int64_t step) {
    char name[48];
    snprintf(name, sizeof name, "step-%lld.json", (long long)step);
    return faccessat(s->folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool ready(const struct checkpoint_scan *s, const struct entry *entry, bool ended) {
    if (entry->done || !entry->present)
        return false;
    if (s->format.by_rename && (entry->in_place || !(entry->moved || ended || entry->refreshes > 1)))
        return false;
    return checkpoint_format_complete(&s->format, s->folder, entry->found.name, s->world_size);
}

bool checkpoint_scan_next(struct checkpoint_scan *s, bool ended, struct checkpoint_found *ret) {
    for (;;) {
        struct entry *best = NULL;
        for (size_t i = 0; i < s->n; i++) {
            struct entry *entry = &s->entries[i];
            const bool first = !best ||
                               (ended ? entry->found.step > best->found.step : entry->found.step < best->found.step);
            if (first && ready(s, entry, ended))
                best = entry;
        }
        if (!best)
            return false;
        if (!stored(s, best->found.step)) {
            *ret = best->found;
            return true;
        }
        best->done = true;
    }
}

static struct entry *find(struct checkpoint_scan *s, const struct checkpoint_found *found) {
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->entries[i].found.name, found->name) == 0)
            return &s->entries[i];
    return NULL;
}

void checkpoint_scan_done(struct checkpoint_scan *s, const struct checkpoint_found *found) {
    struct entry *entry = find(s, found);
    if (entry)
        entry->done = true;
}

bool checkpoint_scan_try_later(struct checkpoint_scan *s, const struct checkpoint_found *found) {
    struct entry *entry = find(s, found);
    if (entry && ++entry->tries >= TRIES)
        entry->done = true;
    return !entry || !entry->done;
}

bool checkpoint_scan_misnamed(struct checkpoint_scan *s, struct checkpoint_found *ret) {
    for (size_t i = 0; s->format.by_rename && i < s->n; i++) {
        struct entry *entry = &s->entries[i];
        if (!entry->in_place || entry->reported || !entry->present)
            continue;
        entry->reported = true;
        *ret = entry->found;
        return true;
    }
    return false;
}

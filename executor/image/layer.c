/* A layer is read twice. The first pass removes what the layer hides of those below it, and computes the digest; the
 * second one adds the layer's own files, whatever their order in the tar is. Both count entries against what is left of
 * the limits, so that neither decompresses more; what the second one has counted is used up.
 *
 * The folder of each entry is opened by openat2 with the image as root, so that a link such as /bin -> usr/bin leads to
 * the image's folder; folders that are missing are made. The entry itself is then made in the open folder, without
 * following anything. */
#include "executor/image/layer.h"

#include "base/alloc.h"
#include "base/beneath.h"
#include "base/cleanup.h"
#include "base/sha256.h"
#include "executor/image/archive_failure.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { READ_BYTES = 256 << 10, DEPTH_MAX = 128, MODE = 0777 };

static const char WHITEOUT[] = ".wh.", OPAQUE[] = ".wh..wh..opq";

struct layer {
    int file, root;
    struct layer_limits left; /* in this pass */
    struct sha256 sum;
    char buffer[READ_BYTES];
};

/* ---- the tar ---- */

static la_ssize_t on_read(struct archive *a, void *ctx, const void **ret) {
    struct layer *l = ctx;
    const ssize_t n = read(l->file, l->buffer, sizeof l->buffer);
    if (n < 0)
        archive_set_error(a, errno, "read: %s", strerror(errno));
    else
        sha256_update(&l->sum, l->buffer, (size_t)n);
    *ret = l->buffer;
    return n;
}

static status_t refuse(struct archive *a, struct err *e) { return archive_failure(a, "a layer of the image", e); }

/* ---- folders ---- */

static int open_in(int root, const char *path) {
    struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
    return (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof how);
}

/* The folder of that path, which is made. -1 with errno. */
static int folder_open(int root, char *path, int depth) {
    int fd = open_in(root, path);
    char *slash = strrchr(path, '/');
    if (fd >= 0 || errno != ENOENT || depth == DEPTH_MAX || !*path)
        return fd;
    if (slash)
        *slash = '\0';
    CLEANUP(closep) int above = folder_open(root, slash ? path : (char[]){ "" }, depth + 1);
    if (slash)
        *slash = '/';
    if (above < 0 || (mkdirat(above, slash ? slash + 1 : path, 0755) < 0 && errno != EEXIST))
        return -1;
    return open_in(root, path);
}

struct place {
    int folder;
    char path[PATH_MAX]; /* of the entry */
    const char *name;    /* in the folder; points into path. Empty: the root folder */
};

static bool has_dots(const char *path) {
    for (const char *at = path; *at; at += strcspn(at, "/"), at += strspn(at, "/"))
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || !at[2]))
            return true;
    return false;
}

static void place_close(struct place *p) { closep(&p->folder); }

static status_t place_open(const struct layer *l, const char *given, struct place *ret, struct err *e) {
    ret->folder = -1;
    while (given && (strncmp(given, "./", 2) == 0 || *given == '/'))
        given += *given == '/' ? 1 : 2;
    if (!given || strlen(given) >= sizeof ret->path || has_dots(given))
        return err_set(e, ST_INVALID_ARGUMENT, "a layer of the image has an entry with a wrong name");
    snprintf(ret->path, sizeof ret->path, "%s", strcmp(given, ".") == 0 ? "" : given);
    for (size_t n = strlen(ret->path); n > 0 && ret->path[n - 1] == '/';)
        ret->path[--n] = '\0';
    char *slash = strrchr(ret->path, '/');
    ret->name = slash ? slash + 1 : ret->path;
    if (slash)
        *slash = '\0';
    ret->folder = folder_open(l->root, slash ? ret->path : (char[]){ "" }, 0);
    if (slash)
        *slash = '/';
    if (ret->folder >= 0)
        return ST_OK;
    return errno == ENOTDIR || errno == ENOENT || errno == ELOOP || errno == EEXIST
               ? err_set(e, ST_INVALID_ARGUMENT, "a layer of the image has '%.200s', which is in no folder", ret->path)
               : err_errno(e, "open the folder of '%.200s'", ret->path);
}

static status_t entry_remove(int folder, const char *name, struct err *e) {
    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
        return ST_OK;
    return errno == EISDIR || errno == EPERM ? beneath_remove(folder, name, name, e)
                                             : err_errno(e, "remove '%.200s'", name);
}

/* ---- what the layer hides ---- */

static status_t folder_empty(int folder, struct err *e) {
    CLEANUP(closep) int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    status_t st = d ? ST_OK : err_errno(e, "list a folder of the image");
    if (d)
        take_fd(&fd);
    for (struct dirent *entry; st == ST_OK && d && (entry = readdir(d));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            st = entry_remove(folder, entry->d_name, e);
    if (d)
        closedir(d);
    return st;
}

static bool is_whiteout(const char *name) { return strncmp(name, WHITEOUT, sizeof WHITEOUT - 1) == 0; }

static status_t entry_hide(struct layer *l, struct archive *a, struct archive_entry *entry, struct err *e) {
    CLEANUP(place_close) struct place p = { .folder = -1, .name = "" };
    const char *given = archive_entry_pathname(entry), *slash = given ? strrchr(given, '/') : NULL;
    (void)a;
    if (!given || !is_whiteout(slash ? slash + 1 : given))
        return ST_OK;
    TRY(place_open(l, given, &p, e));
    if (strcmp(p.name, OPAQUE) == 0)
        return folder_empty(p.folder, e);
    const char *hidden = p.name + sizeof WHITEOUT - 1;
    if (!*hidden || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0 || is_whiteout(hidden))
        return ST_OK;
    return entry_remove(p.folder, hidden, e);
}

/* ---- what it adds ---- */

static status_t file_add(const struct place *p, struct archive *a, struct archive_entry *entry, struct err *e) {
    const mode_t mode = (archive_entry_perm(entry) & MODE) | S_IRUSR;
    const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = archive_entry_mtime(entry) } };
    CLEANUP(closep)
    int fd = openat(p->folder, p->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return err_errno(e, "make '%.200s' of the image", p->path);
    if (archive_read_data_into_fd(a, fd) != ARCHIVE_OK)
        return refuse(a, e);
    return futimens(fd, times) < 0 ? err_errno(e, "set the time of '%.200s'", p->path) : ST_OK;
}

static status_t folder_add(const struct place *p, struct err *e) {
    struct stat st;
    if (fstatat(p->folder, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return ST_OK; /* its files stay, and all folders get one mode at the end */
    TRY(entry_remove(p->folder, p->name, e));
    return mkdirat(p->folder, p->name, 0755) < 0 ? err_errno(e, "make the folder '%.200s' of the image", p->path)
                                                 : ST_OK;
}

static status_t link_add(const struct layer *l, const struct place *p, const char *target, struct err *e) {
    CLEANUP(place_close) struct place from = { .folder = -1, .name = "" };
    TRY(place_open(l, target, &from, e));
    if (linkat(from.folder, from.name, p->folder, p->name, 0) == 0)
        return ST_OK;
    return errno == ENOENT || errno == EPERM
               ? err_set(e, ST_INVALID_ARGUMENT, "a layer of the image links '%.200s' to a file that is not there",
                         p->path)
               : err_errno(e, "link '%.200s' of the image", p->path);
}

static status_t entry_add(struct layer *l, struct archive *a, struct archive_entry *entry, struct err *e) {
    CLEANUP(place_close) struct place p = { .folder = -1, .name = "" };
    const mode_t type = archive_entry_filetype(entry);
    const char *hard = archive_entry_hardlink(entry), *target = archive_entry_symlink(entry);
    TRY(place_open(l, archive_entry_pathname(entry), &p, e));
    if (!*p.name || is_whiteout(p.name))
        return ST_OK;
    if (type == AE_IFDIR && !hard)
        return folder_add(&p, e);
    if (!hard && type != AE_IFREG && type != AE_IFLNK)
        return ST_OK; /* a device, FIFO or socket */
    TRY(entry_remove(p.folder, p.name, e));
    if (hard)
        return link_add(l, &p, hard, e);
    if (type == AE_IFREG)
        return file_add(&p, a, entry, e);
    return target && *target && symlinkat(target, p.folder, p.name) == 0
               ? ST_OK
               : err_errno(e, "make the link '%.200s' of the image", p.path);
}

/* ---- a pass ---- */

static status_t count(struct layer *l, struct archive_entry *entry, struct err *e) {
    const int64_t size = archive_entry_size(entry); /* a link's too: in some tars the file follows it */
    l->left.files--;
    l->left.bytes -= size > 0 ? size : 0;
    return l->left.files >= 0 && l->left.bytes >= 0
               ? ST_OK
               : err_set(e, ST_RESOURCE_EXHAUSTED,
                         "the image has more files or bytes than the executor keeps "
                         "(--environment-cache-mib)");
}

static status_t entries_walk(struct layer *l, struct archive *a,
                             status_t (*visit)(struct layer *, struct archive *, struct archive_entry *, struct err *),
                             struct err *e) {
    struct archive_entry *entry;
    int got;
    while ((got = archive_read_next_header(a, &entry)) == ARCHIVE_OK || got == ARCHIVE_WARN) {
        TRY(count(l, entry, e));
        TRY(visit(l, a, entry, e));
    }
    return got == ARCHIVE_EOF ? ST_OK : refuse(a, e);
}

static status_t pass(struct layer *l,
                     status_t (*visit)(struct layer *, struct archive *, struct archive_entry *, struct err *),
                     struct err *e) {
    const void *rest;
    sha256_begin(&l->sum);
    struct archive *a = archive_read_new();
    if (!a || lseek(l->file, 0, SEEK_SET) < 0)
        return err_set(e, ST_INTERNAL, "no memory to read a layer of the image");
    archive_read_support_format_tar(a);
    archive_read_support_format_empty(a);
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_zstd(a);
    status_t st = archive_read_open(a, l, NULL, on_read, NULL) == ARCHIVE_OK ? ST_OK : refuse(a, e);
    if (st == ST_OK)
        st = entries_walk(l, a, visit, e);
    while (st == ST_OK && on_read(a, l, &rest) > 0) /* what follows the end of the tar belongs to the digest */
        continue;
    archive_read_free(a);
    return st;
}

status_t layer_apply(int file, const char *digest, int root, struct layer_limits *limits, struct err *e) {
    CLEANUP(freep) struct layer *l = alloc_zeroed(1, sizeof *l);
    uint8_t sum[SHA256_BYTES];
    char found[SHA256_HEX];
    l->file = file;
    l->root = root;
    l->left = *limits;
    TRY(pass(l, entry_hide, e));
    sha256_final(&l->sum, sum);
    sha256_hex(sum, found);
    if (strcmp(found, digest) != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "a layer of the image has another SHA-256 than its manifest says");
    l->left = *limits;
    TRY(pass(l, entry_add, e));
    *limits = l->left;
    return ST_OK;
}

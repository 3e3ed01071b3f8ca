/* libarchive reads the tar format alone, without compression, and writes each entry to the disk. Before that each entry
 * is checked: its type, its name, the target of a link, its size and the sum of the sizes. An entry is then made anew
 * from what was checked, so that nothing else of it (owner, attributes, setuid) can reach the disk.
 *
 * libarchive's own checks are a second guard: it writes nothing through a link, to an absolute path or through "..",
 * and overwrites nothing. Paths are relative to the folder, which is the working directory meanwhile. */
#include "executor/code/unpack.h"

#include "api/code/entry.h"
#include "base/cleanup.h"
#include "base/limits.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 256 << 10, OPEN_FOLDERS = 16 };

struct unpacking {
    struct archive *in, *out;
    struct archive_entry *entry; /* what is written */
    int files;
    int64_t bytes;
};

/* Whether the failure is of this host; any other one is of the archive: it is no tar, two entries have one name, ... */
static bool of_host(int number) {
    static const int numbers[] = { ENOSPC, EDQUOT, EIO, ENOMEM, ENFILE, EMFILE, EACCES, EPERM, EROFS };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (number == numbers[i])
            return true;
    return false;
}

static status_t refuse(const struct unpacking *u, struct err *e) {
    const char *why = archive_error_string(u->in);
    return err_set(e, of_host(archive_errno(u->in)) ? ST_RESOURCE_EXHAUSTED : ST_INVALID_ARGUMENT,
                   "the archive of code cannot be read: %s", why ? why : "it is damaged");
}

static status_t refuse_write(const struct unpacking *u, const char *name, struct err *e) {
    const char *why = archive_error_string(u->out);
    return err_set(e, of_host(archive_errno(u->out)) ? ST_RESOURCE_EXHAUSTED : ST_INVALID_ARGUMENT,
                   "unpack '%.120s' of the code: %s", name, why ? why : "unknown error");
}

static status_t check_entry(struct unpacking *u, struct archive_entry *given, struct err *e) {
    const char *name = archive_entry_pathname(given), *target = archive_entry_symlink(given);
    const bool is_link = archive_entry_filetype(given) == AE_IFLNK;
    if (!name)
        return err_set(e, ST_INVALID_ARGUMENT, "the archive of code has an entry without a name");
    TRY(code_name_check(name, e));
    if (archive_entry_hardlink(given) || (!is_link && archive_entry_filetype(given) != AE_IFREG))
        return err_set(e, ST_INVALID_ARGUMENT, "'%.200s' in the archive of code is neither a file nor a link", name);
    if (is_link)
        TRY(code_link_check(name, target ? target : "", e));
    const int64_t size = is_link ? 0 : archive_entry_size(given);
    if (archive_entry_sparse_count(given) > 0 || size < 0 || size > LIMIT_CODE_BYTES - u->bytes)
        return err_set(e, ST_INVALID_ARGUMENT, "the files of the archive of code have more than %lld MiB",
                       LIMIT_CODE_BYTES >> 20);
    if (++u->files > LIMIT_CODE_FILES)
        return err_set(e, ST_INVALID_ARGUMENT, "the archive of code has more than %d files", LIMIT_CODE_FILES);
    u->bytes += size;
    return ST_OK;
}

static void entry_make(struct unpacking *u, struct archive_entry *given) {
    const bool is_link = archive_entry_filetype(given) == AE_IFLNK;
    archive_entry_clear(u->entry);
    archive_entry_copy_pathname(u->entry, archive_entry_pathname(given));
    archive_entry_set_filetype(u->entry, is_link ? AE_IFLNK : AE_IFREG);
    archive_entry_set_perm(u->entry, is_link ? 0777 : archive_entry_perm(given) & S_IXUSR ? 0555 : 0444);
    if (is_link)
        archive_entry_copy_symlink(u->entry, archive_entry_symlink(given));
    else
        archive_entry_set_size(u->entry, archive_entry_size(given));
}

static status_t copy_bytes(struct unpacking *u, const char *name, struct err *e) {
    static char buffer[READ_BYTES];
    for (;;) {
        const la_ssize_t n = archive_read_data(u->in, buffer, sizeof buffer);
        if (n < 0)
            return refuse(u, e);
        if (n == 0)
            return ST_OK;
        if (archive_write_data(u->out, buffer, (size_t)n) != n)
            return refuse_write(u, name, e);
    }
}

static status_t write_entry(struct unpacking *u, struct archive_entry *given, struct err *e) {
    TRY(check_entry(u, given, e));
    entry_make(u, given);
    const char *name = archive_entry_pathname(u->entry);
    if (archive_write_header(u->out, u->entry) != ARCHIVE_OK)
        return refuse_write(u, name, e);
    if (archive_entry_filetype(u->entry) == AE_IFREG)
        TRY(copy_bytes(u, name, e));
    return archive_write_finish_entry(u->out) == ARCHIVE_OK ? ST_OK : refuse_write(u, name, e);
}

static status_t write_all(struct unpacking *u, int archive, struct err *e) {
    struct archive_entry *given;
    int found;
    if (archive_read_support_format_tar(u->in) != ARCHIVE_OK ||
        archive_read_open_fd(u->in, archive, READ_BYTES) != ARCHIVE_OK)
        return refuse(u, e);
    while ((found = archive_read_next_header(u->in, &given)) == ARCHIVE_OK)
        TRY(write_entry(u, given, e));
    if (found != ARCHIVE_EOF)
        return refuse(u, e);
    if (u->files == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the archive of code has no file");
    return archive_write_close(u->out) == ARCHIVE_OK ? ST_OK : refuse_write(u, "the last file", e);
}

static status_t unpack_here(int archive, struct err *e) {
    struct unpacking u = { archive_read_new(), archive_write_disk_new(), archive_entry_new(), 0, 0 };
    status_t st = u.in && u.out && u.entry ? ST_OK : err_set(e, ST_RESOURCE_EXHAUSTED, "out of memory");
    if (st == ST_OK)
        archive_write_disk_set_options(u.out, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_NO_OVERWRITE |
                                                  ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                                                  ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
    if (st == ST_OK)
        st = write_all(&u, archive, e);
    archive_entry_free(u.entry);
    archive_write_free(u.out);
    archive_read_free(u.in);
    return st;
}

static int close_folder(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)at;
    return kind == FTW_DP && chmod(path, 0555) < 0 ? -1 : 0;
}

status_t code_unpack(int archive, const char *folder, struct err *e) {
    CLEANUP(closep) int before = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const mode_t mask = umask(022);
    if (before < 0 || chdir(folder) < 0) {
        umask(mask);
        return err_set(e, ST_INTERNAL, "enter the folder '%.200s': %s", folder, strerror(errno));
    }
    status_t st = unpack_here(archive, e);
    if (st == ST_OK && nftw(".", close_folder, OPEN_FOLDERS, FTW_PHYS | FTW_MOUNT | FTW_DEPTH) != 0)
        st = err_set(e, ST_INTERNAL, "make the folders of the code read-only: %s", strerror(errno));
    umask(mask);
    if (fchdir(before) < 0 && st == ST_OK)
        st = err_set(e, ST_INTERNAL, "leave the folder '%.200s': %s", folder, strerror(errno));
    return st;
}

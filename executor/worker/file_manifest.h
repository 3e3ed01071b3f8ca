/* The manifest of a program's checkpoint: which files it has, with their sizes and digests.
 *
 *     attempt-2/step-500         the checkpoint: what the program renamed to this name, a folder or a file; or a folder
 *                                with a snapshot of what the program gave another name (hard links)
 *     attempt-2/step-500.json    its manifest, written when every byte was read and durable
 *
 * JSON with a checksum of itself (engine/checkpoint/checksummed.h): format "trainyard-files-1", step, path, and
 * files: [{name, bytes, sha256}]. `path` is what the program loads, relative to the attempt's folder: "step-500",
 * "step-500/checkpoint-500" or "step-500/epoch=0-step=500.ckpt". A file's name is relative to `path`, or "" if `path`
 * is the only file. No name is absolute or has an empty part, "." or "..".
 *
 * A file that the manifest does not list is ignored. Any thread may use a manifest, one at a time. */
#ifndef EXECUTOR_WORKER_FILE_MANIFEST_H
#define EXECUTOR_WORKER_FILE_MANIFEST_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/sha256.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one checkpoint. The JSON of the longest names is smaller than the limit of its size. */
enum { FILE_MANIFEST_FILES = 50000, FILE_MANIFEST_NAME_BYTES = 1024, FILE_MANIFEST_BYTES = 64 << 20 };

struct manifest_file {
    char *name;
    int64_t bytes;
    char sha256[SHA256_HEX];
};

struct file_manifest {
    int64_t step;
    char *path;
    struct manifest_file *files; /* [n], at least one */
    size_t n;
};

struct file_manifest *file_manifest_free(struct file_manifest *m);
CLEANUP_DEFINE(struct file_manifest *, file_manifest_free)

/* Appends a file, whose digest the caller sets. */
struct manifest_file *file_manifest_add(struct file_manifest *m, const char *name, int64_t bytes);
/* The sum of the sizes. */
int64_t file_manifest_bytes(const struct file_manifest *m);

/* INVALID_ARGUMENT: a name is not UTF-8. */
MUST_CHECK status_t file_manifest_write(const struct file_manifest *m, struct bytes *ret, struct err *e);
/* For a text that has passed checksummed_check. Still validates every member: DATA_LOSS. */
MUST_CHECK status_t file_manifest_parse(const char *text, size_t n, struct file_manifest **ret, struct err *e);

/* Writes "NAME.json" in an open folder, durably. ret gets the SHA-256 of the file. path: the folder's name. */
MUST_CHECK status_t file_manifest_store(const struct file_manifest *m, int folder, const char *path, const char *name,
                                        char ret[SHA256_HEX], struct err *e);

/* Called after each MiB, from the thread that reads. False: stop, with CANCELLED. */
struct file_progress {
    bool (*continues)(void *ctx);
    void *ctx;
};

/* SHA-256 of the rest of an open file, and the number of bytes. path: for sentences. */
MUST_CHECK status_t file_digest(int fd, const char *path, const struct file_progress *progress, char ret[SHA256_HEX],
                                int64_t *ret_bytes, struct err *e);

struct roots;

/* Whether a step folder of an attempt is a program's: it has a manifest beside it. */
bool file_manifest_has(const struct roots *roots, const char *directory);

/* Reads the manifest of `directory` alone. Errors: as below. */
MUST_CHECK status_t file_manifest_read(const struct roots *roots, const char *directory, struct file_manifest **ret,
                                       struct err *e);

/* Reads every byte of the checkpoint `directory` (.../attempt-2/step-500) below a root, and compares it with the
 * manifest. *ret: the manifest; NULL: not needed. DATA_LOSS names a file whose bytes are not those that were written.
 * NOT_FOUND and PERMISSION_DENIED: a file cannot be opened or read here; the checkpoint itself may be fine. */
MUST_CHECK status_t file_manifest_verify(const struct roots *roots, const char *directory,
                                         const struct file_progress *progress, struct file_manifest **ret,
                                         struct err *e);

#endif

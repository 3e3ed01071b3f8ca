/* Each format is a row of a table: a rule for names and a rule for completeness.
 *
 * Completeness is seen in the files alone, because inotify reports nothing of what another host writes, and because the
 * end of a killed writer closes its files as well:
 *
 *   a zip archive has its end record, which is written last (zip_end.h)
 *   trainer_state.json ends with the closing brace at the beginning of a line, the only one of a JSON text that Trainer
 *   writes with an indent. (The values may be NaN, which is no JSON, so that it is not parsed.) Rank 0 writes the file
 *   last, but does not wait for the other ranks, which write their random states meanwhile
 *   .metadata of torch.distributed.checkpoint gets its name by a rename, after all ranks have written */
#include "executor/program/checkpoint_format.h"

#include "base/cleanup.h"
#include "executor/program/zip_end.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_DIGITS = 18 };

/* ---- steps ---- */

/* Digits up to `end`, which is a part of the same text. */
static bool number(const char *at, const char *end, int64_t *ret) {
    char digits[STEP_DIGITS + 1];
    const size_t n = (size_t)(end - at);
    if (n == 0 || n > STEP_DIGITS || strspn(at, "0123456789") < n)
        return false;
    memcpy(digits, at, n);
    digits[n] = '\0';
    *ret = strtoll(digits, NULL, 10);
    return true;
}

static bool number_after(const char *prefix, const char *name, int64_t *ret) {
    const size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 && number(name + n, name + strlen(name), ret);
}

static bool step_plain(const char *name, int64_t *ret) { return number_after("step-", name, ret); }
static bool step_hugging_face(const char *name, int64_t *ret) { return number_after("checkpoint-", name, ret); }
static bool step_orbax(const char *name, int64_t *ret) { return number_after("", name, ret); }

static bool has_suffix(const char *name, const char *suffix) {
    const size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

/* "step", one of the separators, and a number, anywhere in a name. separators: "" allows none, too. */
static bool number_in(const char *name, const char *separators, bool optional, int64_t *ret) {
    for (const char *at = name; (at = strstr(at, "step")); at++) {
        const char *digits = at + 4;
        const bool separated = *digits && strchr(separators, *digits);
        digits += separated;
        if ((separated || optional) && number(digits, digits + strspn(digits, "0123456789"), ret))
            return true;
    }
    return false;
}

static bool step_lightning(const char *name, int64_t *ret) {
    return has_suffix(name, ".ckpt") && number_in(name, "=", false, ret);
}

static bool step_torch_save(const char *name, int64_t *ret) {
    return (has_suffix(name, ".pt") || has_suffix(name, ".pth")) && number_in(name, "-_=", true, ret);
}

/* ---- completeness ---- */

static bool open_file(int folder, const char *name, int *ret_fd, int64_t *ret_bytes) {
    struct stat st;
    *ret_fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
    if (*ret_fd < 0 || fstat(*ret_fd, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    *ret_bytes = st.st_size;
    return true;
}

static bool zip_complete(int entry, const char *marker, int world_size) {
    struct stat st;
    (void)marker;
    (void)world_size;
    return fstat(entry, &st) == 0 && zip_is_whole(entry, st.st_size);
}

static bool marker_complete(int entry, const char *marker, int world_size) {
    struct stat st;
    (void)world_size;
    return fstatat(entry, marker, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static bool json_complete(int folder, const char *name) {
    CLEANUP(closep) int fd = -1;
    char first, last[3];
    int64_t bytes = 0;
    return open_file(folder, name, &fd, &bytes) && bytes >= 4 && pread(fd, &first, 1, 0) == 1 && first == '{' &&
           pread(fd, last, sizeof last, bytes - (int)sizeof last) == sizeof last && memcmp(last, "\n}\n", 3) == 0;
}

static bool zip_in(int folder, const char *name) {
    CLEANUP(closep) int fd = -1;
    int64_t bytes = 0;
    return open_file(folder, name, &fd, &bytes) && zip_is_whole(fd, bytes);
}

static bool hugging_face_complete(int entry, const char *marker, int world_size) {
    char name[40];
    (void)marker;
    if (!json_complete(entry, "trainer_state.json"))
        return false;
    const bool states = faccessat(entry, "rng_state_0.pth", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    for (int rank = 0; states && rank < world_size; rank++) {
        snprintf(name, sizeof name, "rng_state_%d.pth", rank);
        if (!zip_in(entry, name))
            return false;
    }
    return true;
}

static const struct checkpoint_format formats[] = {
    { .name = "rename", .by_rename = true, .folder = true, .file = true, .step = step_plain },
    { .name = "hugging_face", .folder = true, .step = step_hugging_face, .complete = hugging_face_complete },
    { .name = "lightning", .file = true, .step = step_lightning, .complete = zip_complete },
    { .name = "dcp", .folder = true, .step = step_plain, .complete = marker_complete, .marker = ".metadata" },
    { .name = "orbax", .by_rename = true, .folder = true, .step = step_orbax },
    { .name = "torch_save", .file = true, .step = step_torch_save, .complete = zip_complete },
};

struct checkpoint_format checkpoint_format_of(const Trainyard__V1__ProgramCheckpoints *spec) {
    struct checkpoint_format ret = formats[0];
    for (size_t i = 0; spec && spec->format && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, spec->format) == 0)
            ret = formats[i];
    if (spec && spec->marker)
        ret = (struct checkpoint_format){
            .name = "marker", .folder = true, .step = step_plain, .complete = marker_complete, .marker = spec->marker
        };
    return ret;
}

bool checkpoint_format_complete(const struct checkpoint_format *f, int folder, const char *name, int world_size) {
    struct stat st;
    CLEANUP(closep) int entry = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
    if (entry < 0 || fstat(entry, &st) < 0 || !(S_ISDIR(st.st_mode) ? f->folder : S_ISREG(st.st_mode) && f->file))
        return false;
    return !f->complete || f->complete(entry, f->marker, world_size);
}

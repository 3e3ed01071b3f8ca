/* A library has several names in one folder: the file, such as libcuda.so.550.54, and links to the file, such as
 * libcuda.so and libcuda.so.1. A program looks for the soname, here libcuda.so.1. The container therefore gets a link
 * for each name that leads to the file on the host. The folder of these links comes first in LD_LIBRARY_PATH. Every
 * loader reads this variable, so the configuration of the image's loader does not matter. A CDI hook would run ldconfig
 * instead, which must write to the image. */
#include "executor/container/gpu_files.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "executor/container/cdi.h"
#include "executor/container/container.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char DRIVER[] = "libcuda.so.1";

static const char *const FOLDERS[] = {
#if defined __aarch64__
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
#else
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
#endif
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/usr/lib/nvidia",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
};
static const char *const LIBRARIES[] = {
    "libcuda",
    "libcudadebugger",
    "libnvidia-ml",
    "libnvidia-ptxjitcompiler",
    "libnvidia-nvvm",
    "libnvidia-gpucomp",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-opencl",
    "libnvcuvid",
    "libnvidia-encode",
    "libnvidia-opticalflow",
    "libnvidia-pkcs11",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-sandboxutils",
    "libnvoptix",
    "libnvidia-rtcore",
};
static const char *const PROGRAM_FOLDERS[] = { "/usr/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib" };
static const char *const PROGRAMS[] = { "nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control" };
static const char *const CDI_FOLDERS[] = { "/var/run/cdi", "/etc/cdi" };

static bool has(const struct gpu_files *f, const char *target) {
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->all[i].target, target) == 0)
            return true;
    return false;
}

static bool has_driver(const struct gpu_files *f) {
    char target[PATH_MAX];
    snprintf(target, sizeof target, "%s/%s", CONTAINER_GPU_LIBRARIES, DRIVER);
    return has(f, target);
}

/* Of two files with one name, the first counts. */
static void add(struct gpu_files *f, const char *real, const char *folder, const char *name) {
    CLEANUP(freep) char *target = alloc_format("%s/%s", folder, name);
    if (f->n == GPU_FILES_MAX || has(f, target))
        return;
    f->all = alloc_grow(f->all, f->n, sizeof *f->all);
    f->all[f->n++] = (struct gpu_file){ alloc_copy_text(real), take_ptr(&target) };
}

/* A driver also has libraries of 32 bits, with the same names. */
static bool is_own_library(const char *path) {
    unsigned char begin[EI_CLASS + 1] = { 0 };
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 && read(fd, begin, sizeof begin) == sizeof begin && memcmp(begin, ELFMAG, SELFMAG) == 0 &&
           begin[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32);
}

/* All names FOLDER/STEM.so*. of: only those of this file; NULL: of all. */
static void add_library(struct gpu_files *f, const char *folder, const char *stem, size_t n_stem, const char *of) {
    CLEANUP(freep) char *pattern = alloc_format("%s/%.*s.so*", folder, (int)n_stem, stem);
    glob_t found = { 0 };
    const int globbed = glob(pattern, 0, NULL, &found);
    for (size_t i = 0; globbed == 0 && i < found.gl_pathc; i++) {
        char real[PATH_MAX];
        if (realpath(found.gl_pathv[i], real) && (!of || strcmp(real, of) == 0) && is_own_library(real))
            add(f, real, CONTAINER_GPU_LIBRARIES, strrchr(found.gl_pathv[i], '/') + 1);
    }
    globfree(&found);
}

static void add_folder(struct gpu_files *f, const char *folder) {
    CLEANUP(freep) char *driver = alloc_format("%s/%s", folder, DRIVER);
    if (access(driver, R_OK) < 0)
        return;
    for (size_t i = 0; i < sizeof LIBRARIES / sizeof *LIBRARIES; i++)
        add_library(f, folder, LIBRARIES[i], strlen(LIBRARIES[i]), NULL);
}

static void add_programs(struct gpu_files *f) {
    for (size_t i = 0; i < sizeof PROGRAM_FOLDERS / sizeof *PROGRAM_FOLDERS; i++)
        for (size_t k = 0; k < sizeof PROGRAMS / sizeof *PROGRAMS; k++) {
            char path[PATH_MAX], real[PATH_MAX];
            snprintf(path, sizeof path, "%s/%s", PROGRAM_FOLDERS[i], PROGRAMS[k]);
            if (access(path, X_OK) == 0 && realpath(path, real))
                add(f, real, CONTAINER_GPU_PROGRAMS, PROGRAMS[k]);
        }
}

/* ---- CDI ---- */

/* A spec also names files for graphics and the driver's sockets; a training program needs neither. */
static void on_mount(void *ctx, const char *path) {
    struct gpu_files *f = ctx;
    char real[PATH_MAX];
    const char *name = strrchr(path, '/') + 1, *end = strstr(name, ".so");
    if (!realpath(path, real))
        return;
    CLEANUP(freep) char *folder = alloc_format("%.*s", (int)(name - 1 - path), path);
    const size_t n = strlen(folder);
    if (strncmp(name, "lib", 3) == 0 && end)
        add_library(f, folder, name, (size_t)(end - name), real);
    else if (n > 4 && strcmp(folder + n - 4, "/bin") == 0)
        add(f, real, CONTAINER_GPU_PROGRAMS, name);
}

static void add_spec(struct gpu_files *f, const char *path) {
    struct bytes text;
    struct err why = { "" };
    bool gpus = false;
    bytes_init(&text, CDI_BYTES_MAX);
    status_t st = file_read(path, &text, &why);
    if (st == ST_OK)
        st = cdi_read((const char *)text.data, text.len, on_mount, f, &gpus, &why);
    bytes_done(&text);
    if (st != ST_OK)
        status_ignore(err_set(&f->problem, st, "'%.200s' is not used: %.300s", path, why.msg));
}

static void add_specs(struct gpu_files *f) {
    for (size_t i = 0; i < sizeof CDI_FOLDERS / sizeof *CDI_FOLDERS && !has_driver(f); i++) {
        CLEANUP(freep) char *pattern = alloc_format("%s/*.{yaml,json}", CDI_FOLDERS[i]);
        glob_t found = { 0 };
        const int globbed = glob(pattern, GLOB_BRACE, NULL, &found);
        for (size_t k = 0; globbed == 0 && k < found.gl_pathc && k < GPU_FILES_MAX; k++)
            add_spec(f, found.gl_pathv[k]);
        globfree(&found);
    }
}

void gpu_files_find(const char *folders, struct gpu_files *ret) {
    CLEANUP(freep) char *list = alloc_copy_text(folders ? folders : "");
    char *rest = NULL;
    *ret = (struct gpu_files){ .problem = { "" } };
    for (char *one = strtok_r(list, ":", &rest); one && !has_driver(ret); one = strtok_r(NULL, ":", &rest))
        add_folder(ret, one);
    if (!has_driver(ret))
        add_specs(ret);
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS && !has_driver(ret); i++)
        add_folder(ret, FOLDERS[i]);
    add_programs(ret);
    if (!has_driver(ret) && !*ret->problem.msg)
        status_ignore(err_set(&ret->problem, ST_NOT_FOUND,
                              "the image gets no libraries of NVIDIA's driver: the host has no %s in the folders of "
                              "--library-path, in a CDI spec, or in a usual folder",
                              DRIVER));
}

void gpu_files_done(struct gpu_files *f) {
    for (size_t i = 0; i < f->n; i++) {
        free(f->all[i].source);
        free(f->all[i].target);
    }
    free(f->all);
    *f = (struct gpu_files){ .problem = { "" } };
}

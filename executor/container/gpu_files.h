/* The files of NVIDIA's driver that a container with a GPU gets from its host, because they must be of the version of
 * the kernel's module: libraries (libcuda.so.1, libnvidia-ml.so.1, ...) and programs (nvidia-smi). Searched are:
 *
 *   1. the folders of the caller
 *   2. specs of the Container Device Interface in /var/run/cdi and /etc/cdi, which also list files at other places
 *   3. the folders in which distributions have the driver
 *
 * The first of these with libcuda.so.1 counts. Private to this folder. */
#ifndef EXECUTOR_CONTAINER_GPU_FILES_H
#define EXECUTOR_CONTAINER_GPU_FILES_H

#include "base/status.h"

#include <stddef.h>

enum { GPU_FILES_MAX = 256 };

struct gpu_file {
    char *source; /* of the host, without links */
    char *target; /* in the container, below CONTAINER_GPU_LIBRARIES or CONTAINER_GPU_PROGRAMS */
};

struct gpu_files {
    struct gpu_file *all;
    size_t n;
    struct err problem; /* why a CDI spec was not used, or that there is no driver; "": none */
};

/* folders: separated by colons; NULL: none. */
void gpu_files_find(const char *folders, struct gpu_files *ret);
void gpu_files_done(struct gpu_files *f);

#endif

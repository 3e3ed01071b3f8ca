#include "executor/worker/job_roots.h"

#include "base/alloc.h"

#include <stdlib.h>

static struct roots roots_of(const char *option, char *const *paths, size_t n, const struct roots_except *except,
                             size_t n_except) {
    return (struct roots){
        .option = option, .paths = (const char *const *)paths, .n = n, .except = except, .n_except = n_except
    };
}

void job_roots_take(const struct job_roots_given *given, struct job_roots *ret) {
    const size_t n = given->n_except;
    struct roots_except *except = alloc_zeroed(n, sizeof *except);
    for (size_t i = 0; i < n; i++)
        except[i] = (struct roots_except){ .path = given->except[i]->path,
                                           .device = given->except[i]->device,
                                           .inode = given->except[i]->inode };
    ret->except = except;
    ret->data = roots_of("--data-root of this executor", given->data, given->n_data, except, n);
    ret->checkpoints = roots_of("--checkpoint-root of this executor", given->checkpoints, given->n_checkpoints, except,
                                n);
    ret->copies = ret->data;
    ret->copy_paths = ret->checkpoint_paths = NULL;
}

/* The paths of the roots, and the folder. */
static const char **add_folder(struct roots *r, const char *folder) {
    const char **paths = alloc_zeroed(r->n + 1, sizeof *paths);
    for (size_t i = 0; i < r->n; i++)
        paths[i] = r->paths[i];
    paths[r->n++] = folder;
    r->paths = paths;
    r->opened = folder;
    return paths;
}

void job_roots_add_checkpoints(struct job_roots *r, const char *folder) {
    if (*folder)
        r->checkpoint_paths = add_folder(&r->checkpoints, folder);
}

void job_roots_add_copies(struct job_roots *r, const char *folder) {
    r->copies = r->data;
    if (*folder)
        r->copy_paths = add_folder(&r->copies, folder);
}

void job_roots_done(struct job_roots *r) {
    free(r->copy_paths);
    free(r->checkpoint_paths);
    free(r->except);
    *r = (struct job_roots){ 0 };
}

/* The files that fill an engine's configuration, part by part. Internal to config.c and its neighbours. */
#ifndef EXECUTOR_WORKER_CONFIG_PARTS_H
#define EXECUTOR_WORKER_CONFIG_PARTS_H

#include "engine/run/engine.h"
#include "executor/worker/config.h"

/* Every path that the configuration points to; freed with it. */
struct config_paths {
    char **all;
    size_t n;
    struct config_judge *judge; /* NULL: the first path that is refused is an error */
    const struct config_copies *copies;
};
void config_paths_done(struct config_paths *p);
/* Memory from malloc that the configuration points to. Returns it. */
void *config_paths_keep(struct config_paths *p, void *owned);

/* config_paths.c: the path behind a file:// URI, or of the copy that a remote URI names, kept in p. Errors begin with
 * the field. NOT_FOUND: it does not exist or cannot be read; PERMISSION_DENIED: it may not be read, or the roots do not
 * admit it; INVALID_ARGUMENT: it is of another kind. */
MUST_CHECK status_t config_path(struct config_paths *p, const char *field, const char *uri, enum member_path kind,
                                const struct roots *roots, const char **ret, struct err *e);
/* The files that URIs name, which may be patterns. */
MUST_CHECK status_t config_path_list(struct config_paths *p, const char *field, char *const *uris, size_t n,
                                     const struct roots *roots, const char *const **ret, int *ret_n, struct err *e);

/* The folder that a URI names, or the files: of a pattern, of a store, or the one file. *ret_folder: "" if it is files,
 * or if the URI is empty. The files are not opened. */
MUST_CHECK status_t config_path_tree(struct config_paths *p, const char *field, const char *uri,
                                     const struct roots *roots, const char **ret_folder, struct member_files *ret,
                                     struct err *e);

/* The place of a spec's word in a list of choices, which ends with NULL. */
MUST_CHECK status_t config_choice(const char *field, const char *word, const char *const *choices, int *ret,
                                  struct err *e);

/* config_members.c, config_train.c: from a resolved spec. */
MUST_CHECK status_t config_optimizer(struct engine_train *t, const Trainyard__V1__OptimizerSpec *optimizer,
                                     struct err *e);
MUST_CHECK status_t config_rate(struct engine_train *t, const Trainyard__V1__ScheduleSpec *schedule, struct err *e);
MUST_CHECK status_t config_model(struct engine_config *c, const Trainyard__V1__ModelSpec *model, struct err *e);
MUST_CHECK status_t config_data(struct engine_config *c, const Trainyard__V1__DataSpec *data, struct config_paths *p,
                                const struct roots *roots, struct err *e);
MUST_CHECK status_t config_train(struct engine_config *c, const Trainyard__V1__TrainSpec *train, struct err *e);
MUST_CHECK status_t config_layout(struct engine_config *c, const Trainyard__V1__ParallelSpec *parallel, struct err *e);

#endif

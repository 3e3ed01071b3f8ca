/* The files that fill an engine's configuration, part by part. Internal to config.c and its neighbours. */
#ifndef EXECUTOR_WORKER_CONFIG_PARTS_H
#define EXECUTOR_WORKER_CONFIG_PARTS_H

#include "executor/engine/run/engine.h"
#include "executor/worker/config.h"

/* Every path that the configuration points to; freed with it. */
struct config_paths {
    char **all;
    size_t n, cap;
};
void config_paths_done(struct config_paths *p);

enum config_path_kind { CONFIG_FILE, CONFIG_FOLDER, CONFIG_FILE_OR_FOLDER };

/* config_paths.c: the path behind a file:// URI, without symbolic links, kept in p. INVALID_ARGUMENT begins with the
 * field: it does not exist, is of another kind, cannot be read, or lies outside of all roots (when there are any). */
MUST_CHECK status_t config_path(struct config_paths *p, const char *field, const char *uri, enum config_path_kind kind,
                                const struct data_roots *roots, const char **ret, struct err *e);
MUST_CHECK status_t config_path_list(struct config_paths *p, const char *field, char *const *uris, size_t n,
                                     const struct data_roots *roots, const char *const **ret, struct err *e);

/* The place of a spec's word in a list of choices, which ends with NULL. */
MUST_CHECK status_t config_choice(const char *field, const char *word, const char *const *choices, int *ret,
                                  struct err *e);

/* config_model.c, config_data.c, config_train.c: from a resolved spec. */
MUST_CHECK status_t config_model(struct engine_config *c, const Trainyard__V1__ModelSpec *model, struct err *e);
MUST_CHECK status_t config_data(struct engine_config *c, const Trainyard__V1__DataSpec *data, struct config_paths *p,
                                const struct data_roots *roots, struct err *e);
MUST_CHECK status_t config_train(struct engine_config *c, const Trainyard__V1__TrainSpec *train, struct err *e);
MUST_CHECK status_t config_layout(struct engine_config *c, const Trainyard__V1__ParallelSpec *parallel, struct err *e);

#endif

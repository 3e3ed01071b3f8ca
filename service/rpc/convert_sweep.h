/* Converts rows of sweeps and trials to messages. Strings are not copied: a message is valid as long as the arena, the
 * store_memory of the row, and the spec. */
#ifndef SERVICE_RPC_CONVERT_SWEEP_H
#define SERVICE_RPC_CONVERT_SWEEP_H

#include "service/rpc/arena.h"
#include "service/store/sweep.h"
#include "service/store/sweep_trial.h"

#include <trainyard/v1/sweep.pb-c.h>

/* spec: the row's, unpacked; NULL: the message gets none. */
Trainyard__V1__Sweep *convert_sweep(struct arena *a, const struct store_sweep *row, Trainyard__V1__SweepSpec *spec);
/* Of a trial without a job: only its number and values. */
Trainyard__V1__Trial *convert_trial_values(struct arena *a, const Trainyard__V1__SweepSpec *spec, int number);
Trainyard__V1__Trial *convert_trial(struct arena *a, const Trainyard__V1__SweepSpec *spec,
                                    const struct store_trial *row);
/* The paths of the parameters: [spec->n_parameters]. */
char **convert_parameters(struct arena *a, const Trainyard__V1__SweepSpec *spec);

#endif

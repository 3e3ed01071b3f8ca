/* The scalars of one event of a TensorBoard event file.
 *
 * A scalar is a simple_value, or a tensor of one float or double that has the plugin "scalars" or no plugin. Pure.
 *
 * data: the n bytes of a record, from outside. False: they are no event. add() gets each scalar, with the event's time
 * in seconds since 1970; *ret_others grows by the number of other values: images, histograms, text. */
#ifndef TRACKING_EVENT_SCALARS_H
#define TRACKING_EVENT_SCALARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void event_scalar_add(void *ctx, const char *tag, int64_t step, double wall_time, double value);

bool event_scalars(const uint8_t *data, size_t n, event_scalar_add *add, void *ctx, int64_t *ret_others);

#endif

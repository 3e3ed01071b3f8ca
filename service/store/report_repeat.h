/* Points of an attempt that repeat a step of an earlier attempt. Internal to the store.
 *
 * If the values differ in any bit, the attempt gets one event not_repeatable, which names the first such point. Two
 * values of NaN are the same if their bits are. The metrics of metric_repeatable.h are compared. A step of which the
 * earlier attempt has several points is repeated by any of their values.
 *
 * The first attempt costs nothing, nor does a later one beyond the steps of the earlier ones. Otherwise one query reads
 * up to 240 earlier points, and a jump costs a search of the index, however long the series is. The last 32 attempts
 * are searched. The number of queries is bounded by that of the points: a metric whose steps go back and forth over a
 * long time may have points that are not compared. */
#ifndef SERVICE_STORE_REPORT_REPEAT_H
#define SERVICE_STORE_REPORT_REPEAT_H

#include "service/store/report_rank.h"

/* Compares the record's points; adds the event if a point differs and the attempt has no such event. The rank must have
 * the series of the record. */
MUST_CHECK status_t report_repeat_check(struct connection *c, struct rank_memory *k, const struct store_record *record,
                                        struct err *e);

#endif

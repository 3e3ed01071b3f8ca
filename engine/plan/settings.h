/* What a spec says of its plan by a word: the values of each setting, once, and the words for them, once: as they stand
 * in the spec, in a checkpoint's layout and in what is printed. WORDS[value] is the word; NULL follows the last. */
#ifndef ENGINE_PLAN_SETTINGS_H
#define ENGINE_PLAN_SETTINGS_H

/* train.reduce: gradients are added over the ranks once a step, or after each round of micro-batches. */
enum plan_reduce { PLAN_REDUCE_STEP, PLAN_REDUCE_MICRO_BATCH };
extern const char *const PLAN_REDUCE_WORDS[];

/* train.recompute, from the one that keeps most to the one that keeps least. AUTO is no plan's: plan_choose makes one
 * of the others of it. */
enum plan_recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_SELECTIVE,
    RECOMPUTE_BLOCK,
    RECOMPUTES,
    RECOMPUTE_AUTO = RECOMPUTES,
};
extern const char *const PLAN_RECOMPUTE_WORDS[];

#endif

/* A device that finds early reads, early frees and missing waits of the engine.
 *
 * kernels_open of "cuda:1" returns a table whose functions compute nothing when they are called. Each one appends a
 * struct call, with a copy of its arguments, to a queue (fake_queue.c). The calls run on the CPU's table when the host
 * waits: finish, an event or a download. Device memory (fake_buffers.c) has access rights only while a call runs, so
 * that any other access ends the process with SIGSEGV.
 *
 * Macros generate the functions: EACH_FUNCTION and EACH_LIST name a function of the table and the types of its
 * parameters, and each name becomes a struct of arguments, a function that fills it, and a function that runs it.
 * Between capture_begin and capture_end calls go to the captured list instead, and each launch appends all of them.
 *
 * The state `shared` is in memory that forked ranks share, so that a test can count the calls of all ranks. */
#include "tests/engine/fake_device.h"

#include "base/alloc.h"
#include "kernels/kernels.h"
#include "kernels/trace.h"
#include "tests/engine/fake_buffers.h"
#include "tests/engine/fake_queue.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SOURCES = 256 };

static const char RECORD[] = "products by algorithm %d\n";

static const struct fake_device_device *device; /* another stand-in's; NULL: this device */

struct fake {
    union {
        struct kernels table;
        char own[FAKE_DEVICE_TABLE_BYTES]; /* space for the fields of another stand-in */
    };
    struct kernels *open;    /* the CPU's table */
    struct fake *fp32;       /* owned; NULL if the precision is fp32 */
    struct fake_queue *line; /* owned by the table that was opened */
};

/* The state of this process and of the processes that it forks. */
static struct shared {
    int launches, finishes, n_sources;
    _Atomic size_t downloaded_elsewhere;
    const void *source[SOURCES];
    enum fake_device_capture capture;
    int algorithm; /* the algorithm that a table would choose now */
    char record[400];
    size_t n_ranges;
    char ranges[FAKE_DEVICE_RANGES];
} * shared;

__attribute__((constructor)) static void shared_new(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
}

static const struct kernels *open_of(const struct kernels *k) { return ((const struct fake *)k)->open; }
static struct fake_queue *line_of(const struct kernels *k) { return ((const struct fake *)k)->line; }

static void *call_new(const struct kernels *k, size_t bytes, status_t (*run)(struct call *, struct err *)) {
    return fake_queue_call(line_of(k), open_of(k), bytes, run);
}

static status_t fake_device_new(const struct kernels *k, size_t bytes, void **ret, struct err *e) {
    TRY(fake_queue_run(line_of(k), NULL, e));
    *ret = device_buffer_new(bytes);
    return ST_OK;
}

static void fake_device_free(const struct kernels *k, void *p) {
    status_ignore(fake_queue_run(line_of(k), NULL, NULL));
    device_buffer_free(p);
}

/* A thread that captures must not allocate or free memory, nor host memory. */
static void captures_not(const struct kernels *k) {
    if (line_of(k)->captures)
        abort();
}

static status_t fake_host_memory_new(const struct kernels *k, size_t bytes, void **ret, struct err *e) {
    captures_not(k);
    return host_buffer_new(open_of(k), bytes,
                           shared->capture == FAKE_DEVICE_PINS_LITTLE ? FAKE_DEVICE_MAX_PINNED : SIZE_MAX, ret, e);
}

static void fake_host_memory_free(const struct kernels *k, void *p) {
    captures_not(k);
    host_buffer_free(open_of(k), p);
}

int fake_device_launches(void) { return shared->launches; }
int fake_device_finishes(void) { return shared->finishes; }
int fake_device_sources(void) { return shared->n_sources; }
size_t fake_device_downloaded_elsewhere(void) { return shared->downloaded_elsewhere; }
const char *fake_device_ranges(void) { return shared->ranges; }
void fake_device_choose(int algorithm) { shared->algorithm = algorithm; }
const char *fake_device_tuning_cache(void) { return shared->record; }

void fake_device_reset(enum fake_device_capture capture) {
    shared->launches = shared->finishes = shared->n_sources = shared->algorithm = 0;
    shared->downloaded_elsewhere = 0;
    shared->n_ranges = 0;
    *shared->ranges = 0;
    shared->capture = capture;
}

static status_t fake_finish(const struct kernels *k, struct err *e) {
    shared->finishes++;
    return fake_queue_run(line_of(k), NULL, e);
}

/* An event points at its newest place in the queue, or is NULL once that place has been reached. */
struct place {
    struct call call;
    const struct call **event;
};

static status_t place_run(struct call *c, struct err *e) {
    const struct place *p = (const struct place *)c;
    (void)e;
    if (*p->event == c)
        *p->event = NULL;
    return ST_OK;
}

static status_t fake_event_new(const struct kernels *k, void **ret, struct err *e) {
    (void)k, (void)e;
    *ret = calloc(1, sizeof(struct call *));
    return *ret ? ST_OK : ST_RESOURCE_EXHAUSTED;
}

static void fake_event_free(const struct kernels *k, void *event) {
    status_ignore(fake_queue_run(line_of(k), NULL, NULL));
    free(event);
}

static status_t fake_event_record(const struct kernels *k, void *event, struct err *e) {
    (void)e;
    captures_not(k);
    struct place *p = call_new(k, sizeof *p, place_run);
    p->event = event;
    *p->event = &p->call;
    return ST_OK;
}

static status_t fake_event_wait(const struct kernels *k, void *event, struct err *e) {
    const struct call *until = *(const struct call **)event;
    return until ? fake_queue_run(line_of(k), until, e) : ST_OK;
}

/* --- uploads ahead -------------------------------------------------------------------------------------------------*/
static void note_source(const void *from) {
    int i = 0;
    while (i < shared->n_sources && shared->source[i] != from)
        i++;
    if (i == SOURCES)
        abort();
    shared->source[i] = from;
    shared->n_sources += i == shared->n_sources;
}

static status_t fake_upload_ahead(const struct kernels *k, void *to, const void *from_host, size_t bytes,
                                  struct err *e) {
    struct fake_queue *l = line_of(k);
    (void)e;
    note_source(from_host);
    fake_queue_upload(l, to, from_host, bytes, shared->capture == FAKE_DEVICE_RELEASES_AT_ONCE ? 0 : l->n_releases);
    return ST_OK;
}

struct order {
    struct call call;
    int64_t number;
};

/* A wait takes no time. */
static status_t await_run(struct call *c, struct err *e) {
    (void)e;
    c->line->clock_ns -= FAKE_DEVICE_CALL_NS;
    if (shared->capture != FAKE_DEVICE_AWAITS_NOTHING)
        fake_queue_run_uploads(c->line, ((const struct order *)c)->number);
    return ST_OK;
}

static status_t release_run(struct call *c, struct err *e) {
    (void)e;
    c->line->clock_ns -= FAKE_DEVICE_CALL_NS;
    c->line->released = ((const struct order *)c)->number;
    fake_queue_run_uploads(c->line, 0);
    return ST_OK;
}

static status_t order_new(const struct kernels *k, status_t (*run)(struct call *, struct err *), int64_t number) {
    captures_not(k);
    struct order *o = call_new(k, sizeof *o, run);
    o->number = number;
    return ST_OK;
}

static status_t fake_ahead_await(const struct kernels *k, struct err *e) {
    (void)e;
    return order_new(k, await_run, ++line_of(k)->n_awaits);
}

static status_t fake_ahead_release(const struct kernels *k, struct err *e) {
    (void)e;
    return order_new(k, release_run, ++line_of(k)->n_releases);
}

/* --- clock and names -----------------------------------------------------------------------------------------------*/
struct timing {
    struct call call;
    struct fake_queue *line;
    int64_t *timer;
};

static status_t timing_run(struct call *c, struct err *e) {
    const struct timing *t = (const struct timing *)c;
    (void)e;
    t->line->clock_ns -= FAKE_DEVICE_CALL_NS; /* reading the clock takes no time */
    *t->timer = t->line->clock_ns;
    return ST_OK;
}

static status_t fake_timer_new(const struct kernels *k, void **ret, struct err *e) {
    (void)k, (void)e;
    *ret = calloc(1, sizeof(int64_t));
    return *ret ? ST_OK : ST_RESOURCE_EXHAUSTED;
}

static void fake_timer_free(const struct kernels *k, void *timer) {
    status_ignore(fake_queue_run(line_of(k), NULL, NULL));
    free(timer);
}

static status_t fake_timer_record(const struct kernels *k, void *timer, struct err *e) {
    if (line_of(k)->captures)
        abort();
    if (shared->capture == FAKE_DEVICE_HAS_NO_CLOCK)
        return err_set(e, ST_INTERNAL, "this device has no clock");
    struct timing *t = call_new(k, sizeof *t, timing_run);
    t->line = line_of(k);
    t->timer = timer;
    return ST_OK;
}

static status_t fake_timer_between(const struct kernels *k, void *from, void *to, int64_t *ret_ns, struct err *e) {
    (void)k, (void)e;
    *ret_ns = *(const int64_t *)to - *(const int64_t *)from;
    return ST_OK;
}

/* A range beyond the limit is left out. */
static void ranges_add(const char *name, char what) {
    const size_t capacity = sizeof shared->ranges - shared->n_ranges;
    const int n = snprintf(shared->ranges + shared->n_ranges, capacity, "%s%c", name, what);
    if ((size_t)n < capacity)
        shared->n_ranges += (size_t)n;
    shared->ranges[shared->n_ranges] = 0;
}

static void fake_range_begin(const struct kernels *k, const char *name) {
    (void)k;
    ranges_add(name, '{');
}

static void fake_range_end(const struct kernels *k) {
    (void)k;
    ranges_add("", '}');
}

const struct kernels_trace *__wrap_kernels_trace(const struct kernels *k);
const struct kernels_trace *__wrap_kernels_trace(const struct kernels *k) {
    return strcmp(k->device, "cuda") == 0 && !device ? fake_trace(shared->capture) : NULL;
}

/* --- capture -------------------------------------------------------------------------------------------------------*/
static status_t fake_capture_begin(const struct kernels *k, struct err *e) {
    struct fake_queue *l = line_of(k);
    if (l->captures)
        abort();
    if (shared->capture == FAKE_DEVICE_REFUSES)
        return err_set(e, ST_INTERNAL, "this device captures nothing");
    l->captures = true;
    l->captured = NULL;
    l->captured_last = &l->captured;
    return ST_OK;
}

struct capture {
    struct call *calls;
};

static status_t fake_capture_end(const struct kernels *k, void **ret, struct err *e) {
    struct fake_queue *l = line_of(k);
    struct capture *c = calloc(1, sizeof *c);
    (void)e;
    if (!c || !l->captures)
        abort();
    l->captures = false;
    c->calls = l->captured;
    *ret = c;
    return ST_OK;
}

struct launched {
    struct call call;
    struct fake_queue *line;
    struct capture *capture;
};

static status_t launched_run(struct call *call, struct err *e) {
    const struct launched *of = (const struct launched *)call;
    (void)e;
    for (struct call *c = of->capture->calls; c; c = c->next)
        call_run(of->line, c);
    return ST_OK;
}

static status_t fake_launch(const struct kernels *k, void *capture, struct err *e) {
    (void)e;
    if (line_of(k)->captures)
        abort();
    struct launched *l = call_new(k, sizeof *l, launched_run);
    l->line = line_of(k);
    l->capture = capture;
    shared->launches++;
    return ST_OK;
}

static void fake_capture_free(const struct kernels *k, void *capture) {
    struct capture *c = capture;
    status_ignore(fake_queue_run(line_of(k), NULL, NULL));
    if (c)
        calls_free(c->calls);
    free(c);
}

/* --- the functions -------------------------------------------------------------------------------------------------*/
/* PARAMETERS(n, types) and ARGUMENTS(n): n typed parameters an .. a1, and their names. */
#define PARAMETERS_1(T)       , T a1
#define PARAMETERS_2(T, ...)  , T a2 PARAMETERS_1(__VA_ARGS__)
#define PARAMETERS_3(T, ...)  , T a3 PARAMETERS_2(__VA_ARGS__)
#define PARAMETERS_4(T, ...)  , T a4 PARAMETERS_3(__VA_ARGS__)
#define PARAMETERS_5(T, ...)  , T a5 PARAMETERS_4(__VA_ARGS__)
#define PARAMETERS_6(T, ...)  , T a6 PARAMETERS_5(__VA_ARGS__)
#define PARAMETERS_7(T, ...)  , T a7 PARAMETERS_6(__VA_ARGS__)
#define PARAMETERS_8(T, ...)  , T a8 PARAMETERS_7(__VA_ARGS__)
#define PARAMETERS_9(T, ...)  , T a9 PARAMETERS_8(__VA_ARGS__)
#define PARAMETERS_10(T, ...) , T a10 PARAMETERS_9(__VA_ARGS__)
#define PARAMETERS_11(T, ...) , T a11 PARAMETERS_10(__VA_ARGS__)
#define PARAMETERS_12(T, ...) , T a12 PARAMETERS_11(__VA_ARGS__)
#define PARAMETERS_13(T, ...) , T a13 PARAMETERS_12(__VA_ARGS__)
#define PARAMETERS_14(T, ...) , T a14 PARAMETERS_13(__VA_ARGS__)
#define PARAMETERS_15(T, ...) , T a15 PARAMETERS_14(__VA_ARGS__)
#define ARGUMENTS_1           , a1
#define ARGUMENTS_2           , a2 ARGUMENTS_1
#define ARGUMENTS_3           , a3 ARGUMENTS_2
#define ARGUMENTS_4           , a4 ARGUMENTS_3
#define ARGUMENTS_5           , a5 ARGUMENTS_4
#define ARGUMENTS_6           , a6 ARGUMENTS_5
#define ARGUMENTS_7           , a7 ARGUMENTS_6
#define ARGUMENTS_8           , a8 ARGUMENTS_7
#define ARGUMENTS_9           , a9 ARGUMENTS_8
#define ARGUMENTS_10          , a10 ARGUMENTS_9
#define ARGUMENTS_11          , a11 ARGUMENTS_10
#define ARGUMENTS_12          , a12 ARGUMENTS_11
#define ARGUMENTS_13          , a13 ARGUMENTS_12
#define ARGUMENTS_14          , a14 ARGUMENTS_13
#define ARGUMENTS_15          , a15 ARGUMENTS_14

/* FIELDS(n, types): the parameters as members. VALUES(n): the members of `a`. KEEP(n, types): copies arguments to `c`.
 */
#define FIELDS_1(T) T a1;
#define FIELDS_2(T, ...)                                                                                               \
    T a2;                                                                                                              \
    FIELDS_1(__VA_ARGS__)
#define FIELDS_3(T, ...)                                                                                               \
    T a3;                                                                                                              \
    FIELDS_2(__VA_ARGS__)
#define FIELDS_4(T, ...)                                                                                               \
    T a4;                                                                                                              \
    FIELDS_3(__VA_ARGS__)
#define FIELDS_5(T, ...)                                                                                               \
    T a5;                                                                                                              \
    FIELDS_4(__VA_ARGS__)
#define FIELDS_6(T, ...)                                                                                               \
    T a6;                                                                                                              \
    FIELDS_5(__VA_ARGS__)
#define FIELDS_7(T, ...)                                                                                               \
    T a7;                                                                                                              \
    FIELDS_6(__VA_ARGS__)
#define FIELDS_8(T, ...)                                                                                               \
    T a8;                                                                                                              \
    FIELDS_7(__VA_ARGS__)
#define FIELDS_9(T, ...)                                                                                               \
    T a9;                                                                                                              \
    FIELDS_8(__VA_ARGS__)
#define FIELDS_10(T, ...)                                                                                              \
    T a10;                                                                                                             \
    FIELDS_9(__VA_ARGS__)
#define FIELDS_11(T, ...)                                                                                              \
    T a11;                                                                                                             \
    FIELDS_10(__VA_ARGS__)
#define FIELDS_12(T, ...)                                                                                              \
    T a12;                                                                                                             \
    FIELDS_11(__VA_ARGS__)
#define FIELDS_13(T, ...)                                                                                              \
    T a13;                                                                                                             \
    FIELDS_12(__VA_ARGS__)
#define FIELDS_14(T, ...)                                                                                              \
    T a14;                                                                                                             \
    FIELDS_13(__VA_ARGS__)
#define FIELDS_15(T, ...)                                                                                              \
    T a15;                                                                                                             \
    FIELDS_14(__VA_ARGS__)
#define VALUES_1        , a->a1
#define VALUES_2        , a->a2 VALUES_1
#define VALUES_3        , a->a3 VALUES_2
#define VALUES_4        , a->a4 VALUES_3
#define VALUES_5        , a->a5 VALUES_4
#define VALUES_6        , a->a6 VALUES_5
#define VALUES_7        , a->a7 VALUES_6
#define VALUES_8        , a->a8 VALUES_7
#define VALUES_9        , a->a9 VALUES_8
#define VALUES_10       , a->a10 VALUES_9
#define VALUES_11       , a->a11 VALUES_10
#define VALUES_12       , a->a12 VALUES_11
#define VALUES_13       , a->a13 VALUES_12
#define VALUES_14       , a->a14 VALUES_13
#define VALUES_15       , a->a15 VALUES_14
#define KEEP_1(T)       KEEP(T, a1)
#define KEEP_2(T, ...)  KEEP(T, a2) KEEP_1(__VA_ARGS__)
#define KEEP_3(T, ...)  KEEP(T, a3) KEEP_2(__VA_ARGS__)
#define KEEP_4(T, ...)  KEEP(T, a4) KEEP_3(__VA_ARGS__)
#define KEEP_5(T, ...)  KEEP(T, a5) KEEP_4(__VA_ARGS__)
#define KEEP_6(T, ...)  KEEP(T, a6) KEEP_5(__VA_ARGS__)
#define KEEP_7(T, ...)  KEEP(T, a7) KEEP_6(__VA_ARGS__)
#define KEEP_8(T, ...)  KEEP(T, a8) KEEP_7(__VA_ARGS__)
#define KEEP_9(T, ...)  KEEP(T, a9) KEEP_8(__VA_ARGS__)
#define KEEP_10(T, ...) KEEP(T, a10) KEEP_9(__VA_ARGS__)
#define KEEP_11(T, ...) KEEP(T, a11) KEEP_10(__VA_ARGS__)
#define KEEP_12(T, ...) KEEP(T, a12) KEEP_11(__VA_ARGS__)
#define KEEP_13(T, ...) KEEP(T, a13) KEEP_12(__VA_ARGS__)
#define KEEP_14(T, ...) KEEP(T, a14) KEEP_13(__VA_ARGS__)
#define KEEP_15(T, ...) KEEP(T, a15) KEEP_14(__VA_ARGS__)

typedef element_t *out_t;
typedef const element_t *in_t;
typedef float *floats_t;
typedef const float *in_floats_t;
typedef const int32_t *tokens_t;
typedef void *room_t;
typedef const struct linear_dims *linear_t;
typedef const struct attention_dims *attention_t;
typedef const struct dropout *dropout_t;
typedef const struct convolution_dims *convolution_t;
typedef const struct batchnorm_dims *batchnorm_t;
typedef const struct update *update_t; /* in device memory */

/* The size of the host memory at which an argument of this type points; 0 for device memory. */
#define HOST_BYTES(T)                                                                                                  \
    _Generic((T)0,                                                                                                     \
             linear_t: sizeof(struct linear_dims),                                                                     \
             attention_t: sizeof(struct attention_dims),                                                               \
             dropout_t: sizeof(struct dropout),                                                                        \
             convolution_t: sizeof(struct convolution_dims),                                                           \
             batchnorm_t: sizeof(struct batchnorm_dims),                                                               \
             const struct adamw *: sizeof(struct adamw),                                                               \
             const struct momentum *: sizeof(struct momentum),                                                         \
             const struct sgd_step *: sizeof(struct sgd_step),                                                         \
             const struct decision_rules *: sizeof(struct decision_rules),                                             \
             default: (size_t)0)
#define KEEP(T, name)                                                                                                  \
    c->name = name;                                                                                                    \
    if (HOST_BYTES(T))                                                                                                 \
        call_hold(&c->call, &c->name, HOST_BYTES(T));

/* F(name, number of parameters between the table and e, their types). */
#define EACH_FUNCTION(F)                                                                                               \
    F(upload, 3, void *, const void *, size_t)                                                                         \
    F(download, 3, void *, const void *, size_t)                                                                       \
    F(upload_elements, 3, out_t, in_floats_t, int64_t)                                                                 \
    F(move, 3, void *, const void *, size_t)                                                                           \
    F(move_rows, 6, void *, size_t, const void *, size_t, size_t, int64_t)                                             \
    F(linear_forward, 6, out_t, out_t, in_t, in_t, in_t, linear_t)                                                     \
    F(linear_backward_bias, 6, floats_t, out_t, in_t, linear_t, bool, room_t)                                          \
    F(linear_backward_input, 5, out_t, in_t, in_t, linear_t, bool)                                                     \
    F(linear_backward_weight, 6, floats_t, in_t, in_t, linear_t, bool, room_t)                                         \
    F(embedding_forward, 8, out_t, tokens_t, in_t, in_t, int64_t, int64_t, int64_t, int64_t)                           \
    F(embedding_backward, 11, floats_t, floats_t, tokens_t, in_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool,   \
      room_t)                                                                                                          \
    F(layernorm_forward, 11, out_t, out_t, floats_t, floats_t, in_t, in_t, in_t, in_t, int64_t, int64_t, float)        \
    F(layernorm_backward, 13, out_t, floats_t, floats_t, in_t, in_t, in_t, in_floats_t, in_floats_t, in_t, int64_t,    \
      int64_t, bool, room_t)                                                                                           \
    F(attention_forward, 6, out_t, floats_t, in_t, attention_t, dropout_t, room_t)                                     \
    F(attention_backward, 8, out_t, in_t, in_t, in_t, in_floats_t, attention_t, dropout_t, room_t)                     \
    F(convolution_forward, 6, out_t, in_t, in_t, in_t, convolution_t, room_t)                                          \
    F(convolution_backward_input, 6, out_t, in_t, in_t, convolution_t, bool, room_t)                                   \
    F(convolution_backward_weight, 6, floats_t, in_t, in_t, convolution_t, bool, room_t)                               \
    F(batchnorm_forward, 9, out_t, floats_t, floats_t, in_t, in_t, in_t, in_t, batchnorm_t, room_t)                    \
    F(batchnorm_apply, 8, out_t, in_t, in_t, in_t, in_t, in_floats_t, in_floats_t, batchnorm_t)                        \
    F(batchnorm_backward, 15, out_t, out_t, floats_t, floats_t, floats_t, floats_t, in_t, in_t, in_t, in_floats_t,     \
      in_floats_t, in_t, batchnorm_t, bool, room_t)                                                                    \
    F(average_pool_forward, 5, out_t, in_t, int64_t, int64_t, int64_t)                                                 \
    F(average_pool_backward, 5, out_t, in_t, int64_t, int64_t, int64_t)                                                \
    F(channels_last, 5, out_t, in_t, int64_t, int64_t, int64_t)                                                        \
    F(cross_entropy, 8, floats_t, out_t, tokens_t, tokens_t, in_floats_t, int64_t, int64_t, in_floats_t)               \
    F(top1, 5, floats_t, in_t, tokens_t, int64_t, int64_t)                                                             \
    F(sum, 3, double *, in_floats_t, int64_t)                                                                          \
    F(sum_rows, 4, double *, in_floats_t, int64_t, int64_t)                                                            \
    F(gelu_erf_forward, 3, out_t, in_t, int64_t)                                                                       \
    F(gelu_erf_backward, 4, out_t, in_t, in_t, int64_t)                                                                \
    F(relu_forward, 3, out_t, in_t, int64_t)                                                                           \
    F(relu_backward, 4, out_t, in_t, in_t, int64_t)                                                                    \
    F(dropout, 5, out_t, in_t, int64_t, int64_t, dropout_t)                                                            \
    F(add, 4, out_t, in_t, in_t, int64_t)                                                                              \
    F(accumulate, 3, floats_t, in_floats_t, int64_t)                                                                   \
    F(exchange, 3, floats_t, floats_t, int64_t)                                                                        \
    F(fill, 3, floats_t, float, int64_t)                                                                               \
    F(copy, 3, out_t, in_t, int64_t)                                                                                   \
    F(convert, 3, out_t, in_floats_t, int64_t)                                                                         \
    F(convert_to_fp32, 3, floats_t, in_t, int64_t)                                                                     \
    F(momentum, 5, floats_t, floats_t, in_floats_t, int64_t, const struct momentum *)                                  \
    F(sgd_step, 5, floats_t, out_t, in_floats_t, int64_t, const struct sgd_step *)                                     \
    F(decide, 6, struct decision *, const double *, int64_t, const double *, int64_t, const struct decision_rules *)   \
    F(normalise, 4, floats_t, int64_t, double, double *)                                                               \
    F(all_finite, 3, bool *, in_floats_t, int64_t)                                                                     \
    F(elements_finite, 3, bool *, in_t, int64_t)

/* F(name, number of parameters, the one that is a list in host memory, the one that is its length, their types). */
#define EACH_LIST(F)                                                                                                   \
    F(adamw, 3, a3, a2, const struct span *, int, const struct adamw *)                                                \
    F(scale_add, 5, a5, a4, const struct span *, int, double, double, update_t)                                        \
    F(running_mean, 5, a5, a4, const struct span *, int, double, int64_t, update_t)                                    \
    F(sum_squares, 2, a2, a1, const struct norm_span *, int)

#define EACH_WORKSPACE(F)                                                                                              \
    F(linear_backward_bias_workspace, 1, linear_t)                                                                     \
    F(linear_backward_weight_workspace, 1, linear_t)                                                                   \
    F(embedding_backward_workspace, 3, int64_t, int64_t, int64_t)                                                      \
    F(layernorm_backward_workspace, 2, int64_t, int64_t)                                                               \
    F(attention_workspace, 1, attention_t)                                                                             \
    F(convolution_workspace, 1, convolution_t)                                                                         \
    F(batchnorm_workspace, 1, batchnorm_t)

/* A captured call would read or write host memory again at each launch, with whatever it then contains. */
static bool reads_host(const char *call) {
    return strcmp(call, "upload") == 0 || strcmp(call, "upload_elements") == 0 || strcmp(call, "download") == 0;
}

#define CALLED(name, n, ...)                                                                                           \
    struct name##_call {                                                                                               \
        struct call call;                                                                                              \
        FIELDS_##n(__VA_ARGS__)                                                                                        \
    };                                                                                                                 \
    static status_t name##_run(struct call *c, struct err *e) {                                                        \
        const struct name##_call *a = (const struct name##_call *)c;                                                   \
        return c->open->name(c->open VALUES_##n, e);                                                                   \
    }                                                                                                                  \
    static struct name##_call *name##_new(const struct kernels *k) {                                                   \
        if (reads_host(#name))                                                                                         \
            captures_not(k);                                                                                           \
        struct name##_call *c = call_new(k, sizeof *c, name##_run);                                                    \
        c->call.called = #name "\"\\\t";                                                                               \
        return c;                                                                                                      \
    }
#define FUNCTION(name, n, ...)                                                                                         \
    CALLED(name, n, __VA_ARGS__)                                                                                       \
    static status_t fake_##name(const struct kernels *k PARAMETERS_##n(__VA_ARGS__), struct err *e) {                  \
        struct name##_call *c = name##_new(k);                                                                         \
        (void)e;                                                                                                       \
        KEEP_##n(__VA_ARGS__) return ST_OK;                                                                            \
    }
#define LIST(name, n, list, count, ...)                                                                                \
    CALLED(name, n, __VA_ARGS__)                                                                                       \
    static status_t fake_##name(const struct kernels *k PARAMETERS_##n(__VA_ARGS__), struct err *e) {                  \
        struct name##_call *c = name##_new(k);                                                                         \
        (void)e;                                                                                                       \
        KEEP_##n(__VA_ARGS__) call_hold(&c->call, &c->list, (size_t)count * sizeof *list);                             \
        return ST_OK;                                                                                                  \
    }
#define WORKSPACE(name, n, ...)                                                                                        \
    static size_t fake_##name(const struct kernels *k PARAMETERS_##n(__VA_ARGS__)) {                                   \
        return open_of(k)->name(open_of(k) ARGUMENTS_##n);                                                             \
    }
#define ENTER(name, ...) .name = fake_##name,

EACH_FUNCTION(FUNCTION)
EACH_LIST(LIST)
EACH_WORKSPACE(WORKSPACE)

static status_t fake_download_noted(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e) {
    const bool held = host_buffer_hold(line_of(k), open_of(k), to);
    shared->downloaded_elsewhere += held ? 0 : bytes; /* ranks that are threads write it too */
    if (held && shared->capture == FAKE_DEVICE_LOSES_ONE && host_buffer_begins_before(to))
        return err_set(e, ST_INTERNAL, "this device lost a download");
    return fake_download(k, to, from, bytes, e);
}

static status_t fake_upload_noted(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e) {
    (void)host_buffer_hold(line_of(k), open_of(k), from);
    return fake_upload(k, to, from, bytes, e);
}

/* --- products by a chosen algorithm --------------------------------------------------------------------------------*/
static status_t fake_linear_forward_chosen(const struct kernels *k, out_t y, out_t pre, in_t x, in_t w, in_t bias,
                                           linear_t d, struct err *e) {
    struct fake_queue *l = line_of(k);
    if (l->algorithm == ALGORITHM_NOT_YET)
        l->algorithm = shared->algorithm;
    TRY(fake_linear_forward(k, y, pre, x, w, bias, d, e));
    return l->algorithm > 0 && k->precision == KERNELS_FP32 && linear_stride(d) == d->out
               ? fake_scale_add(k, &(struct span){ .n = d->rows * d->out, .p = y, .x = y }, 1, 1,
                                0x1p-10 * l->algorithm, NULL, e)
               : ST_OK;
}

static char *fake_tuning_cache(const struct kernels *k) {
    const int algorithm = line_of(k)->algorithm;
    return alloc_format(algorithm == FAKE_DEVICE_NONSENSE ? "nonsense\n"
                        : algorithm == ALGORITHM_NOT_YET  ? ""
                                                          : RECORD,
                        algorithm);
}

static status_t replay(struct fake_queue *l, const char *record, struct err *e) {
    snprintf(shared->record, sizeof shared->record, "%s", record ? record : "");
    return !record || !*record || sscanf(record, RECORD, &l->algorithm) == 1
               ? ST_OK
               : err_set(e, ST_DATA_LOSS, "the run's record: line 1 tells of no algorithm");
}

static struct fake *fake_new(const struct kernels *open, struct fake_queue *line) {
    struct fake *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->table = (struct kernels){ .device = "cuda",
                                 .threads = open->threads,
                                 .precision = open->precision,
                                 .fast = open->fast,
                                 .peak_flops = shared->capture == FAKE_DEVICE_HAS_NO_PEAK ? 0 : FAKE_DEVICE_PEAK,
                                 .deferred = true,
                                 .tuning_cache = fake_tuning_cache,
                                 .finish = fake_finish,
                                 .memory_new = fake_device_new,
                                 .memory_free = fake_device_free,
                                 .host_memory_new = fake_host_memory_new,
                                 .host_memory_free = fake_host_memory_free,
                                 .event_new = fake_event_new,
                                 .event_free = fake_event_free,
                                 .event_record = fake_event_record,
                                 .event_wait = fake_event_wait,
                                 .upload_ahead = fake_upload_ahead,
                                 .ahead_await = fake_ahead_await,
                                 .ahead_release = fake_ahead_release,
                                 .timer_new = fake_timer_new,
                                 .timer_free = fake_timer_free,
                                 .timer_record = fake_timer_record,
                                 .timer_between = fake_timer_between,
                                 .range_begin = fake_range_begin,
                                 .range_end = fake_range_end,
                                 .capture_begin = fake_capture_begin,
                                 .capture_end = fake_capture_end,
                                 .launch = fake_launch,
                                 .capture_free = fake_capture_free,
                                 EACH_FUNCTION(ENTER) EACH_LIST(ENTER) EACH_WORKSPACE(ENTER) };
    s->table.linear_forward = fake_linear_forward_chosen;
    s->table.download = fake_download_noted;
    s->table.upload = fake_upload_noted;
    s->open = (struct kernels *)open;
    s->line = line;
    s->table.fp32 = &s->table;
    if (open->fp32 != open) {
        s->fp32 = fake_new(open->fp32, line);
        s->table.fp32 = &s->fp32->table;
    }
    return s;
}

/* --- on another stand-in's device ----------------------------------------------------------------------------------
 */
void fake_device_runs_on(const struct fake_device_device *of) { device = of; }

void *fake_device_take_calls(const struct kernels *k) {
    struct fake_queue *l = line_of(k);
    struct call *calls = l->first;
    l->first = NULL;
    l->last = &l->first;
    return calls;
}

void fake_device_run_calls(void *calls) {
    const struct fake_queue *l = ((const struct call *)calls)->line;
    for (struct call *c = calls; c; c = c->next)
        call_run(c->line, c);
    calls_free(calls);
    if (l->status == ST_OK)
        return;
    fprintf(stderr, "a call that ran later: %s\n", l->error.msg);
    abort();
}

/* --- wrapped functions of kernels/ ---------------------------------------------------------------------------------
 */
status_t __real_kernels_open(const struct kernels_config *config, struct kernels **ret, struct err *e);
struct kernels *__real_kernels_close(struct kernels *k);
void __real_kernels_numerics_id(const struct kernels *k, char *buf, size_t n);
status_t __wrap_kernels_open(const struct kernels_config *config, struct kernels **ret, struct err *e);
struct kernels *__wrap_kernels_close(struct kernels *k);
void __wrap_kernels_numerics_id(const struct kernels *k, char *buf, size_t n);

static bool is_shut(const struct kernels *k) { return k && strcmp(k->device, "cuda") == 0; }

status_t __wrap_kernels_open(const struct kernels_config *config, struct kernels **ret, struct err *e) {
    struct kernels_config c = *config;
    struct kernels *open = NULL;
    if (strcmp(c.device, "cuda") != 0)
        return __real_kernels_open(config, ret, e);
    if (c.ordinal != FAKE_DEVICE_ORDINAL && !device)
        return err_set(e, ST_INVALID_ARGUMENT, "device %d is not the one", c.ordinal);
    c.device = "cpu";
    signal(SIGSEGV, SIG_DFL); /* no later test can run */
    TRY(__real_kernels_open(&c, &open, e));
    struct fake *s = fake_new(open, fake_queue_new(device_buffers_allow, host_buffer_has));
    *ret = &s->table;
    if (device) {
        device->open(*ret);
        return ST_OK;
    }
    const status_t st = replay(line_of(*ret), config->tuning_cache, e);
    if (st != ST_OK)
        *ret = __wrap_kernels_close(*ret);
    return st;
}

struct kernels *__wrap_kernels_close(struct kernels *k) {
    if (!is_shut(k))
        return __real_kernels_close(k);
    struct fake *s = (struct fake *)k;
    if (device)
        device->close(k);
    status_ignore(fake_queue_run(s->line, NULL, NULL));
    free(s->line);
    __real_kernels_close(s->open);
    free(s->fp32);
    free(s);
    return NULL;
}

void __wrap_kernels_numerics_id(const struct kernels *k, char *buf, size_t n) {
    __real_kernels_numerics_id(is_shut(k) ? open_of(k) : k, buf, n);
}

#include "tests/engine/shut_memory.h"

#include "kernels/kernels.h"
#include "kernels/trace.h"
#include "tests/engine/shut_line.h"
#include "tests/engine/shut_rooms.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SOURCES = 256 };

static const char RECORD[] = "products by algorithm %d\n";

static const struct shut_memory_device *device; /* NULL: this one */

struct shut {
    union {
        struct kernels table;
        char room[SHUT_MEMORY_TABLE_BYTES]; /* of a device's own */
    };
    struct kernels *open; /* the CPU's */
    struct shut *fp32;    /* owned; NULL where the precision is fp32 */
    struct line *line;    /* owned by the table that was opened */
};

/* Of this process and those that it forks. */
static struct shared {
    int launches, finishes, n_sources;
    _Atomic size_t downloaded_elsewhere;
    const void *source[SOURCES];
    enum shut_memory_capture capture;
    int algorithm; /* that would be chosen now */
    char record[400];
    size_t n_ranges;
    char ranges[SHUT_MEMORY_RANGES];
} * shared;

__attribute__((constructor)) static void shared_new(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
}

static const struct kernels *open_of(const struct kernels *k) { return ((const struct shut *)k)->open; }
static struct line *line_of(const struct kernels *k) { return ((const struct shut *)k)->line; }

static void *call_new(const struct kernels *k, size_t bytes, status_t (*run)(struct call *, struct err *)) {
    return line_call(line_of(k), open_of(k), bytes, run);
}

static status_t shut_memory_new(const struct kernels *k, size_t bytes, void **ret, struct err *e) {
    TRY(line_run(line_of(k), NULL, e));
    *ret = room_new(bytes);
    return ST_OK;
}

static void shut_memory_free(const struct kernels *k, void *p) {
    status_ignore(line_run(line_of(k), NULL, NULL));
    room_free(p);
}

/* A thread that captures reserves and frees nothing, of the host's either. */
static void captures_not(const struct kernels *k) {
    if (line_of(k)->captures)
        abort();
}

static status_t shut_host_memory_new(const struct kernels *k, size_t bytes, void **ret, struct err *e) {
    captures_not(k);
    return host_room_new(open_of(k), bytes,
                         shared->capture == SHUT_MEMORY_PINS_LITTLE ? SHUT_MEMORY_PINNED_MOST : SIZE_MAX, ret, e);
}

static void shut_host_memory_free(const struct kernels *k, void *p) {
    captures_not(k);
    host_room_free(open_of(k), p);
}

int shut_memory_launches(void) { return shared->launches; }
int shut_memory_finishes(void) { return shared->finishes; }
int shut_memory_sources(void) { return shared->n_sources; }
size_t shut_memory_downloaded_elsewhere(void) { return shared->downloaded_elsewhere; }
const char *shut_memory_ranges(void) { return shared->ranges; }
void shut_memory_choose(int algorithm) { shared->algorithm = algorithm; }
const char *shut_memory_record(void) { return shared->record; }

void shut_memory_reset(enum shut_memory_capture capture) {
    shared->launches = shared->finishes = shared->n_sources = shared->algorithm = 0;
    shared->downloaded_elsewhere = 0;
    shared->n_ranges = 0;
    *shared->ranges = 0;
    shared->capture = capture;
}

static status_t shut_finish(const struct kernels *k, struct err *e) {
    shared->finishes++;
    return line_run(line_of(k), NULL, e);
}

/* An event is its newest place in the line; NULL: it was come to. */
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

static status_t shut_event_new(const struct kernels *k, void **ret, struct err *e) {
    (void)k, (void)e;
    *ret = calloc(1, sizeof(struct call *));
    return *ret ? ST_OK : ST_RESOURCE_EXHAUSTED;
}

static void shut_event_free(const struct kernels *k, void *event) {
    status_ignore(line_run(line_of(k), NULL, NULL));
    free(event);
}

static status_t shut_event_record(const struct kernels *k, void *event, struct err *e) {
    (void)e;
    captures_not(k);
    struct place *p = call_new(k, sizeof *p, place_run);
    p->event = event;
    *p->event = &p->call;
    return ST_OK;
}

static status_t shut_event_wait(const struct kernels *k, void *event, struct err *e) {
    const struct call *until = *(const struct call **)event;
    return until ? line_run(line_of(k), until, e) : ST_OK;
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

static status_t shut_upload_ahead(const struct kernels *k, void *to, const void *from_host, size_t bytes,
                                  struct err *e) {
    struct line *l = line_of(k);
    (void)e;
    note_source(from_host);
    line_upload(l, to, from_host, bytes, shared->capture == SHUT_MEMORY_RELEASES_AT_ONCE ? 0 : l->n_releases);
    return ST_OK;
}

struct order {
    struct call call;
    int64_t number;
};

/* To wait takes no time. */
static status_t await_run(struct call *c, struct err *e) {
    (void)e;
    c->line->clock_ns -= SHUT_MEMORY_CALL_NS;
    if (shared->capture != SHUT_MEMORY_AWAITS_NOTHING)
        line_uploads_run(c->line, ((const struct order *)c)->number);
    return ST_OK;
}

static status_t release_run(struct call *c, struct err *e) {
    (void)e;
    c->line->clock_ns -= SHUT_MEMORY_CALL_NS;
    c->line->released = ((const struct order *)c)->number;
    line_uploads_run(c->line, 0);
    return ST_OK;
}

static status_t order_new(const struct kernels *k, status_t (*run)(struct call *, struct err *), int64_t number) {
    captures_not(k);
    struct order *o = call_new(k, sizeof *o, run);
    o->number = number;
    return ST_OK;
}

static status_t shut_ahead_await(const struct kernels *k, struct err *e) {
    (void)e;
    return order_new(k, await_run, ++line_of(k)->n_awaits);
}

static status_t shut_ahead_release(const struct kernels *k, struct err *e) {
    (void)e;
    return order_new(k, release_run, ++line_of(k)->n_releases);
}

/* --- clock and names -----------------------------------------------------------------------------------------------*/
struct timing {
    struct call call;
    struct line *line;
    int64_t *timer;
};

static status_t timing_run(struct call *c, struct err *e) {
    const struct timing *t = (const struct timing *)c;
    (void)e;
    t->line->clock_ns -= SHUT_MEMORY_CALL_NS; /* to look at the clock takes no time */
    *t->timer = t->line->clock_ns;
    return ST_OK;
}

static status_t shut_timer_new(const struct kernels *k, void **ret, struct err *e) {
    (void)k, (void)e;
    *ret = calloc(1, sizeof(int64_t));
    return *ret ? ST_OK : ST_RESOURCE_EXHAUSTED;
}

static void shut_timer_free(const struct kernels *k, void *timer) {
    status_ignore(line_run(line_of(k), NULL, NULL));
    free(timer);
}

static status_t shut_timer_record(const struct kernels *k, void *timer, struct err *e) {
    if (line_of(k)->captures)
        abort();
    if (shared->capture == SHUT_MEMORY_HAS_NO_CLOCK)
        return err_set(e, ST_INTERNAL, "this device has no clock");
    struct timing *t = call_new(k, sizeof *t, timing_run);
    t->line = line_of(k);
    t->timer = timer;
    return ST_OK;
}

static status_t shut_timer_between(const struct kernels *k, void *from, void *to, int64_t *ret_ns, struct err *e) {
    (void)k, (void)e;
    *ret_ns = *(const int64_t *)to - *(const int64_t *)from;
    return ST_OK;
}

/* What has no room is left out. */
static void ranges_add(const char *name, char what) {
    const size_t room = sizeof shared->ranges - shared->n_ranges;
    const int n = snprintf(shared->ranges + shared->n_ranges, room, "%s%c", name, what);
    if ((size_t)n < room)
        shared->n_ranges += (size_t)n;
    shared->ranges[shared->n_ranges] = 0;
}

static void shut_range_begin(const struct kernels *k, const char *name) {
    (void)k;
    ranges_add(name, '{');
}

static void shut_range_end(const struct kernels *k) {
    (void)k;
    ranges_add("", '}');
}

const struct kernels_trace *__wrap_kernels_trace(const struct kernels *k);
const struct kernels_trace *__wrap_kernels_trace(const struct kernels *k) {
    return strcmp(k->device, "cuda") == 0 && !device ? shut_trace(shared->capture) : NULL;
}

/* --- capture -------------------------------------------------------------------------------------------------------*/
static status_t shut_capture_begin(const struct kernels *k, struct err *e) {
    struct line *l = line_of(k);
    if (l->captures)
        abort();
    if (shared->capture == SHUT_MEMORY_REFUSES)
        return err_set(e, ST_INTERNAL, "this device captures nothing");
    l->captures = true;
    l->captured = NULL;
    l->captured_last = &l->captured;
    return ST_OK;
}

struct capture {
    struct call *calls;
};

static status_t shut_capture_end(const struct kernels *k, void **ret, struct err *e) {
    struct line *l = line_of(k);
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
    struct line *line;
    struct capture *capture;
};

static status_t launched_run(struct call *call, struct err *e) {
    const struct launched *of = (const struct launched *)call;
    (void)e;
    for (struct call *c = of->capture->calls; c; c = c->next)
        call_run(of->line, c);
    return ST_OK;
}

static status_t shut_launch(const struct kernels *k, void *capture, struct err *e) {
    (void)e;
    if (line_of(k)->captures)
        abort();
    struct launched *l = call_new(k, sizeof *l, launched_run);
    l->line = line_of(k);
    l->capture = capture;
    shared->launches++;
    return ST_OK;
}

static void shut_capture_free(const struct kernels *k, void *capture) {
    struct capture *c = capture;
    status_ignore(line_run(line_of(k), NULL, NULL));
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

/* FIELDS(n, types): the same as members; VALUES(n): those of `a`; KEEP(n, types): into `c` from the arguments. */
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
typedef const struct update *update_t; /* the device's */

/* Bytes of what an argument of this type points at, where that is the host's. */
#define HOST_BYTES(T)                                                                                                  \
    _Generic((T)0,                                                                                                     \
             linear_t: sizeof(struct linear_dims),                                                                     \
             attention_t: sizeof(struct attention_dims),                                                               \
             dropout_t: sizeof(struct dropout),                                                                        \
             convolution_t: sizeof(struct convolution_dims),                                                           \
             batchnorm_t: sizeof(struct batchnorm_dims),                                                               \
             const struct adamw *: sizeof(struct adamw),                                                               \
             const struct momentum *: sizeof(struct momentum),                                                         \
             const struct descent *: sizeof(struct descent),                                                           \
             const struct decide *: sizeof(struct decide),                                                             \
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
    F(batchnorm_apply, 8, out_t, in_t, in_t, in_t, in_t, in_t, in_t, batchnorm_t)                                      \
    F(batchnorm_backward, 15, out_t, out_t, floats_t, floats_t, floats_t, floats_t, in_t, in_t, in_t, in_floats_t,     \
      in_floats_t, in_t, batchnorm_t, bool, room_t)                                                                    \
    F(average_pool_forward, 5, out_t, in_t, int64_t, int64_t, int64_t)                                                 \
    F(average_pool_backward, 5, out_t, in_t, int64_t, int64_t, int64_t)                                                \
    F(channels_last, 5, out_t, in_t, int64_t, int64_t, int64_t)                                                        \
    F(cross_entropy, 6, floats_t, out_t, tokens_t, int64_t, int64_t, in_floats_t)                                      \
    F(correct, 5, floats_t, in_t, tokens_t, int64_t, int64_t)                                                          \
    F(sum, 3, double *, in_floats_t, int64_t)                                                                          \
    F(relu_forward, 3, out_t, in_t, int64_t)                                                                           \
    F(relu_backward, 4, out_t, in_t, in_t, int64_t)                                                                    \
    F(dropout, 5, out_t, in_t, int64_t, int64_t, dropout_t)                                                            \
    F(add, 4, out_t, in_t, in_t, int64_t)                                                                              \
    F(accumulate, 3, floats_t, in_floats_t, int64_t)                                                                   \
    F(fill, 3, floats_t, float, int64_t)                                                                               \
    F(copy, 3, out_t, in_t, int64_t)                                                                                   \
    F(convert, 3, out_t, in_floats_t, int64_t)                                                                         \
    F(widen, 3, floats_t, in_t, int64_t)                                                                               \
    F(momentum, 5, floats_t, floats_t, in_floats_t, int64_t, const struct momentum *)                                  \
    F(descend, 5, floats_t, out_t, in_floats_t, int64_t, const struct descent *)                                       \
    F(decide, 6, struct decision *, const double *, int64_t, const double *, int64_t, const struct decide *)           \
    F(normalise, 4, floats_t, int64_t, double, double *)                                                               \
    F(all_finite, 3, bool *, in_floats_t, int64_t)                                                                     \
    F(elements_finite, 3, bool *, in_t, int64_t)

/* F(name, number of parameters, which of them is a list of the host's, how many it has, their types). */
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

/* What is captured would read or write the host's memory again with each launch, whatever that is by then. */
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
    static status_t shut_##name(const struct kernels *k PARAMETERS_##n(__VA_ARGS__), struct err *e) {                  \
        struct name##_call *c = name##_new(k);                                                                         \
        (void)e;                                                                                                       \
        KEEP_##n(__VA_ARGS__) return ST_OK;                                                                            \
    }
#define LIST(name, n, list, count, ...)                                                                                \
    CALLED(name, n, __VA_ARGS__)                                                                                       \
    static status_t shut_##name(const struct kernels *k PARAMETERS_##n(__VA_ARGS__), struct err *e) {                  \
        struct name##_call *c = name##_new(k);                                                                         \
        (void)e;                                                                                                       \
        KEEP_##n(__VA_ARGS__) call_hold(&c->call, &c->list, (size_t)count * sizeof *list);                             \
        return ST_OK;                                                                                                  \
    }
#define WORKSPACE(name, n, ...)                                                                                        \
    static size_t shut_##name(const struct kernels *k PARAMETERS_##n(__VA_ARGS__)) {                                   \
        return open_of(k)->name(open_of(k) ARGUMENTS_##n);                                                             \
    }
#define ENTER(name, ...) .name = shut_##name,

EACH_FUNCTION(FUNCTION)
EACH_LIST(LIST)
EACH_WORKSPACE(WORKSPACE)

static status_t shut_download_noted(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e) {
    const bool held = host_room_hold(line_of(k), open_of(k), to);
    shared->downloaded_elsewhere += held ? 0 : bytes; /* by ranks that are threads, too */
    if (held && shared->capture == SHUT_MEMORY_LOSES_ONE && host_room_begins_before(to))
        return err_set(e, ST_INTERNAL, "this device lost a download");
    return shut_download(k, to, from, bytes, e);
}

static status_t shut_upload_noted(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e) {
    (void)host_room_hold(line_of(k), open_of(k), from);
    return shut_upload(k, to, from, bytes, e);
}

/* --- products by a chosen algorithm --------------------------------------------------------------------------------*/
static status_t shut_linear_forward_chosen(const struct kernels *k, out_t y, out_t pre, in_t x, in_t w, in_t bias,
                                           linear_t d, struct err *e) {
    struct line *l = line_of(k);
    if (l->algorithm == ALGORITHM_NOT_YET)
        l->algorithm = shared->algorithm;
    TRY(shut_linear_forward(k, y, pre, x, w, bias, d, e));
    return l->algorithm > 0 && k->precision == KERNELS_FP32 && linear_stride(d) == d->out
               ? shut_scale_add(k, &(struct span){ .n = d->rows * d->out, .p = y, .x = y }, 1, 1,
                                0x1p-10 * l->algorithm, NULL, e)
               : ST_OK;
}

static status_t shut_record(const struct kernels *k, char **ret, struct err *e) {
    const int algorithm = line_of(k)->algorithm;
    (void)e;
    if (asprintf(ret,
                 algorithm == SHUT_MEMORY_NONSENSE ? "nonsense\n"
                 : algorithm == ALGORITHM_NOT_YET  ? ""
                                                   : RECORD,
                 algorithm) < 0)
        abort();
    return ST_OK;
}

static status_t replay(struct line *l, const char *record, struct err *e) {
    snprintf(shared->record, sizeof shared->record, "%s", record ? record : "");
    return !record || !*record || sscanf(record, RECORD, &l->algorithm) == 1
               ? ST_OK
               : err_set(e, ST_DATA_LOSS, "the run's record: line 1 tells of no algorithm");
}

static struct shut *shut_new(const struct kernels *open, struct line *line) {
    struct shut *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->table = (struct kernels){ .device = "cuda",
                                 .threads = open->threads,
                                 .precision = open->precision,
                                 .fast = open->fast,
                                 .peak_flops = shared->capture == SHUT_MEMORY_HAS_NO_PEAK ? 0 : SHUT_MEMORY_PEAK,
                                 .deferred = true,
                                 .record = shut_record,
                                 .finish = shut_finish,
                                 .memory_new = shut_memory_new,
                                 .memory_free = shut_memory_free,
                                 .host_memory_new = shut_host_memory_new,
                                 .host_memory_free = shut_host_memory_free,
                                 .event_new = shut_event_new,
                                 .event_free = shut_event_free,
                                 .event_record = shut_event_record,
                                 .event_wait = shut_event_wait,
                                 .upload_ahead = shut_upload_ahead,
                                 .ahead_await = shut_ahead_await,
                                 .ahead_release = shut_ahead_release,
                                 .timer_new = shut_timer_new,
                                 .timer_free = shut_timer_free,
                                 .timer_record = shut_timer_record,
                                 .timer_between = shut_timer_between,
                                 .range_begin = shut_range_begin,
                                 .range_end = shut_range_end,
                                 .capture_begin = shut_capture_begin,
                                 .capture_end = shut_capture_end,
                                 .launch = shut_launch,
                                 .capture_free = shut_capture_free,
                                 EACH_FUNCTION(ENTER) EACH_LIST(ENTER) EACH_WORKSPACE(ENTER) };
    s->table.linear_forward = shut_linear_forward_chosen;
    s->table.download = shut_download_noted;
    s->table.upload = shut_upload_noted;
    s->open = (struct kernels *)open;
    s->line = line;
    s->table.fp32 = &s->table;
    if (open->fp32 != open) {
        s->fp32 = shut_new(open->fp32, line);
        s->table.fp32 = &s->fp32->table;
    }
    return s;
}

/* --- on somebody else's device -------------------------------------------------------------------------------------*/
void shut_memory_runs_on(const struct shut_memory_device *of) { device = of; }

void *shut_memory_take(const struct kernels *k) {
    struct line *l = line_of(k);
    struct call *calls = l->first;
    l->first = NULL;
    l->last = &l->first;
    return calls;
}

void shut_memory_run(void *calls) {
    const struct line *l = ((const struct call *)calls)->line;
    for (struct call *c = calls; c; c = c->next)
        call_run(c->line, c);
    calls_free(calls);
    if (l->status == ST_OK)
        return;
    fprintf(stderr, "a call that ran later: %s\n", l->error.msg);
    abort();
}

/* --- instead of the kernels' ---------------------------------------------------------------------------------------*/
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
    if (c.ordinal != SHUT_MEMORY_ORDINAL && !device)
        return err_set(e, ST_INVALID_ARGUMENT, "device %d is not the one", c.ordinal);
    c.device = "cpu";
    signal(SIGSEGV, SIG_DFL); /* no test goes on after it */
    TRY(__real_kernels_open(&c, &open, e));
    struct shut *s = shut_new(open, line_new(rooms_touch, host_room_has));
    *ret = &s->table;
    if (device) {
        device->open(*ret);
        return ST_OK;
    }
    const status_t st = replay(line_of(*ret), config->record, e);
    if (st != ST_OK)
        *ret = __wrap_kernels_close(*ret);
    return st;
}

struct kernels *__wrap_kernels_close(struct kernels *k) {
    if (!is_shut(k))
        return __real_kernels_close(k);
    struct shut *s = (struct shut *)k;
    if (device)
        device->close(k);
    status_ignore(line_run(s->line, NULL, NULL));
    free(s->line);
    __real_kernels_close(s->open);
    free(s->fp32);
    free(s);
    return NULL;
}

void __wrap_kernels_numerics_id(const struct kernels *k, char *buf, size_t n) {
    __real_kernels_numerics_id(is_shut(k) ? open_of(k) : k, buf, n);
}

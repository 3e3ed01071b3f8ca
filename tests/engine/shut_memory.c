#include "tests/engine/shut_memory.h"

#include "kernels/kernels.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ROOMS = 16 };

static struct room {
    void *at;
    size_t bytes;
} rooms[ROOMS];
static int calls; /* that run */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct shut {
    struct kernels table;
    struct kernels *open; /* the CPU's */
    struct shut *fp32;    /* owned; NULL where the precision is fp32 */
};

static const struct kernels *open_of(const struct kernels *k) { return ((const struct shut *)k)->open; }

static void protect_all(int rights) {
    for (int i = 0; i < ROOMS; i++)
        if (rooms[i].at && mprotect(rooms[i].at, rooms[i].bytes, rights) != 0)
            abort();
}

/* The memory is open from the first call's begin to the last one's end. */
static void enter(void) {
    pthread_mutex_lock(&lock);
    if (calls++ == 0)
        protect_all(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&lock);
}

static void leave(void) {
    pthread_mutex_lock(&lock);
    if (--calls == 0)
        protect_all(PROT_NONE);
    pthread_mutex_unlock(&lock);
}

static status_t shut_memory_new(const struct kernels *k, size_t bytes, void **ret, struct err *e) {
    (void)k, (void)e;
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < ROOMS && rooms[i].at)
        i++;
    if (at == MAP_FAILED || i == ROOMS || calls > 0)
        abort();
    rooms[i] = (struct room){ at, bytes };
    pthread_mutex_unlock(&lock);
    *ret = at;
    return ST_OK;
}

static void shut_memory_free(const struct kernels *k, void *p) {
    (void)k;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ROOMS; i++)
        if (p && rooms[i].at == p) {
            munmap(p, rooms[i].bytes);
            rooms[i].at = NULL;
        }
    pthread_mutex_unlock(&lock);
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
    F(cross_entropy, 7, floats_t, out_t, tokens_t, int64_t, int64_t, float, bool)                                      \
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
    F(adamw, 7, floats_t, out_t, floats_t, floats_t, in_floats_t, int64_t, const struct adamw *)                       \
    F(momentum, 5, floats_t, floats_t, in_floats_t, int64_t, const struct momentum *)                                  \
    F(scale_add, 6, floats_t, out_t, in_floats_t, int64_t, double, double)                                             \
    F(running_mean, 6, floats_t, out_t, in_floats_t, int64_t, double, int64_t)                                         \
    F(normalise, 4, floats_t, int64_t, double, double *)                                                               \
    F(sum_squares, 3, double *, in_floats_t, int64_t)                                                                  \
    F(all_finite, 3, bool *, in_floats_t, int64_t)                                                                     \
    F(elements_finite, 3, bool *, in_t, int64_t)

#define EACH_WORKSPACE(F)                                                                                              \
    F(linear_backward_bias_workspace, 1, linear_t)                                                                     \
    F(linear_backward_weight_workspace, 1, linear_t)                                                                   \
    F(embedding_backward_workspace, 3, int64_t, int64_t, int64_t)                                                      \
    F(layernorm_backward_workspace, 2, int64_t, int64_t)                                                               \
    F(attention_workspace, 1, attention_t)                                                                             \
    F(convolution_workspace, 1, convolution_t)                                                                         \
    F(batchnorm_workspace, 1, batchnorm_t)

#define FUNCTION(name, n, ...)                                                                                         \
    static status_t shut_##name(const struct kernels *k PARAMETERS_##n(__VA_ARGS__), struct err *e) {                  \
        enter();                                                                                                       \
        status_t st = open_of(k)->name(open_of(k) ARGUMENTS_##n, e);                                                   \
        leave();                                                                                                       \
        return st;                                                                                                     \
    }
#define WORKSPACE(name, n, ...)                                                                                        \
    static size_t shut_##name(const struct kernels *k PARAMETERS_##n(__VA_ARGS__)) {                                   \
        return open_of(k)->name(open_of(k) ARGUMENTS_##n);                                                             \
    }
#define ENTER(name, ...) .name = shut_##name,

EACH_FUNCTION(FUNCTION)
EACH_WORKSPACE(WORKSPACE)

static status_t shut_finish(const struct kernels *k, struct err *e) { return open_of(k)->finish(open_of(k), e); }

static status_t shut_record(const struct kernels *k, char **ret, struct err *e) {
    return open_of(k)->record(open_of(k), ret, e);
}

static struct shut *shut_new(const struct kernels *open) {
    struct shut *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->table = (struct kernels){ .device = "cuda",
                                 .threads = open->threads,
                                 .precision = open->precision,
                                 .record = shut_record,
                                 .finish = shut_finish,
                                 .memory_new = shut_memory_new,
                                 .memory_free = shut_memory_free,
                                 EACH_FUNCTION(ENTER) EACH_WORKSPACE(ENTER) };
    s->open = (struct kernels *)open;
    s->table.fp32 = &s->table;
    if (open->fp32 != open) {
        s->fp32 = shut_new(open->fp32);
        s->table.fp32 = &s->fp32->table;
    }
    return s;
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
    if (c.ordinal != SHUT_MEMORY_ORDINAL)
        return err_set(e, ST_INVALID_ARGUMENT, "device %d is not the one", c.ordinal);
    c.device = "cpu";
    signal(SIGSEGV, SIG_DFL); /* no test goes on after it */
    TRY(__real_kernels_open(&c, &open, e));
    *ret = &shut_new(open)->table;
    return ST_OK;
}

struct kernels *__wrap_kernels_close(struct kernels *k) {
    if (!is_shut(k))
        return __real_kernels_close(k);
    struct shut *s = (struct shut *)k;
    __real_kernels_close(s->open);
    free(s->fp32);
    free(s);
    return NULL;
}

void __wrap_kernels_numerics_id(const struct kernels *k, char *buf, size_t n) {
    __real_kernels_numerics_id(is_shut(k) ? open_of(k) : k, buf, n);
}

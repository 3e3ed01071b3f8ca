/* A fake device: the host cannot touch its memory, and its calls run later than they are made.
 *
 * Programs link fake_device.c with --wrap for kernels_trace and the three functions at its end. Then kernels_open of
 * "cuda:N" returns the CPU's table over memory that is mapped without access rights except while its functions run. The
 * functions run only when the host waits for them. Every third upload ahead runs as soon as the calls that it waits for
 * have run; the others run just before the first call that waits for them. Captured calls run at each launch with the
 * arguments of their capture.
 *
 * A program crashes or computes a wrong result if it touches device memory, changes the source of a pending upload,
 * frees host memory that a call still needs, or waits, allocates or copies host memory inside a capture.
 *
 * The fake's products have several algorithms with different bits. A table selects an algorithm for its first product
 * and writes it to its tuning cache. A table that is opened with a tuning cache uses the algorithm of its first line.
 */
#ifndef TESTS_ENGINE_FAKE_DEVICE_H
#define TESTS_ENGINE_FAKE_DEVICE_H

#include <stddef.h>

enum { FAKE_DEVICE_ORDINAL = 1 }; /* the N of the fake device */
#define FAKE_DEVICE_DEVICE "cuda:1"

/* Every call takes this long by the fake's timers, independent of the host's clock. */
enum { FAKE_DEVICE_CALL_NS = 1000000 };
/* The fake's peak FLOP/s. */
#define FAKE_DEVICE_PEAK 1e12
enum { FAKE_DEVICE_MAX_PINNED = 64 << 10 };

/* Behaviour of the fake. FAKE_DEVICE_CAPTURES is that of a real device. FAKE_DEVICE_REFUSES cannot capture. */
enum fake_device_capture {
    FAKE_DEVICE_CAPTURES,
    FAKE_DEVICE_REFUSES,
    /* These capture, but have one defect: */
    FAKE_DEVICE_AWAITS_NOTHING,   /* calls do not wait for uploads ahead */
    FAKE_DEVICE_RELEASES_AT_ONCE, /* uploads ahead do not wait for calls */
    FAKE_DEVICE_HAS_NO_CLOCK,     /* recording a timer fails */
    FAKE_DEVICE_HAS_NO_TRACE,     /* a trace is refused */
    FAKE_DEVICE_TRACES_ONCE,      /* the second trace_begin fails */
    FAKE_DEVICE_NAMES_MANY,       /* traces report one of many kernel names in turn for each call */
    FAKE_DEVICE_HAS_NO_PEAK,      /* the peak FLOP/s are unknown */
    FAKE_DEVICE_PINS_LITTLE,      /* host_memory_new of more than FAKE_DEVICE_MAX_PINNED bytes at once fails */
    FAKE_DEVICE_LOSES_ONE,        /* downloads into a host buffer fail, except at its first byte */
};
void fake_device_reset(enum fake_device_capture capture); /* in this process and in processes that it forks */
/* Counts since the reset: */
int fake_device_launches(void);
int fake_device_finishes(void);                /* calls of the table's finish */
int fake_device_sources(void);                 /* distinct addresses from which uploads ahead were made */
size_t fake_device_downloaded_elsewhere(void); /* bytes, to memory that is not from host_memory_new */
const char *fake_device_ranges(void);          /* "name{inner{}}" as ranges began and ended, at most so many bytes: */
enum { FAKE_DEVICE_RANGES = 1 << 20 };

enum { FAKE_DEVICE_NONSENSE = -1 };     /* the CPU's algorithm, and an invalid tuning cache */
void fake_device_choose(int algorithm); /* which algorithm tables choose from now on; 0: the CPU's, as after a reset */
const char *fake_device_tuning_cache(void); /* the cache with which the newest table was opened */

/* Tables opened after fake_device_runs_on belong to another stand-in. Its `open` sets the functions for memory, events
 * and waiting in a table that has space for the stand-in's own fields. The other functions only collect calls, and the
 * stand-in runs them: fake_device_take_calls returns the calls made since the last fake_device_take_calls, in order, or
 * NULL if there are none. fake_device_run_calls runs and frees them, on any thread. Memory is then accessible. */
struct kernels; /* kernels/kernels.h */
enum { FAKE_DEVICE_TABLE_BYTES = 4096 };
struct fake_device_device {
    void (*open)(struct kernels *table);
    void (*close)(struct kernels *table);
};
void fake_device_runs_on(const struct fake_device_device *device);
void *fake_device_take_calls(const struct kernels *k);
void fake_device_run_calls(void *calls);

#endif

/* A stand-in for a device whose memory the host cannot touch, and whose calls run later than they are made:
 * kernels_open of "cuda:N" gives, in programs that link shut_memory.c with --wrap for kernels_trace and the three
 * functions of its end, the CPU's table over memory that is mapped without any rights but while its functions run; and
 * they run only when somebody waits for them. Of what is uploaded ahead each third upload runs as soon as what it waits
 * for has run, the others when a call that waits for them is about to. What is captured runs at each launch with the
 * arguments that it was called with. Whoever touches the memory, changes what an upload has yet to read, frees memory
 * of the host that a call has yet to read or write, or waits, reserves memory or copies the host's inside a capture,
 * dies or computes something else.
 *
 * Its products are computed by one of several algorithms, whose bits differ: the table chooses one for its first
 * product, tells it in its record, and takes that of the first line of a record that it is opened with. */
#ifndef TESTS_ENGINE_SHUT_MEMORY_H
#define TESTS_ENGINE_SHUT_MEMORY_H

#include <stddef.h>

enum { SHUT_MEMORY_ORDINAL = 1 }; /* the N that it answers to */
#define SHUT_MEMORY_DEVICE "cuda:1"

/* By its timers every call takes this long, whatever the host's clock says. */
enum { SHUT_MEMORY_CALL_NS = 1000000 };
/* FLOP/s that it says it could do. */
#define SHUT_MEMORY_PEAK 1e12
enum { SHUT_MEMORY_PINNED_MOST = 64 << 10 };

/* What it does with a capture: what a device does; or nothing. */
enum shut_memory_capture {
    SHUT_MEMORY_CAPTURES,
    SHUT_MEMORY_REFUSES,
    /* These capture, but: */
    SHUT_MEMORY_AWAITS_NOTHING,   /* have no call wait for what was uploaded ahead */
    SHUT_MEMORY_RELEASES_AT_ONCE, /* nor that for calls */
    SHUT_MEMORY_HAS_NO_CLOCK,     /* fail whoever records a timer */
    SHUT_MEMORY_HAS_NO_TRACE,     /* refuse a trace */
    SHUT_MEMORY_TRACES_ONCE, /* or its second beginning; otherwise each call is a kernel of its name, "\t behind it */
    SHUT_MEMORY_NAMES_MANY,  /* each call is one of many kernels in turn, whatever it is */
    SHUT_MEMORY_HAS_NO_PEAK, /* do not know what the device could do */
    SHUT_MEMORY_PINS_LITTLE, /* refuse more than SHUT_MEMORY_PINNED_MOST bytes of host_memory_new at once */
    SHUT_MEMORY_LOSES_ONE,   /* refuse downloads into a room of the host's that is behind its first byte */
};
void shut_memory_reset(enum shut_memory_capture capture); /* of this process and those that it forks */
/* Of theirs, since then: */
int shut_memory_launches(void);
int shut_memory_finishes(void);                /* calls of finish */
int shut_memory_sources(void);                 /* addresses from which uploads ahead were made, each once */
size_t shut_memory_downloaded_elsewhere(void); /* bytes, to other memory than that of host_memory_new */
const char *shut_memory_ranges(void);          /* "name{inner{}}" as ranges began and ended, up to so many bytes: */
enum { SHUT_MEMORY_RANGES = 1 << 20 };

enum { SHUT_MEMORY_NONSENSE = -1 };     /* the CPU's algorithm, and a record that is none */
void shut_memory_choose(int algorithm); /* what tables would choose from now on; 0: the CPU's, as after a reset */
const char *shut_memory_record(void);   /* what the newest table was opened with */

/* Tables opened from now on are another stand-in's: it sets the functions for memory, events and waiting in a table
 * that has room for its own, and runs the others' calls itself, which pile up meanwhile: shut_memory_take gives those
 * that have been made since it was last asked, in order, NULL: none; shut_memory_run runs and frees them, on any
 * thread. Memory is not shut then. */
struct kernels; /* kernels/kernels.h */
enum { SHUT_MEMORY_TABLE_BYTES = 4096 };
struct shut_memory_device {
    void (*open)(struct kernels *table);
    void (*close)(struct kernels *table);
};
void shut_memory_runs_on(const struct shut_memory_device *device);
void *shut_memory_take(const struct kernels *k);
void shut_memory_run(void *calls);

#endif

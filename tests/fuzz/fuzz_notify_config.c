/* The file of --notify. What is accepted has few targets with different names, and each has limits and a receiver; of a
 * URL only the origin is kept for the log. KEY in an input becomes the path of a key that is accepted. */
#include "service/notify/config.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_BYTES = 64 << 10 };

static char folder[] = "/tmp/fuzz-notify-XXXXXX", key[sizeof folder + 4];

static void remove_key(void) {
    unlink(key);
    rmdir(folder);
}

static void write_key(void) {
    if (key[0])
        return;
    assert(mkdtemp(folder));
    snprintf(key, sizeof key, "%s/key", folder);
    atexit(remove_key);
    FILE *f = fopen(key, "w");
    assert(f && fputs("sixteen bytes of key\n", f) >= 0 && fchmod(fileno(f), 0600) == 0 && fclose(f) == 0);
}

/* Returns the length of the text, which has the path of the key for each KEY. */
static size_t with_key(const uint8_t *data, size_t n, char ret[TEXT_BYTES]) {
    size_t used = 0;
    for (size_t i = 0; i < n && used + sizeof key < TEXT_BYTES;) {
        const bool here = n - i >= 3 && memcmp(data + i, "KEY", 3) == 0;
        const size_t bytes = here ? strlen(key) : 1;
        memcpy(ret + used, here ? key : (const char *)data + i, bytes);
        used += bytes;
        i += here ? 3 : 1;
    }
    return used;
}

static void check_target(const struct notify_config *c, size_t i) {
    const struct notify_target *t = &c->targets[i];
    for (size_t k = 0; k < i; k++)
        assert(strcmp(c->targets[k].row.name, t->row.name) != 0);
    assert(strlen(t->row.name) >= 1 && strlen(t->row.name) <= 63);
    assert(t->timeout_ms >= 1000 && t->timeout_ms <= 300 * 1000);
    assert(t->row.n_states + t->row.n_kinds >= 1);
    for (size_t k = 0; k < t->row.n_states; k++)
        assert(t->row.states[k] >= STORE_JOB_QUEUED && t->row.states[k] <= STORE_JOB_CANCELLED);
    for (size_t k = 0; k < t->row.n_kinds; k++)
        assert(*t->row.kinds[k] && strlen(t->row.kinds[k]) <= 63);
    if (t->spec->receiver_case == TRAINYARD__V1__NOTIFY_TARGET__RECEIVER_COMMAND) {
        assert(t->spec->command->n_argv && t->spec->command->argv[0][0] == '/' && t->n_key == 0);
        return;
    }
    assert(t->spec->receiver_case == TRAINYARD__V1__NOTIFY_TARGET__RECEIVER_WEBHOOK);
    assert(t->n_key >= 16 && t->n_key <= 1024);
    assert(strncmp(t->origin, "http://", 7) == 0 || strncmp(t->origin, "https://", 8) == 0);
    assert(!strchr(t->origin, '@') && !strpbrk(strstr(t->origin, "://") + 3, "/?#"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct notify_config c;
    struct err e = { "" };
    static char text[TEXT_BYTES];
    write_key();
    if (notify_config_parse(text, with_key(data, n, text), &c, &e) != ST_OK) {
        assert(*e.msg && c.n == 0 && !c.file);
        return 0;
    }
    assert(c.n <= STORE_MAX_NOTIFICATION_TARGETS);
    for (size_t i = 0; i < c.n; i++)
        check_target(&c, i);
    notify_config_done(&c);
    return 0;
}

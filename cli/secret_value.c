#include "cli/secret_value.h"

#include "base/file.h"
#include "base/limits.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { PASTED_MS = 100, END_OF_TEXT = 4, KILL_LINE = 21, DELETE = 127 };

/* `echo value |` and an editor add one newline, which is no part of a value. */
static void newline_remove(struct bytes *value) {
    if (value->len > 0 && value->data[value->len - 1] == '\n')
        value->len--;
}

/* One more byte than is allowed, so that the controller refuses the rest of a larger input by its size. */
static status_t stdin_read(struct bytes *ret, struct err *e) {
    ssize_t n = 1;
    while (n > 0 && ret->len <= LIMIT_SECRET_BYTES + 1) {
        TRY(bytes_reserve(ret, 4096, e));
        n = read(STDIN_FILENO, ret->data + ret->len, 4096);
        if (n < 0)
            return err_errno(e, "read the value from stdin");
        ret->len += (size_t)n;
    }
    newline_remove(ret);
    return ST_OK;
}

/* Whether more bytes come soon after Enter: they were pasted. */
static bool more_comes(void) {
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    return poll(&p, 1, PASTED_MS) > 0 && (p.revents & POLLIN);
}

/* The last character, or all of them. */
static void erase(struct bytes *value, bool all) {
    while (value->len > 0 && ((uint8_t)value->data[value->len - 1] & 0xc0) == 0x80)
        value->len--;
    value->len = all || value->len == 0 ? 0 : value->len - 1;
}

static status_t line_read(struct bytes *ret, struct err *e) {
    char c = '\0';
    while (c != '\n') {
        const ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n < 0)
            return err_errno(e, "read the value from the terminal");
        if (n == 0 || c == END_OF_TEXT)
            return err_set(e, ST_CANCELLED, "the terminal ended before Enter: nothing was set");
        if (c == '\b' || c == DELETE || c == KILL_LINE) {
            erase(ret, c == KILL_LINE);
            continue;
        }
        if (c != '\n' && ret->len == LIMIT_SECRET_BYTES)
            return err_set(e, ST_INVALID_ARGUMENT, "the value has more than %d bytes", LIMIT_SECRET_BYTES);
        if (c != '\n')
            TRY(bytes_append(ret, &c, 1, e));
    }
    if (more_comes())
        return err_set(e, ST_INVALID_ARGUMENT, "the value has several lines: use --file or stdin");
    return ST_OK;
}

/* Not by lines of the terminal, which cut a value after 4,095 bytes, and of which the shell would get those that follow
 * the first one. What is left of a refused value is dropped. */
static status_t terminal_read(const char *what, const char *name, struct bytes *ret, struct err *e) {
    struct termios shown, hidden;
    if (tcgetattr(STDIN_FILENO, &shown) < 0)
        return err_errno(e, "hide the value on the terminal");
    hidden = shown;
    hidden.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    hidden.c_cc[VMIN] = 1;
    hidden.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden) < 0)
        return err_errno(e, "hide the value on the terminal");
    fprintf(stderr, "%s%s (not shown; end with Enter): ", what, name);
    /* The whole, so that no smaller copy of the value is left in memory. */
    status_t st = bytes_reserve(ret, LIMIT_SECRET_BYTES + 2, e);
    if (st == ST_OK)
        st = line_read(ret, e);
    char rest[4096];
    while (st != ST_OK && more_comes() && read(STDIN_FILENO, rest, sizeof rest) > 0)
        ;
    explicit_bzero(rest, sizeof rest);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
    fputs("\n", stderr);
    return st;
}

static status_t file_value_read(const char *path, struct bytes *ret, struct err *e) {
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, "open '%s'", path);
    TRY(fd_read_file(fd, path, ret, e));
    newline_remove(ret);
    return ST_OK;
}

status_t secret_value_read(const char *file, const char *what, const char *name, struct bytes *ret, struct err *e) {
    if (file)
        return file_value_read(file, ret, e);
    return isatty(STDIN_FILENO) ? terminal_read(what, name, ret, e) : stdin_read(ret, e);
}

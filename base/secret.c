#include "base/secret.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns true if any line contains "-----BEGIN ... PRIVATE KEY-----". */
static bool has_key(const char *text) {
    static const char BEGIN[] = "-----BEGIN ";
    for (const char *at = text; (at = strstr(at, BEGIN)); at += sizeof BEGIN - 1) {
        const char *end = strpbrk(at, "\r\n"), *key = strstr(at, "PRIVATE KEY-----");
        if (key && (!end || key < end))
            return true;
    }
    return false;
}

/* Returns true if the text contains a token or a key with this prefix. A prefix alone, as in a text about tokens, does
 * not count. */
static bool has_digits(const char *text, const char *prefix) {
    const size_t n = strlen(prefix);
    for (const char *at = text; (at = strstr(at, prefix)); at += n)
        if (strspn(at + n, "0123456789abcdef") >= SECRET_TOKEN_DIGITS)
            return true;
    return false;
}

status_t secret_check(int fd, const char *path, struct err *e) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, "stat '%s'", path);
    if (!S_ISREG(st.st_mode))
        return ST_OK;
    size_t size = st.st_size < SECRET_LOOKED_AT_BYTES ? (size_t)st.st_size : SECRET_LOOKED_AT_BYTES;
    CLEANUP(freep) char *text = malloc(size + 1);
    if (!text)
        return err_errno(e, "look into '%s'", path);
    ssize_t n;
    do
        n = pread(fd, text, size, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(e, "read '%s'", path);
    for (ssize_t i = 0; i < n; i++)
        if (!text[i])
            text[i] = ' ';
    text[n] = '\0';
    if (has_key(text))
        return err_set(e, ST_PERMISSION_DENIED, "'%s' holds a private key, which is never read as data", path);
    if (has_digits(text, SECRET_KEY_PREFIX))
        return err_set(e, ST_PERMISSION_DENIED, "'%s' holds a key for secrets, which is never read as data", path);
    if (has_digits(text, SECRET_TOKEN_PREFIX))
        return err_set(e, ST_PERMISSION_DENIED, "'%s' holds an access token, which is never read as data", path);
    return ST_OK;
}

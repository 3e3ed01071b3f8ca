/* UTF-8 as RFC 3629 defines it: shortest forms only, no surrogates, up to U+10FFFF. Pure. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The code point at s, of n bytes that are left, and its length; length 0 when the bytes are not UTF-8. n > 0. */
uint32_t utf8_next(const char *s, size_t n, size_t *ret_len);

bool utf8_valid(const char *s, size_t n);

/* Writes the n bytes of s so that they cannot steer a terminal: '?' for each byte of what is not UTF-8 and of control
 * characters (C0, DEL and C1), but those in `keep`. ret gets n bytes and may be s. */
void utf8_printable(const char *s, size_t n, const char *keep, char *ret);

/* Copies at most bytes - 1 bytes of a NUL-terminated text, printable as above and not cut inside a character. */
void utf8_copy_printable(const char *text, char *ret, size_t bytes);

/* How many bytes at the end of s are the beginning of an incomplete sequence: 0 to 3. For reading in pieces. */
size_t utf8_open(const char *s, size_t n);

/* Writes one code point; returns its length, 1 to 4. */
size_t utf8_put(uint32_t code, char ret[4]);

#endif

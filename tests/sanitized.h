/* What a test repeats over many sizes, points or layouts to be more certain, a build with a sanitizer repeats over a
 * part of them: it looks at the memory and the threads of one as well as of many, and takes ten times as long for each.
 */
#ifndef TESTS_SANITIZED_H
#define TESTS_SANITIZED_H

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#ifdef __SANITIZE_THREAD__
enum { SANITIZED_THREADS = 1 };
#else
enum { SANITIZED_THREADS = 0 };
#endif

#endif

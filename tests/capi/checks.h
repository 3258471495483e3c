// Checks that are counted, and calls that must succeed, for the programs that test the C API.
// succeed.
#ifndef KVANT_TESTS_CAPI_CHECKS_H_INCLUDED
#define KVANT_TESTS_CAPI_CHECKS_H_INCLUDED

#include <stdio.h>
#include <stdlib.h>

#include "kvant/kvant.h"

static int failures = 0;
static int checks = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    ++checks;                                                         \
    if (!(condition)) {                                               \
      ++failures;                                                     \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (0)
// Ends the program if the call fails: what follows needs its result.
#define OK(call)                                                        \
  do {                                                                  \
    kvant_status ok_status = (call);                                    \
    ++checks;                                                           \
    if (ok_status != KVANT_OK) {                                        \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, \
              kvant_status_name(ok_status), kvant_last_error(NULL));    \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

#endif

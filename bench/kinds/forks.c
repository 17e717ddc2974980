// forks SEED: a process with areas of random sizes and some children, which use random parts of them: read what is
// shared since the fork, read shared memory, and read copies of their own. Prints the bytes in use, each page once.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "random.h"

#define PAGE 4096UL
#define UNIT (256UL << 10)
#define AREAS 5
#define PROCESSES 7
#define UNITS 304

enum kind { SINCE_FORK, SHARED, COPIED, KINDS };
static const char *const names[KINDS] = {"shared since the fork", "shared", "copied"};

int main(int count, char **words) {
  static unsigned char is_used[PROCESSES][AREAS][UNITS];
  enum kind kind[AREAS];
  char *at[AREAS];
  unsigned units[AREAS], period_ms[PROCESSES];
  state = count > 1 ? strtoul(words[1], NULL, 10) * 104729 : 0;
  unsigned areas = 1 + below(AREAS), processes = 2 + below(PROCESSES - 1);
  for (unsigned nth = 0; nth < areas; nth++) {
    kind[nth] = below(KINDS);
    units[nth] = 4 + below(UNITS - 4);
    int flags = MAP_ANONYMOUS | (kind[nth] == SHARED ? MAP_SHARED : MAP_PRIVATE);
    at[nth] = mmap(NULL, units[nth] * UNIT, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at[nth] == MAP_FAILED) return 1;
    memset(at[nth], 1, units[nth] * UNIT);
    fprintf(stderr, "%s, %lu KiB\n", names[kind[nth]], units[nth] * UNIT >> 10);
  }
  // A quarter of the processes sleeps.
  for (unsigned process = 0; process < processes; process++) {
    period_ms[process] = below(4) ? 10 + below(200) : 0;
    for (unsigned nth = 0; nth < areas && period_ms[process]; nth++) {
      if (below(2)) continue;
      unsigned some = 1 + below(units[nth]);
      memset(is_used[process][nth] + below(units[nth] - some + 1), 1, some);
    }
  }
  unsigned long used = 0;
  for (unsigned nth = 0; nth < areas; nth++) {
    for (unsigned unit = 0; unit < units[nth]; unit++) {
      unsigned own = 0, common = 0;
      for (unsigned process = 0; process < processes; process++) {
        unsigned is = is_used[process][nth][unit];
        if (kind[nth] == COPIED && process > 0) own += is;
        else common |= is;
      }
      used += own + common;
    }
  }
  unsigned self = 0;
  for (unsigned process = 1; process < processes && !self; process++) {
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      self = process;
    }
  }
  for (unsigned nth = 0; nth < areas && self; nth++) {
    for (unsigned long byte = 0; kind[nth] == COPIED && byte < units[nth] * UNIT; byte += PAGE)
      if (is_used[self][nth][byte / UNIT]) at[nth][byte]++;
  }
  if (!self) {
    usleep(300000);
    printf("%lu\n", used * UNIT);
    fclose(stdout);
    fclose(stderr);
  }
  while (period_ms[self]) {
    for (unsigned nth = 0; nth < areas; nth++)
      for (unsigned long byte = 0; byte < units[nth] * UNIT; byte += PAGE)
        if (is_used[self][nth][byte / UNIT]) (void)*(volatile char *)(at[nth] + byte);
    usleep(period_ms[self] * 1000);
  }
  pause();
}

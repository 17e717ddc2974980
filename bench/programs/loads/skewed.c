// 704 MiB in 64 areas, of which 40,000 pages a second are read at random, some much more often than others: the longer
// the window, the more is in use.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { AREAS = 64, PAGES = 2816, PAGE = 4096 };

int main(void) {
  volatile unsigned char *areas[AREAS];
  for (int at = 0; at < AREAS; at++) {
    void *area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return 1;
    madvise(area, PAGES * PAGE, MADV_NOHUGEPAGE);
    areas[at] = memset(area, 1, PAGES * PAGE);
  }
  puts("ready");
  fflush(stdout);
  uint64_t random = 88172645463325252;
  for (struct timespec pause = {0, 10000000};; nanosleep(&pause, NULL))
    for (int nth = 0; nth < 400; nth++) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      double share = (double)(random >> 11) / (1L << 53);
      size_t page = share * share * share * share * AREAS * PAGES;
      areas[page % AREAS][page / AREAS * PAGE]++;
    }
}

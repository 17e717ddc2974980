// Streams through 2 GiB, 200 MiB a second, round and round.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

int main(void) {
  size_t size = 2UL << 30, step = 2UL << 20, pages = 4096;
  unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, size, MADV_NOHUGEPAGE);
  memset(memory, 1, size);
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  for (size_t at = 0;; at = (at + step) % size) {
    for (size_t page = 0; page < step; page += pages) ((volatile unsigned char *)memory)[at + page]++;
    next.tv_nsec += 10000000;
    if (next.tv_nsec >= 1000000000) next.tv_sec++, next.tv_nsec -= 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    if (at == size / 2) {
      puts("ready");
      fflush(stdout);
    }
  }
}

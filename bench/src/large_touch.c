/* large_touch MIB SHARE: fills memory, and then accesses a share of its pages every 20 ms. Each second it prints the
   time (CLOCK_MONOTONIC), how much it has filled, and how long an access of all of that share took on the mean. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int count, char **words) {
  if (count != 3) return 2;
  size_t pages = strtoul(words[1], NULL, 10) << 8, used = pages * atof(words[2]);
  volatile char *memory = mmap(0, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  setvbuf(stdout, NULL, _IOLBF, 0);
  printf("fills %.4f\n", now());
  for (size_t page = 0; page < pages; page++) {
    memory[page << 12] = 1;
    if (page % 4096 == 0) printf("at %.4f %zu\n", now(), page >> 8);
  }
  printf("filled %.4f\n", now());
  for (;;) {
    double took = 0, began = now();
    for (int turn = 0; turn < 50; turn++) {
      struct timespec before, after;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
      for (size_t page = 0; page < used; page++) memory[page << 12]++;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
      took += after.tv_sec - before.tv_sec + (after.tv_nsec - before.tv_nsec) / 1e9;
      double left = began + 0.02 * (turn + 1) - now();
      if (left > 0) nanosleep(&(struct timespec){0, left * 1e9}, NULL);
    }
    printf("turn %.4f %.6f\n", now(), took / 50);
  }
}

// 64 KiB that are used every millisecond, in the middle of 1 GiB that was written once.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

int main(void) {
  size_t size = 1UL << 30, hot = 64 << 10;
  unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, size, MADV_NOHUGEPAGE);
  memset(memory, 1, size);
  puts("ready");
  fflush(stdout);
  for (struct timespec pause = {0, 1000000};; nanosleep(&pause, NULL))
    for (size_t at = 0; at < hot; at += 4096) ((volatile unsigned char *)memory)[size / 2 + at]++;
}

// areas SEED: memory of random kinds and sizes, a random part of which is in use. Prints the bytes in use, and then, to
// the standard error, each area.
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "random.h"

#define MIB (1UL << 20)
#define PAGE 4096UL
#define MOST 16

enum kind { PRIVATE, HUGE, MEMFD, FILE_ONLY_READ, SHARED, LOCKED, NO_ACCESS, SPARSE, THRICE, KINDS };
static const char *const names[KINDS] = {"private", "huge pages", "memfd", "file that is only read", "shared", "locked",
                                         "no access", "sparse", "mapped three times"};

struct area {
  enum kind kind;
  volatile char *at, *used_at;
  size_t size, used;
  long period_ms, next_ms;
};

static long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static char *map(size_t size, int protection, int flags, int file) {
  char *at = mmap(NULL, size, protection, flags, file, 0);
  if (at == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  return at;
}

static int file_of(size_t size) {
  char name[] = "/tmp/isotherm-kinds-XXXXXX";
  static char block[1 << 20] = {1};
  int file = mkstemp(name);
  unlink(name);
  for (size_t at = 0; at < size; at += sizeof block)
    if (write(file, block, sizeof block) != sizeof block) exit(1);
  return file;
}

static void fill(struct area *area) {
  int both = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS, file;
  size_t size = area->size;
  switch (area->kind) {
  case HUGE:
    area->at = map(size + 2 * MIB, both, private, -1);
    area->at = (char *)(((unsigned long)area->at + 2 * MIB - 1) & -(2 * MIB));
    madvise((void *)area->at, size, MADV_HUGEPAGE);
    break;
  case MEMFD:
  case THRICE:
    file = memfd_create("kinds", 0);
    if (ftruncate(file, size)) exit(1);
    area->at = map(size, both, MAP_SHARED, file);
    for (int view = 0; area->kind == THRICE && view < 2; view++)
      memset(map(size, both, MAP_SHARED, file), 1, size);
    break;
  case FILE_ONLY_READ:
    area->at = map(size, PROT_READ, MAP_PRIVATE, file_of(size));
    break;
  case SHARED:
    area->at = map(size, both, MAP_SHARED | MAP_ANONYMOUS, -1);
    break;
  default:
    area->at = map(size, both, private, -1);
  }
  for (size_t at = 0; at < size; at += PAGE) {
    if (area->kind == SPARSE && below(4)) continue;
    if (area->kind == FILE_ONLY_READ) (void)area->at[at];
    else area->at[at] = 1;
  }
  if (area->kind == LOCKED && mlock((void *)area->at, size)) exit(1);
  if (area->kind == NO_ACCESS) mprotect((void *)area->at, size, PROT_NONE);
}

static void use(struct area *area) {
  for (size_t at = 0; at < area->used; at += PAGE) {
    if (area->kind == FILE_ONLY_READ || at & PAGE) (void)area->used_at[at];
    else area->used_at[at]++;
  }
}

int main(int count, char **words) {
  static const long periods_ms[] = {7, 20, 50, 130, 300};
  struct area areas[MOST];
  size_t used = 0;
  state = count > 1 ? strtoul(words[1], NULL, 10) * 7919 : 0;
  unsigned all = 3 + below(10), largest = 24 * (1 + below(4));
  for (unsigned nth = 0; nth < all; nth++) {
    struct area *area = &areas[nth];
    *area = (struct area){.kind = below(KINDS), .size = 2 * MIB * (1 + below(largest / 2))};
    fill(area);
    bool is_used = area->kind != NO_ACCESS && area->kind != SPARSE && below(3);
    if (is_used) {
      size_t unit = area->kind == HUGE ? 2 * MIB : MIB / 4, units = area->size / unit, some = 1 + below(units);
      area->used = some * unit;
      area->used_at = area->at + unit * below(units - some + 1);
      area->period_ms = periods_ms[below(5)];
    }
    used += area->used;
    fprintf(stderr, "%s, %zu MiB, of which %zu KiB every %ld ms\n", names[area->kind], area->size / MIB,
            area->used >> 10, area->period_ms);
  }
  printf("%zu\n", used);
  fclose(stdout);
  fclose(stderr);
  for (;;) {
    long now = now_ms(), next = now + 1000;
    for (unsigned nth = 0; nth < all; nth++) {
      struct area *area = &areas[nth];
      if (!area->used) continue;
      if (now >= area->next_ms) {
        use(area);
        area->next_ms = now + area->period_ms;
      }
      if (area->next_ms < next) next = area->next_ms;
    }
    long rest = next - now_ms();
    if (rest > 0) usleep(rest * 1000);
  }
}

// 512 MiB, of which 100 MiB are used ten times a second, and 50 others by a child process with the same address space.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MIB (1UL << 20)

static unsigned char *memory, stack[64 << 10];

static void use(size_t from, size_t size) {
  for (;; usleep(100000))
    for (size_t at = from; at < from + size; at += 4096) ((volatile unsigned char *)memory)[at]++;
}

static int child(void *nothing) {
  (void)nothing;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  use(300 * MIB, 50 * MIB);
  return 0;
}

int main(void) {
  memory = mmap(NULL, 512 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, 512 * MIB, MADV_NOHUGEPAGE);
  memset(memory, 1, 512 * MIB);
  if (clone(child, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL) < 0) return 1;
  puts("ready");
  fflush(stdout);
  use(0, 100 * MIB);
}

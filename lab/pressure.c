// A program for `isotherm eval pressure` in the laboratory: pressure MEBIBYTES ROUNDS
//
// Two fifths of its memory are hot. In each round it touches every other page of the rest, one after the other, and 40
// hot pages at random after each of them. Half of each page compresses badly.
#include <err.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096UL

static uint64_t state = 1;

static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

int main(int argc, char **argv) {
  if (argc != 3) errx(2, "pressure MEBIBYTES ROUNDS");
  size_t pages = strtoul(argv[1], NULL, 10) * 256, hot = pages * 2 / 5;
  char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) err(1, "mmap");
  for (size_t page = 0; page < pages; page++)
    for (size_t at = 0; at < PAGE / 2; at += 8) *(uint64_t *)(memory + page * PAGE + at) = next();
  for (unsigned long rounds = strtoul(argv[2], NULL, 10), round = 0; round < rounds; round++)
    for (size_t cold = hot + round % 2; cold < pages; cold += 2) {
      memory[cold * PAGE]++;
      for (int i = 0; i < 40; i++) memory[next() % hot * PAGE + PAGE - 1]++;
    }
  return 0;
}

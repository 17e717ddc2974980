// Streams through 3 GiB of doubles as a six-step FFT does: fills a matrix, then transposes it by blocks and makes a
// pass over its rows, in turn. Arguments: MiB in all, rounds. Prints its run time and its CPU time in user mode, in
// seconds.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { BLOCK = 16 };

static void transpose(double *from, double *to, size_t side) {
  for (size_t row = 0; row < side; row += BLOCK)
    for (size_t column = 0; column < side; column += BLOCK)
      for (size_t r = row; r < row + BLOCK; r++)
        for (size_t c = column; c < column + BLOCK; c++) to[c * side + r] = from[r * side + c];
}

static void pass(double *data, size_t side) {
  for (size_t row = 0; row < side; row++)
    for (size_t half = side / 2, at = 0; half >= 1 && at < 3; half /= 2, at++)
      for (size_t i = row * side, end = i + half; i < end; i++) {
        double sum = data[i] + data[i + half], difference = data[i] - data[i + half];
        data[i] = 0.5 * sum, data[i + half] = 0.5 * difference;
      }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words) {
  size_t mib = count > 1 ? strtoul(words[1], NULL, 10) : 3072;
  int rounds = count > 2 ? atoi(words[2]) : 3;
  size_t side = (size_t)sqrt((double)(mib << 20) / 2 / sizeof(double)) / BLOCK * BLOCK;
  double began = now();
  double *one = malloc(side * side * sizeof(double)), *other = malloc(side * side * sizeof(double));
  if (!one || !other) return 1;
  for (size_t i = 0; i < side * side; i++) one[i] = (double)(i % 1000);
  for (int round = 0; round < rounds; round++) {
    transpose(one, other, side);
    pass(other, side);
    transpose(other, one, side);
    pass(one, side);
  }
  double sum = 0;
  for (size_t i = 0; i < side; i++) sum += one[i * side + i];
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("%.4f %.4f %g\n", now() - began, usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6, sum);
  return 0;
}

// Takes a share of one CPU in slices, and does nothing else.
//   slices MILLISECONDS SHARE
// Each slice takes so much CPU time. Then it sleeps as long as the share asks for.
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double cpu(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words) {
  if (count != 3) return 2;
  double slice = atof(words[1]) / 1e3, share = atof(words[2]);
  for (;;) {
    for (double began = cpu(); cpu() - began < slice;) {
    }
    usleep((unsigned)((slice / share - slice) * 1e6));
  }
}

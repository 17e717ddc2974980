// A redis client with one request in flight.
//   redis_client SOCKET KEYS HOT RATE SECONDS [LOG [sent]]
// GETs HOT of KEYS keys, evenly spread over all, each once in a round, in a random order. RATE requests a second (0:
// as many as it can), for SECONDS (0: until it is ended). Prints "ready" after two rounds, and at the end the number
// of requests, the mean latency, and its percentiles 50, 99 and 99.9, in microseconds. With LOG, the latency of a
// request counts from when it was due by RATE (with `sent`, from when it was sent), and the file LOG gets two 32-bit
// numbers for each: this time, in microseconds since the start, and its latency in nanoseconds.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 1 << 20 };  // of 0.1 us

static uint32_t cells[CELLS];

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

static double percentile(uint64_t requests, double share) {
  uint64_t seen = 0, wanted = (uint64_t)(share * (double)requests);
  for (size_t cell = 0; cell < CELLS; cell++)
    if ((seen += cells[cell]) > wanted) return (double)cell / 10;
  return CELLS / 10.0;
}

int main(int count, char **words) {
  if (count < 6 || count > 8) return 2;
  FILE *log = count > 6 ? fopen(words[6], "wb") : NULL;
  if (count > 6 && !log) return perror(words[6]), 1;
  // Sleeps end when they should.
  prctl(PR_SET_TIMERSLACK, 1);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", words[1]);
  uint64_t keys = strtoull(words[2], NULL, 10), hot = strtoull(words[3], NULL, 10);
  double rate = atof(words[4]), seconds = atof(words[5]);
  int server = socket(AF_UNIX, SOCK_STREAM, 0);
  if (server < 0 || connect(server, (struct sockaddr *)&address, sizeof address) != 0) return perror("connect"), 1;

  uint64_t *order = malloc(hot * sizeof *order), random = 88172645463325252ULL;
  for (uint64_t i = 0; i < hot; i++) order[i] = i * keys / hot;
  for (uint64_t i = hot - 1; i > 0; i--) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    uint64_t other = random % (i + 1), key = order[i];
    order[i] = order[other], order[other] = key;
  }

  static char answer[1 << 16];
  char request[64];
  uint64_t requests = 0;
  double began = now(), sum = 0;
  for (;; requests++) {
    double sent = now(), due = sent;
    if (seconds > 0 && sent - began >= seconds) break;
    if (rate > 0) {
      due = began + (double)requests / rate;
      // What is late by more than a second is given up: a stopped machine is no reason for a burst.
      if (sent - due > 1) began += sent - due;
      if (due - sent > (log ? 0 : 0.002)) usleep((unsigned)((due - sent) * 1e6)), sent = now();
    }
    if (!log || rate == 0 || count == 8) due = sent;
    int length = snprintf(request, sizeof request, "*2\r\n$3\r\nGET\r\n$12\r\nkey:%08llu\r\n",
                          (unsigned long long)order[requests % hot]);
    if (write(server, request, (size_t)length) != length) return perror("write"), 1;
    size_t have = 0, want = 1;
    while (have < want) {
      ssize_t more = read(server, answer + have, sizeof answer - 1 - have);
      if (more <= 0) return perror("read"), 1;
      have += (size_t)more;
      answer[have] = 0;
      char *line = strstr(answer, "\r\n");
      if (answer[0] != '$' || answer[1] == '-') return fprintf(stderr, "redis answered %.40s\n", answer), 1;
      want = line ? (size_t)(line - answer) + 2 + strtoull(answer + 1, NULL, 10) + 2 : have + 1;
    }
    double took = (now() - due) * 1e6;
    if (log) {
      uint32_t entry[2] = {(uint32_t)((due - began) * 1e6), (uint32_t)(took * 1e3)};
      if (fwrite(entry, sizeof entry, 1, log) != 1) return perror(words[6]), 1;
    }
    sum += took;
    size_t cell = (size_t)(took * 10);
    cells[cell < CELLS ? cell : CELLS - 1]++;
    if (requests == 2 * hot) puts("ready"), fflush(stdout);
  }
  printf("%llu %.2f %.1f %.1f %.1f\n", (unsigned long long)requests, sum / (double)requests,
         percentile(requests, 0.5), percentile(requests, 0.99), percentile(requests, 0.999));
  return log && fclose(log) != 0 ? perror(words[6]), 1 : 0;
}

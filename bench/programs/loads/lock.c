// A library that locks all memory of the Java program that loads it, as Elasticsearch does with bootstrap.memory_lock.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int JNI_OnLoad(void *machine, void *reserved) {
  (void)machine, (void)reserved;
  if (mlockall(MCL_CURRENT)) {
    perror("mlockall");
    exit(1);
  }
  return 0x00010008; // JNI_VERSION_1_8
}

// A program with a guest of KVM, for the laboratory's tests: guest MEBIBYTES USED [shared]
//
// The guest has so much memory. Every 20 ms it touches all pages from the first mebibyte up to USED mebibytes. The
// program prints the address of this memory in hexadecimal when the guest runs.
#include <err.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define CODE 0x1000
#define TABLES 0x4000
#define PAGE 4096

static void check(int result, const char *what) {
  if (result < 0) err(1, "%s", what);
}

// 64-bit code: for (rbx = 1 MiB; rbx < rcx; rbx += 4096) touch; out 0x10, al; again.
static const unsigned char code[] = {
    0xbb, 0x00, 0x00, 0x10, 0x00,              // mov ebx, 0x100000
    0x88, 0x03,                                // mov [rbx], al
    0x48, 0x81, 0xc3, 0x00, 0x10, 0x00, 0x00,  // add rbx, 0x1000
    0x48, 0x39, 0xcb,                          // cmp rbx, rcx
    0x72, 0xf2,                                // jb the touch
    0xe6, 0x10,                                // out 0x10, al
    0xeb, 0xe9,                                // jmp the beginning
};

int main(int argc, char **argv) {
  if (argc < 3) errx(2, "guest MEBIBYTES USED [shared]");
  unsigned long size = strtoul(argv[1], NULL, 10) * MIB, used = strtoul(argv[2], NULL, 10) * MIB;
  int flags = (argc > 3 ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS;
  unsigned char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) err(1, "mmap");
  memset(memory, 1, size);
  memcpy(memory + CODE, code, sizeof code);
  // Page tables of the guest: the first GiB, in huge pages, at the addresses that it has.
  unsigned long *tables = (unsigned long *)(memory + TABLES);
  memset(tables, 0, 3 * PAGE);
  tables[0] = (TABLES + PAGE) | 3;
  tables[512] = (TABLES + 2 * PAGE) | 3;
  for (unsigned long i = 0; i < 512; i++) tables[1024 + i] = i * 2 * MIB | 0x83;

  int kvm = open("/dev/kvm", O_RDWR);
  check(kvm, "/dev/kvm");
  int vm = ioctl(kvm, KVM_CREATE_VM, 0);
  check(vm, "KVM_CREATE_VM");
  check(ioctl(vm, KVM_SET_TSS_ADDR, 0xfffbd000UL), "KVM_SET_TSS_ADDR");
  struct kvm_userspace_memory_region region = {.memory_size = size, .userspace_addr = (unsigned long)memory};
  check(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region), "KVM_SET_USER_MEMORY_REGION");
  int cpu = ioctl(vm, KVM_CREATE_VCPU, 0);
  check(cpu, "KVM_CREATE_VCPU");
  int run_size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
  struct kvm_run *run = mmap(NULL, run_size, PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
  if (run == MAP_FAILED) err(1, "mmap of a processor");

  struct kvm_sregs system;
  check(ioctl(cpu, KVM_GET_SREGS, &system), "KVM_GET_SREGS");
  struct kvm_segment segment = {.limit = 0xffffffff, .selector = 8, .present = 1, .type = 11, .s = 1, .l = 1, .g = 1};
  system.cs = segment;
  segment.type = 3, segment.selector = 16, segment.l = 0, segment.db = 1;
  system.ds = system.es = system.fs = system.gs = system.ss = segment;
  system.cr3 = TABLES;
  system.cr4 |= 1 << 5;                         // PAE
  system.cr0 |= 1 | 1u << 31;                   // PE, PG
  system.efer |= 1 << 8 | 1 << 10;              // LME, LMA
  check(ioctl(cpu, KVM_SET_SREGS, &system), "KVM_SET_SREGS");
  struct kvm_regs registers = {.rip = CODE, .rflags = 2, .rcx = used};
  check(ioctl(cpu, KVM_SET_REGS, &registers), "KVM_SET_REGS");

  for (int rounds = 0;; rounds++) {
    check(ioctl(cpu, KVM_RUN, 0), "KVM_RUN");
    if (run->exit_reason != KVM_EXIT_IO) errx(1, "the guest has stopped, with reason %d", run->exit_reason);
    if (rounds == 0) printf("%lx\n", (unsigned long)memory), fflush(stdout);
    usleep(20000);
  }
}

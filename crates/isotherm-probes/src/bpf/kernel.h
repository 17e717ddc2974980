/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Declarations that the programs need of the kernel: the integer types that libbpf's headers use, and the structures
 * that the programs read, each with only the fields that they read. The loader fills in the offsets of these fields
 * from the BTF of the running kernel.
 */
#ifndef ISOTHERM_KERNEL_H
#define ISOTHERM_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

/* Values of enum bpf_map_type and of the map flags, as in the kernel's user-space interface (linux/bpf.h). */
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_F_MMAPABLE 1024
#define BPF_ANY 0

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct {
	void *pgd;
	unsigned long brk;
};

/* The registers of user space at a system call. */
struct pt_regs {
	unsigned long bp;
	unsigned long r10;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
};

struct file {
	const void *f_op;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct {
	int on_rq;
	int pid;
	int tgid;
	unsigned long nvcsw;
	unsigned long nivcsw;
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct files_struct *files;
};

#pragma clang attribute pop

#endif

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The two things that isotherm asks of the kernel's inside: where the page tables of an opened process begin, and the
 * page-table entries of many addresses at once. Both only read. Their structures are known to program.rs, too.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define MAX_SAMPLES 16384

#define ENTRY_PRESENT 0x001ULL
#define ENTRY_ACCESSED 0x020ULL
#define ENTRY_HUGE 0x080ULL
/* The level of the entry is put where hardware leaves bits to software. */
#define ENTRY_LEVEL_SHIFT 9

#define TABLE_SIZE 4096
#define TABLE_INDEX_MASK 511

/* One address to be looked up, and what was found: an entry's physical address, level, present and accessed bits. */
struct sample {
	__u64 pgd;
	__u64 addr;
	__u64 entry;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_SAMPLES);
	__type(key, __u32);
	__type(value, struct sample);
} samples SEC(".maps");

struct walk_args {
	/* The address at which the kernel maps physical address 0. */
	__u64 direct_map;
	/* The bits of an entry that are a physical address. */
	__u64 address_mask;
	/* The end of memory: nothing is read from there on. */
	__u64 memory_end;
	__u32 levels;
	__u32 count;
};

static __always_inline __u64 leaf(const struct walk_args *args, __u64 entry, __u64 level)
{
	__u64 kept = args->address_mask | ENTRY_PRESENT | ENTRY_ACCESSED;

	return (entry & kept) | level << ENTRY_LEVEL_SHIFT;
}

/* The entry that maps `addr`, or 0 if none is present. */
static __always_inline __u64 look_up(const struct walk_args *args, __u64 table, __u64 addr)
{
	__u64 entry, phys;
	__u32 level;

#pragma unroll
	for (level = 5; level > 0; level--) {
		if (level > args->levels)
			continue;
		table += ((addr >> (12 + 9 * (level - 1))) & TABLE_INDEX_MASK) * sizeof(entry);
		if (bpf_probe_read_kernel(&entry, sizeof(entry), (const void *)table))
			return 0;
		if (!(entry & ENTRY_PRESENT))
			return 0;
		if (level == 1 || (level <= 3 && entry & ENTRY_HUGE))
			return leaf(args, entry, level);
		phys = entry & args->address_mask;
		if (phys + TABLE_SIZE > args->memory_end)
			return 0;
		table = args->direct_map + phys;
	}
	return 0;
}

static long walk_one(__u32 index, void *ctx)
{
	struct sample *sample = bpf_map_lookup_elem(&samples, &index);

	if (!sample)
		return 1;
	sample->entry = sample->pgd ? look_up(ctx, sample->pgd, sample->addr) : 0;
	return 0;
}

/* Fills in the entry of the first `count` samples. */
SEC("syscall")
int walk(struct walk_args *ctx)
{
	struct walk_args args = *ctx;

	return bpf_loop(args.count, walk_one, &args, 0) == args.count ? 0 : 1;
}

struct resolve_args {
	/* A file descriptor of the caller, of a file in /proc that stands for an address space. */
	__u64 fd;
	/* Out: what the file is, its address space, and where its page tables begin. */
	__u64 f_op;
	__u64 mm;
	__u64 pgd;
	/* Out: the caller's own address space. */
	__u64 own_mm;
};

/*
 * Finds the page tables of the process whose /proc/PID/pagemap the caller has opened: such a file holds the address
 * space, so that neither it nor its top page table is used for anything else while the file is open.
 */
SEC("syscall")
int resolve(struct resolve_args *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **slots = BPF_CORE_READ(table, fd);
	struct file *file = 0;
	struct mm_struct *mm;

	if (ctx->fd >= BPF_CORE_READ(table, max_fds))
		return 1;
	if (bpf_probe_read_kernel(&file, sizeof(file), slots + ctx->fd) || !file)
		return 1;
	mm = BPF_CORE_READ(file, private_data);
	ctx->f_op = (__u64)BPF_CORE_READ(file, f_op);
	ctx->mm = (__u64)mm;
	ctx->pgd = mm ? (__u64)BPF_CORE_READ(mm, pgd) : 0;
	ctx->own_mm = (__u64)BPF_CORE_READ(task, mm);
	return 0;
}

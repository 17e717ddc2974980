/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Reads page tables in the kernel: finds the direct map and the top page table of an opened process, looks up the
 * page-table entries of many addresses at once, and copies whole page tables. The program only reads. program.rs
 * declares the same structures.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define MAX_SAMPLES 512

#define ENTRY_PRESENT 0x001ULL
#define ENTRY_ACCESSED 0x020ULL
#define ENTRY_HUGE 0x080ULL
/* In an entry that is not present: the entry maps a page whose protection is NONE. */
#define ENTRY_PROTNONE 0x100ULL
/* The level of the entry is stored in the bits that the hardware leaves to software. */
#define ENTRY_LEVEL_SHIFT 9

#define TABLE_SIZE 4096
#define TABLE_INDEX_MASK 511

/* An address to look up (in), and its entry (out): physical address, level, present bit and accessed bit. */
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
	/* The bits of an entry that hold a physical address. */
	__u64 address_mask;
	/* The end of memory. Nothing is read at or above it. */
	__u64 memory_end;
	__u32 levels;
	__u32 count;
};

static __always_inline __u64 leaf(const struct walk_args *args, __u64 entry, __u64 level)
{
	__u64 kept = args->address_mask | ENTRY_PRESENT | ENTRY_ACCESSED;

	return (entry & kept) | level << ENTRY_LEVEL_SHIFT;
}

/*
 * The same of an entry that is not present, or 0. A page with protection NONE (mprotect, NUMA balancing) is in memory.
 * The kernel inverts the address in its entry.
 */
static __always_inline __u64 forbidden_leaf(const struct walk_args *args, __u64 entry, __u64 level)
{
	if (!(entry & ENTRY_PROTNONE) || level > 2 || (level == 2 && !(entry & ENTRY_HUGE)))
		return 0;
	return leaf(args, (entry ^ args->address_mask) | ENTRY_PRESENT, level);
}

/* The entry that maps `addr`, or 0 if none does. */
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
			return forbidden_leaf(args, entry, level);
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

/* Looks up the first `count` samples. */
SEC("syscall")
int walk(struct walk_args *ctx)
{
	struct walk_args args = *ctx;

	return bpf_loop(args.count, walk_one, &args, 0) == args.count ? 0 : 1;
}

#define MAX_TABLES 16
#define TABLE_ENTRIES 512

/* A request to copy a whole page table, and its result. */
struct table_request {
	__u64 pgd;
	__u64 addr;
	/* In: the level of the table, 1 to 5. Out: 0 if the table was not copied. */
	__u64 level;
	/* Out: the entry above the table at which the walk ended, as in struct sample; 0 if there is none. */
	__u64 entry;
};

struct page_table {
	__u64 entries[TABLE_ENTRIES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_TABLES);
	__type(key, __u32);
	__type(value, struct table_request);
} table_requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_TABLES);
	__type(key, __u32);
	__type(value, struct page_table);
} page_tables SEC(".maps");

/*
 * The address of the table of level `wanted` for `addr`, or 0. If the walk ended at an entry above that table, `found`
 * is set to that entry.
 */
static __always_inline __u64 find_table(const struct walk_args *args, __u64 table, __u64 addr, __u64 wanted,
					__u64 *found)
{
	__u64 entry, phys;
	__u32 level;

#pragma unroll
	for (level = 5; level > 1; level--) {
		if (level > args->levels)
			continue;
		if (level <= wanted)
			break;
		table += ((addr >> (12 + 9 * (level - 1))) & TABLE_INDEX_MASK) * sizeof(entry);
		if (bpf_probe_read_kernel(&entry, sizeof(entry), (const void *)table))
			return 0;
		if (!(entry & ENTRY_PRESENT)) {
			*found = forbidden_leaf(args, entry, level);
			return 0;
		}
		if (level <= 3 && entry & ENTRY_HUGE) {
			*found = leaf(args, entry, level);
			return 0;
		}
		phys = entry & args->address_mask;
		if (phys + TABLE_SIZE > args->memory_end)
			return 0;
		table = args->direct_map + phys;
	}
	return table;
}

static long copy_one(__u32 index, void *ctx)
{
	struct table_request *request = bpf_map_lookup_elem(&table_requests, &index);
	struct page_table *copy = bpf_map_lookup_elem(&page_tables, &index);
	__u64 table, entry = 0;

	if (!request || !copy)
		return 1;
	table = request->pgd ? find_table(ctx, request->pgd, request->addr, request->level, &entry) : 0;
	request->entry = entry;
	if (!table || bpf_probe_read_kernel(copy, sizeof(*copy), (const void *)table))
		request->level = 0;
	return 0;
}

/* Copies the tables of the first `count` requests. */
SEC("syscall")
int copy_tables(struct walk_args *ctx)
{
	struct walk_args args = *ctx;

	return bpf_loop(args.count, copy_one, &args, 0) == args.count ? 0 : 1;
}

struct resolve_args {
	/* In: a file descriptor of the caller, for a /proc/PID/pagemap. */
	__u64 fd;
	/* Out: the file's operations, its address space, and the top page table of the address space. */
	__u64 f_op;
	__u64 mm;
	__u64 pgd;
	/* Out: the caller's own address space. */
	__u64 own_mm;
};

/*
 * Finds the top page table of the process whose /proc/PID/pagemap the caller has opened. The open file holds a
 * reference to the address space, so that neither it nor its top page table is reused while the file is open.
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

struct direct_map_args {
	/* Out: the address at which the kernel maps physical address 0; 0 if the kernel does not tell it. */
	__u64 start;
};

/* Reads the kernel's variable `page_offset_base`. */
SEC("syscall")
int direct_map(struct direct_map_args *ctx)
{
	char name[] = "page_offset_base";
	__u64 variable = 0, start = 0;

	ctx->start = 0;
	if (bpf_kallsyms_lookup_name(name, sizeof(name), 0, &variable) || !variable)
		return 0;
	if (!bpf_probe_read_kernel(&start, sizeof(start), (const void *)variable))
		ctx->start = start;
	return 0;
}

/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Reports when watched processes execute USDT probes, with the string that the first argument points to, if that is
 * asked for. It also reports new programs of these processes, which have other probes. The programs only read.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "watched.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The most hits that are reported. Further ones are counted as lost. mod.rs has the same number. */
#define MOST_HITS 10000
/* The ring has room for all of them: see the size of struct hit. */
#define RING_SIZE (4 << 20)

/* The longest text and its final zero. hits.rs keeps fewer bytes, and marks longer ones as cut. */
#define TEXT_SIZE 258
#define PAGE_SIZE 4096

/* Stands for the index of a probe: the process executes a new program. */
#define NEW_PROGRAM 0xffffffff

/* Where the argument is. argument.rs makes the cookie, which has all of it. */
#define KIND_CONSTANT 1
#define KIND_REGISTER 2
#define KIND_MEMORY 3
#define NO_INDEX 31

#define MAX_THREADS 16384

/* hits.rs reads these fields by their offsets. */
struct hit {
	/* When the probe was executed, by CLOCK_MONOTONIC, in nanoseconds. */
	__u64 time;
	__u32 pid;
	/* The index of the probe. */
	__u32 probe;
	/* The bytes of the text. */
	__u32 length;
	__u32 unused;
	char text[264];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_SIZE);
} hits SEC(".maps");

struct counts {
	/* The hits of watched processes. */
	__u64 all;
	/* Those that were not reported. */
	__u64 lost;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/* The last hit of a thread. */
struct last {
	__u64 ip;
	/* The number of the file whose probes were attached to. */
	__u64 file;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u64);
	__type(value, struct last);
} last_hits SEC(".maps");

/*
 * Whether this program runs a second time for one hit. The file systems of two containers can have one file below them,
 * as with overlayfs. It is attached to twice then, and each hit runs the program twice, one after the other.
 */
static __always_inline int is_repeated(__u64 ip, __u64 file)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct last *last = bpf_map_lookup_elem(&last_hits, &thread), hit = { .ip = ip, .file = file };

	if (last && last->ip == ip)
		return last->file != file;
	bpf_map_update_elem(&last_hits, &thread, &hit, BPF_ANY);
	return 0;
}

/* A register of user space, by its place in struct pt_regs, which is a part of the interface of ptrace(2). */
static __always_inline __u64 user_register(struct pt_regs *ctx, __u64 nth)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)ctx + (nth & 31) * sizeof(value));
	return value;
}

/* The argument that the cookie describes. 0 if there is none. */
static __always_inline __u64 argument(struct pt_regs *ctx, __u64 cookie)
{
	__u64 kind = cookie >> 48 & 3, index = cookie >> 55 & 31, value;
	__s64 offset = (__s32)cookie;

	if (kind == KIND_CONSTANT)
		return offset;
	if (kind != KIND_REGISTER && kind != KIND_MEMORY)
		return 0;
	value = user_register(ctx, cookie >> 50 & 31);
	if (kind == KIND_REGISTER)
		return value;
	if (index != NO_INDEX)
		value += user_register(ctx, index) << (cookie >> 60 & 3);
	value += offset;
	return bpf_copy_from_user(&value, sizeof(value), (const void *)value) ? 0 : value;
}

/* Copies the string at an address of the process, and returns its length. */
static __always_inline __u32 copy_text(char *text, __u64 address)
{
	__u64 next = (address | (PAGE_SIZE - 1)) + 1;
	long copied = bpf_probe_read_user_str(text, TEXT_SIZE, (const void *)address);
	char byte;

	if (copied < 0) {
		/* A page of the string may not be in memory yet. */
		bpf_copy_from_user(&byte, 1, (const void *)address);
		if (next < address + TEXT_SIZE)
			bpf_copy_from_user(&byte, 1, (const void *)next);
		copied = bpf_probe_read_user_str(text, TEXT_SIZE, (const void *)address);
	}
	return copied > 0 ? copied - 1 : 0;
}

SEC("uprobe.multi.s")
int executed_probe(struct pt_regs *ctx)
{
	__u64 time = bpf_ktime_get_ns(), cookie, address;
	struct hit hit = {};
	struct counts *count;
	__u32 zero = 0;

	if (!is_watched())
		return 0;
	cookie = bpf_get_attach_cookie(ctx);
	if (is_repeated(ctx->ip, cookie >> 40 & 0xff))
		return 0;
	count = bpf_map_lookup_elem(&counts, &zero);
	if (!count)
		return 0;
	if (__sync_fetch_and_add(&count->all, 1) >= MOST_HITS) {
		__sync_fetch_and_add(&count->lost, 1);
		return 0;
	}
	hit.time = time;
	hit.pid = bpf_get_current_pid_tgid() >> 32;
	hit.probe = cookie >> 32 & 0xff;
	address = argument(ctx, cookie);
	if (address)
		hit.length = copy_text(hit.text, address);
	/* Nothing is reserved before, because a reader waits for what is. */
	if (bpf_ringbuf_output(&hits, &hit, sizeof(hit), 0))
		__sync_fetch_and_add(&count->lost, 1);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(executed)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct hit hit = {};

	if (!is_watched())
		return 0;
	/* Other code is at its addresses now. */
	bpf_map_delete_elem(&last_hits, &thread);
	hit.time = bpf_ktime_get_ns();
	hit.pid = thread >> 32;
	hit.probe = NEW_PROGRAM;
	/* If it is lost, the process is looked at a little later. */
	bpf_ringbuf_output(&hits, &hit, __builtin_offsetof(struct hit, text), 0);
	return 0;
}

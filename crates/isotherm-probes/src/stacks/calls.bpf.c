/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Reports the calls of watched processes that map memory: what was mapped, the registers of user space, and a copy of
 * the top of the stack, from which calls.rs and the unwinder find the calling functions. The programs only read.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "watched.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define RING_SIZE (16 << 20)
/* The copy of the stack is made in chunks, so that one that reaches beyond the end of the stack is short. */
#define CHUNK 512
#define CHUNKS 32

/* As in the kernel's user-space interface: numbers of system calls of x86-64, and a flag of mmap(). */
#define CALL_MMAP 9
#define CALL_BRK 12
#define CALL_MREMAP 25
#define MAP_ANONYMOUS 0x20
/* The results of system calls from -MAX_ERRNO to -1 are errors. */
#define MAX_ERRNO 4095
/* The code segment of programs of 64 bits. */
#define USER_CS 0x33

/* What mapped the memory. calls.rs has the same numbers. */
enum kind {
	KIND_MMAP = 0,
	KIND_MREMAP = 1,
	KIND_BRK = 2,
	/* A new program: nothing of what was mapped before is left. */
	KIND_EXEC = 3,
};

/* calls.rs reads these fields by their offsets. */
struct call {
	/* When the call returned, by CLOCK_MONOTONIC, in nanoseconds. */
	__u64 time;
	/* When the process started, since the boot, in nanoseconds. */
	__u64 started;
	__u64 start;
	__u64 end;
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u32 pid;
	__u32 kind;
	/* The bytes of the stack that were copied, from sp upwards. */
	__u32 copied;
	__u32 unused;
	__u8 stack[CHUNK * CHUNKS];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_SIZE);
} calls SEC(".maps");

/* The number of calls for which the ring had no room. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* The end of the heap before a brk() that is under way, by thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WATCHED);
	__type(key, __u64);
	__type(value, __u64);
} breaks SEC(".maps");

static __always_inline struct call *begin(__u32 kind)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct call *call = bpf_ringbuf_reserve(&calls, sizeof(*call), 0);

	if (!call) {
		__u32 zero = 0;
		__u64 *count = bpf_map_lookup_elem(&lost, &zero);

		if (count)
			__sync_fetch_and_add(count, 1);
		return 0;
	}
	call->time = bpf_ktime_get_ns();
	call->started = BPF_CORE_READ(task, group_leader, start_boottime);
	call->pid = bpf_get_current_pid_tgid() >> 32;
	call->kind = kind;
	call->copied = 0;
	call->unused = 0;
	return call;
}

/* Reports that the calling process has mapped this memory. */
static __always_inline void report(const struct pt_regs *regs, __u32 kind, __u64 start, __u64 end)
{
	struct call *call = begin(kind);
	__u32 chunk;

	if (!call)
		return;
	call->start = start;
	call->end = end;
	call->ip = regs->ip;
	call->sp = regs->sp;
	call->bp = regs->bp;
#pragma unroll
	for (chunk = 0; chunk < CHUNKS; chunk++) {
		if (bpf_probe_read_user(call->stack + chunk * CHUNK, CHUNK, (const void *)(call->sp + chunk * CHUNK)))
			break;
		call->copied += CHUNK;
	}
	bpf_ringbuf_submit(call, 0);
}

static __always_inline int failed(long result)
{
	return result < 0 && result >= -MAX_ERRNO;
}

static __always_inline int after_mmap(const struct pt_regs *regs, long result)
{
	if (!failed(result) && regs->r10 & MAP_ANONYMOUS && is_watched())
		report(regs, KIND_MMAP, result, result + regs->si);
	return 0;
}

static __always_inline int after_mremap(const struct pt_regs *regs, long result)
{
	__u64 old_start = regs->di, old_size = regs->si, size = regs->dx;
	/* Memory that shrinks where it is was mapped by another call. */
	int shrank = (__u64)result == old_start && size <= old_size;

	if (!failed(result) && !shrank && is_watched())
		report(regs, KIND_MREMAP, result, result + size);
	return 0;
}

static __always_inline int before_brk(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 thread, end;

	if (!is_watched())
		return 0;
	thread = bpf_get_current_pid_tgid();
	end = BPF_CORE_READ(task, mm, brk);
	bpf_map_update_elem(&breaks, &thread, &end, BPF_ANY);
	return 0;
}

static __always_inline int after_brk(const struct pt_regs *regs, long result)
{
	__u64 thread = bpf_get_current_pid_tgid();
	__u64 *before = bpf_map_lookup_elem(&breaks, &thread), end;

	if (!before)
		return 0;
	end = *before;
	bpf_map_delete_elem(&breaks, &thread);
	if ((__u64)result > end)
		report(regs, KIND_BRK, end, result);
	return 0;
}

/*
 * In the functions of these system calls, so that no other call is slower. Code of 32 bits calls other functions.
 */
SEC("fexit/__x64_sys_mmap")
int BPF_PROG(mmap_left, const struct pt_regs *regs, long result)
{
	return after_mmap(regs, result);
}

SEC("fexit/__x64_sys_mremap")
int BPF_PROG(mremap_left, const struct pt_regs *regs, long result)
{
	return after_mremap(regs, result);
}

SEC("fentry/__x64_sys_brk")
int BPF_PROG(brk_entered, const struct pt_regs *regs)
{
	return before_brk();
}

SEC("fexit/__x64_sys_brk")
int BPF_PROG(brk_left, const struct pt_regs *regs, long result)
{
	return after_brk(regs, result);
}

/* At the tracepoints of all system calls, where programs cannot be attached to functions. */
SEC("tp_btf/sys_enter")
int BPF_PROG(any_entered, const struct pt_regs *regs, long number)
{
	return number == CALL_BRK && regs->cs == USER_CS ? before_brk() : 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(any_left, const struct pt_regs *regs, long result)
{
	/* Code of 32 bits has other numbers for its calls. */
	if (regs->cs != USER_CS)
		return 0;
	if (regs->orig_ax == CALL_MMAP)
		return after_mmap(regs, result);
	if (regs->orig_ax == CALL_BRK)
		return after_brk(regs, result);
	return regs->orig_ax == CALL_MREMAP ? after_mremap(regs, result) : 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(executed)
{
	struct call *call;

	if (!is_watched())
		return 0;
	call = begin(KIND_EXEC);
	if (!call)
		return 0;
	call->start = 0;
	call->end = ~0ULL >> 1;
	call->ip = 0;
	call->sp = 0;
	call->bp = 0;
	bpf_ringbuf_submit(call, 0);
	return 0;
}

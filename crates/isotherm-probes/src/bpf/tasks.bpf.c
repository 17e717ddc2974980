/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Lists the threads that have an address space, with the number of times that each has left its processor. tasks.rs
 * reads the list, and declares the same structure. The program is an iterator, and only reads.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

struct thread {
	/* The address of its address space. */
	__u64 mm;
	/* When it began, and its ID: no other thread has both. */
	__u64 began;
	__u64 tid;
	/* How many times it has left its processor; the greatest number if it runs, or waits for a processor. */
	__u64 switches;
};

SEC("iter/task")
int list_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread thread = {};

	if (!task)
		return 0;
	thread.mm = (__u64)task->mm;
	if (!thread.mm)
		return 0;
	thread.began = task->start_boottime;
	thread.tid = task->pid;
	thread.switches = task->on_rq ? ~0ULL : task->nvcsw + task->nivcsw;
	bpf_seq_write(ctx->meta->seq, &thread, sizeof(thread));
	return 0;
}

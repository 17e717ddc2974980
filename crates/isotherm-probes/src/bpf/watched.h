/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The processes that programs watch: those that user space puts into the map, and their children or descendants if it
 * says so. watched.rs has the same flags and names.
 */
#ifndef ISOTHERM_WATCHED_H
#define ISOTHERM_WATCHED_H

/* The macro BPF_PROG declares a parameter that few programs use. */
#pragma clang diagnostic ignored "-Wunused-parameter"

#define MAX_WATCHED 16384

/* The process is watched. */
#define WATCHED 1
/* Children of the process are watched, but not their children. */
#define CHILDREN 2
/* All descendants of the process are watched. */
#define DESCENDANTS 4

/* The watched processes, by their process ID in the first PID namespace. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WATCHED);
	__type(key, __u32);
	__type(value, __u32);
} watched SEC(".maps");

static __always_inline int is_watched(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u32 *flags = bpf_map_lookup_elem(&watched, &pid);

	return flags && *flags & WATCHED;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	__u32 pid = parent->tgid, child_pid = child->tgid;
	__u32 *flags = bpf_map_lookup_elem(&watched, &pid), inherited;

	if (!flags || pid == child_pid || !(*flags & (CHILDREN | DESCENDANTS)))
		return 0;
	inherited = WATCHED | (*flags & DESCENDANTS);
	bpf_map_update_elem(&watched, &child_pid, &inherited, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(exited, struct task_struct *task)
{
	__u32 pid = task->tgid;

	if (task->pid == task->tgid)
		bpf_map_delete_elem(&watched, &pid);
	return 0;
}

#endif

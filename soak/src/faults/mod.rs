//! Fault injection: the n-th system call of a kind fails, for each n until a command passes.
//!
//! A command runs under ptrace(2). The tracer counts the calls of one kind that the process makes, on all of its
//! threads and in the processes that it forks, and lets one of them fail: the kernel does not execute it, and the
//! process sees the error instead. A process that executes another program is let go. So is isotherm itself, as long as
//! a helper runs that it has forked: the helper traces isotherm and its targets, and a process has one tracer.
//!
//! strace injects faults too, but counts the calls of each thread on its own, and traces the programs that the process
//! starts. A seccomp filter is inherited by these programs as well, and LD_PRELOAD sees neither a static binary nor
//! calls that the C library makes itself.

#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, unused_imports, reason = "faults are injected on x86-64 only")
)]

mod cases;
mod fault;
mod kills;
mod recorder;
mod sweep;
mod tracer;

pub use cases::{Case, Room, cases};
pub use fault::{Effect, Fault, Kind};
pub use kills::kills;
pub use sweep::{Extent, Finding, sweep};
pub use tracer::{Run, Traced, available};

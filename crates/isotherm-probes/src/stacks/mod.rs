//! Which code maps memory: the call stacks of mmap(2), mremap(2) and brk(2).
//!
//! eBPF programs run when these calls return in a watched process. They report the mapped range, three registers, and a
//! copy of the top 16 KiB of the stack. A thread of isotherm then unwinds the copy and looks up the names of the
//! functions ([`StackCollector`]). Properties and limits:
//!
//! - It needs Linux 5.17 or later with BTF, on x86-64, and the rights of the `bpf` probe. It needs neither tracefs nor
//!   kprobes.
//! - These calls take a little longer in all processes of the machine. Other calls do so only where the kernel runs no
//!   eBPF programs in single calls ([`StackTracer::slows_all_calls`]).
//! - Stacks are unwound by the tables that compilers write for exceptions (`.eh_frame`). They need no debug information
//!   and no frame pointers. Code without such tables, such as that of a just-in-time compiler, needs frame pointers.
//! - Names come from the symbol tables of ELF files, and from the files `/tmp/perf-PID.map` that just-in-time compilers
//!   write.
//! - A stack that is deeper than the copy, or that has 127 frames, is cut at its outer end.
//! - Calls are dropped and counted when there are more than the thread can process.

#[cfg(target_arch = "x86_64")]
mod calls;
#[cfg(target_arch = "x86_64")]
mod collector;
mod error;
#[cfg(target_arch = "x86_64")]
mod modules;
#[cfg(target_arch = "x86_64")]
mod perf_map;
#[cfg(target_arch = "x86_64")]
mod symbols;
#[cfg(target_arch = "x86_64")]
mod tracer;
#[cfg(not(target_arch = "x86_64"))]
#[path = "unsupported.rs"]
mod tracer;
#[cfg(target_arch = "x86_64")]
mod unwind;

#[cfg(target_arch = "x86_64")]
pub use collector::StackCollector;
pub use error::StacksError;
#[cfg(target_arch = "x86_64")]
pub use perf_map::PerfMap;
#[cfg(not(target_arch = "x86_64"))]
pub use tracer::StackCollector;
pub use tracer::StackTracer;

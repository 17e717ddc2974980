//! When processes execute USDT probes: the static probes that programmers have put into programs and libraries, as by
//! `DTRACE_PROBE` of `<sys/sdt.h>`.
//!
//! A probe is an instruction that does nothing. A note in the file says where it is. The kernel puts a breakpoint there
//! (a uprobe), and an eBPF program reports the hit, if the process is watched, with its time. For `isotherm:mark` it
//! copies the string that the first argument points to. Properties and limits:
//!
//! - It needs Linux 6.6 or later with BTF and uprobes, on x86-64, and the rights of the `bpf` probe.
//! - Probes are found in the files that watched processes have mapped as code. They are looked for when a process joins
//!   or executes a new program, and at growing intervals of up to two seconds after that. Hits that come before are
//!   missed.
//! - The breakpoint is in all processes that map the file. A hit of a process that is not watched costs it the
//!   breakpoint, and is not reported.
//! - After [`MOST_HITS`], further ones are only counted.
//! - Files are read and never mapped: a process that cuts its library short does no harm.

#[cfg(target_arch = "x86_64")]
mod argument;
#[cfg(target_arch = "x86_64")]
mod collector;
mod error;
#[cfg(target_arch = "x86_64")]
mod files;
mod hit;
#[cfg(target_arch = "x86_64")]
mod hits;
#[cfg(target_arch = "x86_64")]
mod looks;
#[cfg(target_arch = "x86_64")]
mod notes;
mod probe;
#[cfg(target_arch = "x86_64")]
mod similar;
#[cfg(target_arch = "x86_64")]
mod tracer;
#[cfg(not(target_arch = "x86_64"))]
#[path = "unsupported.rs"]
mod tracer;

/// The most hits that are reported. Further ones are lost.
pub const MOST_HITS: u64 = 10_000;

/// The most probes that are watched at a time.
pub const MOST_PROBES: usize = 1 << 8;

#[cfg(target_arch = "x86_64")]
pub use collector::UsdtCollector;
pub use error::UsdtError;
pub use hit::{UsdtHit, UsdtHits};
#[cfg(target_arch = "x86_64")]
pub use notes::usdt_probes_of;
pub use probe::{UsdtProbe, UsdtProbeError};
pub use tracer::UsdtTracer;
#[cfg(not(target_arch = "x86_64"))]
pub use tracer::{UsdtCollector, usdt_probes_of};

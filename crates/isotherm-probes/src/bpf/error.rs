//! The errors of the `bpf` probe.

use std::io;

use isotherm_core::TargetId;
use isotherm_kernel::unreadable_hint;
use thiserror::Error;

/// Why the `bpf` probe does not work here, and how to fix it.
#[derive(Debug, Error)]
pub enum BpfError {
    /// The architecture is not x86-64.
    #[error("the bpf probe reads the page tables of x86-64, but this machine is {0} (use another probe)")]
    Architecture(&'static str),
    /// The kernel has no type information.
    #[error(
        "the running kernel provides no type information at {path}, which is needed to read its structures \
         (use a kernel built with CONFIG_DEBUG_INFO_BTF)"
    )]
    NoBtf {
        /// The file that should contain it.
        path: &'static str,
        /// The error of open(2).
        source: io::Error,
    },
    /// The kernel did not load the eBPF program.
    #[error("the kernel refused to load the eBPF program: {cause} ({fix}){log}")]
    Load {
        /// The error of libbpf, as text: the log must follow it.
        cause: String,
        /// How to fix it, most probably.
        fix: String,
        /// The last lines of the verifier's log, each after a line break; empty if there is no log.
        log: String,
    },
    /// A loaded program cannot be run.
    #[error("the eBPF program `{program}` failed (no kernel is expected to do this: report it)")]
    Run {
        /// The name of the program.
        program: &'static str,
        /// The error of libbpf.
        source: libbpf_error::Error,
    },
    /// The program ran, but did not finish.
    #[error("the eBPF program `{program}` did not finish: {why} (no kernel is expected to do this: report it)")]
    GaveUp {
        /// The name of the program.
        program: &'static str,
        /// What went wrong.
        why: &'static str,
    },
    /// A file of the kernel cannot be read.
    #[error("{path} cannot be read ({fix})")]
    File {
        /// The file.
        path: String,
        /// The error of the system call.
        source: io::Error,
        /// How to fix it.
        fix: &'static str,
    },
    /// A file of the kernel lacks the expected content.
    #[error("{path} does not show {what} ({fix})")]
    Silent {
        /// The file.
        path: &'static str,
        /// The missing content.
        what: &'static str,
        /// How to fix it.
        fix: &'static str,
    },
    /// A table of pages cannot be read.
    #[error(transparent)]
    Table(isotherm_kernel::TableError),
    /// A mapping of the program's memory failed.
    #[error("{what} failed (is the memory of this process limited?)")]
    Memory {
        /// The operation.
        what: &'static str,
        /// The error of mmap(2).
        source: io::Error,
    },
    /// The memory for the test is not available.
    #[error(transparent)]
    Scratch(#[from] isotherm_kernel::NoScratch),
    /// No candidate for the direct map made the walks of this process's own addresses end in the right frames.
    #[error(
        "the kernel's direct map was not found: none of {tried} possible start addresses led from this process's own \
         addresses to its own pages (use another probe: page tables are not read without this proof)"
    )]
    NoDirectMap {
        /// The number of start addresses that were tried.
        tried: usize,
    },
    /// The kernel does not say where its direct map begins, and a search for it might read other memory of the kernel.
    #[error(
        "the kernel does not tell where its direct map begins, and has no free addresses after it, which a search \
         needs (allow isotherm to see addresses: root, or CAP_SYSLOG, and kernel.kptr_restrict at most 1; or use a \
         kernel with CONFIG_KALLSYMS_ALL or CONFIG_MEMORY_HOTPLUG; or use another probe)"
    )]
    HiddenDirectMap,
    /// A page cannot be cleared.
    #[error("process_madvise(MADV_COLD) on {what} failed ({fix})")]
    Advise {
        /// Whose memory it is.
        what: String,
        /// The error of process_madvise(2).
        source: io::Error,
        /// How to fix it.
        fix: &'static str,
    },
    /// The memory of none of the targets can be read; for example, access is not permitted. CAP_SYS_PTRACE and
    /// CAP_SYS_NICE in the user namespace of the target permit it.
    #[error("the memory of {target} cannot be read{}", unreadable_hint(source))]
    Refused {
        /// One of the targets.
        target: TargetId,
        /// The error of the system call.
        source: io::Error,
    },
    /// The probe can be opened, but its answers about its own memory are wrong.
    #[error("the bpf probe failed its test on its own memory: {0} (use another probe, and report this)")]
    Trial(String),
}

#[cfg(target_arch = "x86_64")]
use libbpf_rs as libbpf_error;

/// Replaces libbpf's error on architectures without libbpf.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod libbpf_error {
    pub type Error = std::io::Error;
}

//! Why the `bpf` probe does not work.

use std::io;

use isotherm_core::TargetId;
use thiserror::Error;

/// Why the `bpf` probe does not work here, and what would mend it.
#[derive(Debug, Error)]
pub enum BpfError {
    /// Page tables are walked for one architecture only.
    #[error(
        "the bpf probe reads the page tables of x86-64, and this machine is of another kind ({0}); use another probe"
    )]
    Architecture(&'static str),
    /// The kernel does not describe its own structures.
    #[error(
        "the running kernel has no type information at {path} ({source}), without which its structures cannot be read; \
         use a kernel built with CONFIG_DEBUG_INFO_BTF"
    )]
    NoBtf {
        /// Where it should be.
        path: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
    /// The kernel did not take the program.
    #[error("the kernel refused to load the eBPF program: {source}; {mend}{log}")]
    Load {
        /// What libbpf says.
        source: libbpf_error::Error,
        /// What would most probably mend it.
        mend: String,
        /// The end of what the kernel's verifier wrote, if it wrote anything; begins a new line.
        log: String,
    },
    /// A loaded program cannot be run.
    #[error("the eBPF program `{program}` failed: {source}; this is not expected of any kernel: please report it")]
    Run {
        /// Its name.
        program: &'static str,
        /// What libbpf says.
        source: libbpf_error::Error,
    },
    /// The program did not find what it was asked for.
    #[error("the eBPF program `{program}` gave up ({why}); this is not expected of any kernel: please report it")]
    GaveUp {
        /// Its name.
        program: &'static str,
        /// What it did not find.
        why: &'static str,
    },
    /// A file of the kernel cannot be used.
    #[error("{path} cannot be read: {source}; {mend}")]
    File {
        /// The file.
        path: String,
        /// The kernel's word.
        source: io::Error,
        /// What would mend it.
        mend: &'static str,
    },
    /// A file of the kernel does not say what it should.
    #[error("{path} does not tell {what}; {mend}")]
    Silent {
        /// The file.
        path: &'static str,
        /// What was looked for in it.
        what: &'static str,
        /// What would mend it.
        mend: &'static str,
    },
    /// Own memory cannot be had.
    #[error("{what} failed: {source}; is there a limit on this process's memory?")]
    Memory {
        /// What was tried.
        what: &'static str,
        /// The kernel's word.
        source: io::Error,
    },
    /// Own memory to try things on cannot be had.
    #[error(transparent)]
    Scratch(#[from] isotherm_kernel::NoScratch),
    /// No base made the walks of own pages end where they must.
    #[error(
        "the kernel's direct map was not found: of {tried} places where it could begin, none led this process's own \
         addresses to its own pages; nothing is read without that proof, so use another probe"
    )]
    NoDirectMap {
        /// How many places were tried.
        tried: u64,
    },
    /// A page cannot be cleared.
    #[error("process_madvise(MADV_COLD) on {what} failed: {source}; {mend}")]
    Advise {
        /// Whose memory it was.
        what: String,
        /// The kernel's word.
        source: io::Error,
        /// What would mend it.
        mend: &'static str,
    },
    /// None of the targets may be watched.
    #[error(
        "the memory of {target} may not be looked at: {source}; run isotherm as root, or with CAP_SYS_PTRACE and \
         CAP_SYS_NICE in the target's user namespace"
    )]
    Refused {
        /// One of them.
        target: TargetId,
        /// The kernel's word.
        source: io::Error,
    },
    /// The probe loads, but what it says of own memory is wrong.
    #[error("the bpf probe's trial on its own memory failed: {0}; use another probe, and please report it")]
    Trial(String),
}

#[cfg(target_arch = "x86_64")]
use libbpf_rs as libbpf_error;

/// Stands in for libbpf's error where libbpf is not used.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod libbpf_error {
    pub type Error = std::io::Error;
}

//! Why USDT probes cannot be watched.

use std::io;

use thiserror::Error;

use crate::bpf::BpfError;

/// Why USDT probes cannot be watched here, and how to fix it.
#[derive(Debug, Error)]
pub enum UsdtError {
    /// The architecture is not x86-64.
    #[error("USDT probes are watched on x86-64, but this machine is {0} (leave out --usdt)")]
    Architecture(&'static str),
    /// Process IDs of the kernel are not those that this process sees.
    #[error(
        "USDT probes need the first PID namespace, and this process is in another one, as in a container (start \
         isotherm outside of it, or the container with the PID namespace of the machine)"
    )]
    PidNamespace,
    /// The kernel did not load the eBPF programs.
    #[error(
        "the eBPF programs that watch USDT probes cannot be loaded (they need Linux 6.6 or later; all else works \
         without --usdt)"
    )]
    Load(#[source] BpfError),
    /// The kernel did not attach an eBPF program.
    #[error(
        "the kernel does not run an eBPF program at the tracepoint {tracepoint} (USDT probes need CONFIG_BPF_EVENTS; \
         all else works without --usdt)"
    )]
    Attach {
        /// The name of the tracepoint.
        tracepoint: &'static str,
        /// The error of libbpf.
        source: libbpf_error::Error,
    },
    /// The kernel does not stop at probes of programs.
    #[error(
        "the kernel does not run an eBPF program at the code of a program (USDT probes need Linux 6.6 or later with \
         CONFIG_UPROBES and CONFIG_UPROBE_EVENTS; all else works without --usdt)"
    )]
    Uprobes(#[source] libbpf_error::Error),
    /// The program of this process cannot be read, so that it is not known whether probes of programs work.
    #[error("/proc/self/exe cannot be read (mount /proc)")]
    OwnProgram(#[source] io::Error),
    /// A map of the eBPF programs cannot be used.
    #[error("the map `{name}` of the eBPF programs that watch USDT probes cannot be used")]
    Map {
        /// The name of the map.
        name: &'static str,
        /// The error of libbpf.
        source: libbpf_error::Error,
    },
    /// The hits cannot be waited for.
    #[error("waiting for USDT probes failed")]
    Wait(#[source] io::Error),
}

#[cfg(not(target_arch = "x86_64"))]
use crate::bpf::libbpf_error;
#[cfg(target_arch = "x86_64")]
use libbpf_rs as libbpf_error;

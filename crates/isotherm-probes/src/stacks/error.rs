//! The reasons why call stacks cannot be recorded.

use std::io;

use thiserror::Error;

use crate::bpf::BpfError;

/// Why call stacks cannot be recorded here, and how to fix it.
#[derive(Debug, Error)]
pub enum StacksError {
    /// The architecture is not x86-64.
    #[error("call stacks are recorded on x86-64, but this machine is {0} (leave out --stacks)")]
    Architecture(&'static str),
    /// Process IDs of the kernel are not those that this process sees.
    #[error(
        "call stacks need the first PID namespace, and this process is in another one, as in a container (start \
         isotherm outside of it, or the container with the PID namespace of the machine)"
    )]
    PidNamespace,
    /// The kernel did not load the eBPF programs.
    #[error(
        "the eBPF programs that record call stacks cannot be loaded (they need a kernel with \
         CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS or CONFIG_FTRACE_SYSCALLS; all else works without --stacks)"
    )]
    Load(#[source] BpfError),
    /// The kernel did not attach an eBPF program.
    #[error(
        "the kernel does not run an eBPF program at {at} (call stacks need CONFIG_BPF_EVENTS; all else works without \
         --stacks)"
    )]
    Attach {
        /// The system call or the tracepoint.
        at: &'static str,
        /// The error of libbpf.
        source: libbpf_error::Error,
    },
    /// A map of the eBPF programs cannot be used.
    #[error("the map `{name}` of the eBPF programs that record call stacks cannot be used")]
    Map {
        /// The name of the map.
        name: &'static str,
        /// The error of libbpf.
        source: libbpf_error::Error,
    },
    /// The calls cannot be waited for.
    #[error("waiting for calls that map memory failed")]
    Wait(#[source] io::Error),
}

#[cfg(not(target_arch = "x86_64"))]
use crate::bpf::libbpf_error;
#[cfg(target_arch = "x86_64")]
use libbpf_rs as libbpf_error;

//! The options of `isotherm idle`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use isotherm_core::units::{self, QuantityError};
use isotherm_probes::idle_scan::Rate;

/// Show how much memory is idle, and whose it is
///
/// Looks at every page: marks all as idle, waits for the interval, and tells which have not been accessed since, by cgroup, process or
/// mapping. Unlike the other commands it does not sample, so that its cost grows with the memory.
///
/// Where the kernel has idle page tracking, all memory is looked at, page cache included, and is told by the cgroup that it is charged to;
/// nothing lasting is changed. Elsewhere the page tables of processes are read by eBPF, and memory is told by the cgroup that the process
/// is in. That clears accessed bits with MADV_COLD, which moves pages that were accessed to the kernel's inactive list: under memory
/// pressure they are reclaimed sooner, unless they are accessed again. So processes must then be named, by --pid or --cgroup, or all
/// of them asked for by --all. The report says which way it was (docs/idle.md).
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Idle {
    /// Only the memory of the process of this ID; may be given several times
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,
    /// Only the memory of this cgroup and those below it: a path such as /system.slice, or its directory; may be given several times
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub cgroup: Vec<String>,
    /// The memory of all processes, also where that moves pages to the inactive list
    #[arg(long, conflicts_with_all = ["pid", "cgroup"])]
    pub all: bool,
    /// What is told apart besides cgroups [default: processes and mappings with --pid, else cgroups only]
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub by: Vec<By>,
    /// For how long the memory is let alone before it is looked at again; if it is given, this is repeated until Ctrl-C [default: 60s,
    /// once]
    #[arg(short, long, value_name = "TIME", value_parser = units::parse_duration)]
    pub interval: Option<Duration>,
    /// End after so many reports
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Show how long memory has been idle: for each page, the intervals since its last access are counted, up to 250, in a byte
    #[arg(long)]
    pub histogram: bool,
    /// Bound how fast memory is looked at: bytes a second such as 1GiB, or the share of one CPU such as 5% [default: as fast as
    /// possible]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate: Option<Rate>,
    /// How to learn whether a page was accessed
    #[arg(long, value_name = "PROBE", default_value = "auto")]
    pub probe: IdleProbeChoice,
    /// The format [default: by the name of -o (.json, .prom), else text]
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<IdleFormatChoice>,
    /// Write each report to this file, in the place of the one before it; nobody ever sees half a report there
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  isotherm idle                                      a minute of all memory, by cgroup (needs idle page tracking)
  isotherm idle --pid 1234 --interval 10s --count 1  ten seconds of a process, by mapping
  isotherm idle --cgroup /system.slice --by process  the processes of a cgroup
  isotherm idle --interval 1m --histogram            every minute, and for how long it has been idle
  isotherm idle --interval 5m --rate 5% -q -o /var/lib/node_exporter/isotherm.prom

A page counts with the size that it has: a huge page as a whole, as its processor tells of all of it at once. Locked memory is left out and told \
beside. Memory that came within the interval was accessed.

Ctrl-C ends after the last report; within the first interval it is reported what has been idle so far. A second Ctrl-C ends at once.";

/// What is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The tree of cgroups: always
    Cgroup,
    /// Processes
    Process,
    /// The mappings of each process
    Mapping,
}

/// A way to learn which pages are idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IdleProbeChoice {
    /// The best that works here: idle, then bpf
    Auto,
    /// Idle page tracking: all memory; needs root, and a kernel that has it
    Idle,
    /// Page tables of processes, read by eBPF; needs root
    Bpf,
}

/// How the report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IdleFormatChoice {
    /// For people
    Text,
    /// For programs, a line a report
    Json,
    /// The text format of Prometheus, for the textfile collector of its node exporter
    Prometheus,
}

/// A share of a CPU, such as `5%` or `0.05`, or bytes a second, such as `1GiB`.
///
/// A number of at most 1 is a share: a byte a second is no rate at which memory is looked at.
fn rate(text: &str) -> Result<Rate, String> {
    match (units::parse_share(text), units::parse_bytes(text)) {
        (Ok(share), _) if share > 0.0 => Ok(Rate::Cpu(share)),
        (Err(_), Ok(bytes)) if bytes > 0 => Ok(Rate::Bytes(bytes)),
        (Ok(_), _) | (_, Ok(_)) => Err("at a rate of 0 no memory is looked at; write a rate such as 5% or 1GiB".into()),
        (Err(over @ QuantityError::OverWhole { .. }), _) => Err(over.to_string()),
        (_, Err(error)) => Err(format!("{error}, or a share of a CPU such as 5% or 0.05")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_bytes_a_second_or_a_share_of_a_cpu() {
        assert_eq!(rate("1GiB"), Ok(Rate::Bytes(1 << 30)));
        assert_eq!(rate("4096"), Ok(Rate::Bytes(4096)));
        assert_eq!(rate("5%"), Ok(Rate::Cpu(0.05)));
        assert_eq!(rate("0.05"), Ok(Rate::Cpu(0.05)));
        assert_eq!(rate("1"), Ok(Rate::Cpu(1.0)));
        for wrong in ["0", "0%", "0GiB", "101%", "x%", "fast", "-3"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}

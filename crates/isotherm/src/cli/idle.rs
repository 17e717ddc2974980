//! The options of `isotherm idle`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use isotherm_core::AddrRange;
use isotherm_core::units::{self, QuantityError};
use isotherm_kernel::NamePattern;
use isotherm_probes::idle_scan::Rate;
use isotherm_report::idle::IdleFormat;

use super::SharedOption;
use super::report::one_of;
use super::targets::{ExcludeOption, SelectorOptions, TARGETS, name as mapping};
use super::watch::share;

/// Report how much memory is idle, by cgroup, process and mapping
///
/// isotherm marks every page, waits for the interval, and reports the pages that were not accessed since. It reads
/// every page instead of sampling. So the figures are exact, and the cost grows with the memory.
///
/// If the kernel has idle page tracking, isotherm reads all memory, page cache included. Memory counts in the cgroup
/// that it is charged to. The kernel's reclaim decides as it would without isotherm.
///
/// Otherwise isotherm surveys processes through their page tables with an eBPF program, as record does. Memory that no
/// process maps is left out: page cache and the memory of the kernel. Memory counts in the cgroup of its process; a
/// page that several processes map counts once, in the cgroup above all of them. isotherm clears accessed bits with
/// MADV_COLD, which moves pages to the kernel's inactive list. Under memory pressure these pages are reclaimed sooner
/// unless they are accessed again.
///
/// The report names the method. docs/idle.md describes both, and all figures.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Idle {
    #[command(flatten)]
    pub selectors: SelectorOptions,
    #[command(flatten)]
    pub exclude: ExcludeOption,
    /// Processes that run as this user, given by name or user ID. May be given several times
    #[arg(long, help_heading = TARGETS, value_name = "NAME")]
    pub user: Vec<String>,
    /// Also the descendants of the processes
    #[arg(long, help_heading = TARGETS)]
    pub children: bool,
    /// Wait for a process before the first interval, and go on after the last one has ended
    #[arg(long, help_heading = TARGETS)]
    pub wait: bool,
    /// Only mappings with a matching name: the path of a file, or a name such as heap, stack or anonymous. May be given
    /// several times
    #[arg(long, help_heading = TARGETS, value_name = "REGEX", value_parser = mapping)]
    pub mapping: Vec<NamePattern>,
    /// Only these addresses of one --pid, such as 0x7f0000000000:0x7f0040000000. May be given several times
    #[arg(long, help_heading = TARGETS, value_name = "FROM:TO", value_parser = units::parse_address_range)]
    pub range: Vec<AddrRange>,
    /// Only memory on this NUMA node. May be given several times
    #[arg(long, help_heading = TARGETS, value_name = "N")]
    pub node: Vec<u32>,
    /// List the figures of these, separated by commas. Cgroups are always listed [default: cgroup; with --pid also
    /// process and, except for Prometheus, mapping]
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub by: Vec<By>,
    /// Time from one read of a page to the next. With this option, reports repeat until Ctrl-C [default: 60s, one
    /// report]
    #[arg(short, long, value_name = "TIME", value_parser = units::parse_duration)]
    pub interval: Option<Duration>,
    /// End after this number of reports
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Report for how long memory has been idle. For each page, isotherm counts the intervals since its last access, up
    /// to 250
    #[arg(long)]
    pub histogram: bool,
    /// The highest share of one CPU that isotherm uses over any ten seconds. A scan that needs more is slowed down
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = share)]
    pub cpu_budget: f64,
    /// Limit the speed of reading while a scan runs, instead of --cpu-budget: to a share of one CPU, such as 5% or
    /// 0.05, or to bytes per second, such as 1GiB
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "cpu_budget")]
    pub rate: Option<Rate>,
    /// The method that finds idle pages
    #[arg(long, value_name = "PROBE", default_value = "auto")]
    pub probe: IdleProbeChoice,
    #[command(flatten)]
    pub shared: SharedOption,
    /// The format [default: that of the extension of -o (.txt, .json or .prom), else text]
    #[arg(short, long, value_name = "FORMAT", value_parser = one_of(IdleFormat::NAMES))]
    pub format: Option<IdleFormat>,
    /// Write each report to this file, in place of the previous one. A reader never sees half a report. Only the owner
    /// can read the file; metrics for Prometheus can be read by everybody, unless they include mappings
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

const AFTER_HELP: &str = "\
Examples:
  isotherm idle                              one minute of all memory, by cgroup
  isotherm idle --pid 1234 -i 10s -n 1       ten seconds of a process
  isotherm idle --cgroup /system.slice --by process
  isotherm idle --interval 1m --histogram    a report every minute
  isotherm idle -i 5m --rate 5% -q -o /var/lib/node_exporter/isotherm.prom

Figures: a page counts with its full size; a huge page has one accessed bit and counts as a whole. A page that \
appeared \
during the interval counts as accessed. Locked memory is reported separately.

Signals: HUP, INT, QUIT and TERM end isotherm. During the first interval, isotherm reports what has been idle \
so far. A \
second signal ends it at once.";

/// The objects whose figures are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The tree of cgroups
    Cgroup,
    /// Processes
    Process,
    /// Processes and their mappings
    Mapping,
}

/// A method that finds idle pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IdleProbeChoice {
    /// The best that works: idle, then bpf
    Auto,
    /// Idle page tracking: all memory. Needs root and CONFIG_IDLE_PAGE_TRACKING
    Idle,
    /// Page tables, read by an eBPF program: memory of processes. Needs root
    Bpf,
}

/// A share of a CPU, such as `5%` or `0.05`, or bytes a second, such as `1GiB`.
///
/// A number of at most 1 is a share, because a rate of one byte per second has no use.
fn rate(text: &str) -> Result<Rate, String> {
    match (units::parse_share(text), units::parse_bytes(text)) {
        (Ok(share), _) if share > 0.0 => Ok(Rate::Cpu(share)),
        (Err(_), Ok(bytes)) if bytes > 0 => Ok(Rate::Bytes(bytes)),
        (Ok(_), _) | (_, Ok(_)) => Err("at a rate of 0 no memory is read; write a rate such as 5% or 1GiB".into()),
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

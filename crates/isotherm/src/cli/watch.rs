//! Options that several commands share: which memory is watched, and how.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use isotherm_core::AddrRange;
use isotherm_core::units::{self, QuantityError};
use isotherm_kernel::NamePattern;
use isotherm_kernel::scheduling::MOST_CPUS;
use isotherm_run::{SharedMemory, SurveyChoice};

use super::targets::{ExcludeOption, SELECTORS, SelectorOptions, TARGETS, name as mapping};

/// Processes that are watched, and how: for all commands that watch.
#[derive(Args)]
pub struct WatchOptions {
    #[command(flatten)]
    pub selectors: SelectorOptions,
    #[command(flatten)]
    pub exclude: ExcludeOption,
    /// Also watch the descendants of the processes. They join as they start and leave as they end
    #[arg(long, help_heading = TARGETS)]
    pub children: bool,
    /// Wait for a process, at the start and after the last one has ended, until Ctrl-C or --duration
    #[arg(long, help_heading = TARGETS, conflicts_with = "command", hide_short_help = true)]
    pub wait: bool,
    /// Watch only mappings with a matching name: the path of a file, or a name such as heap, stack or anonymous. May be
    /// given several times
    #[arg(long, help_heading = TARGETS, value_name = "REGEX", value_parser = mapping)]
    pub mapping: Vec<NamePattern>,
    /// End after this time. A command that isotherm started gets SIGTERM then
    #[arg(short, long, value_name = "TIME", value_parser = units::parse_duration)]
    pub duration: Option<Duration>,
    /// The method that checks whether a page was accessed
    #[arg(long, value_name = "PROBE", default_value = "auto")]
    pub probe: ProbeChoice,
    /// Read all pages in memory, in addition to sampling: auto, off, or the time from one survey to the next
    ///
    /// The time is at least 100ms. auto surveys as often as the budget allows (--cpu-budget), once a second at most, if
    /// the probe can (idle and bpf; refs by mapping). With off, isotherm only samples.
    #[arg(long, value_name = "auto|off|TIME", default_value = "auto", value_parser = survey)]
    pub survey: SurveyChoice,
    #[command(flatten)]
    pub shared: SharedOption,
    #[command(flatten)]
    pub pauses: PauseOption,
    #[command(flatten)]
    pub budget: BudgetOptions,
    #[command(flatten)]
    pub scheduling: SchedulingOptions,
    #[command(flatten)]
    pub attributes: AttributeOptions,
    /// Without a command: processes that run as this user, given by name or user ID. With a command: start it as this
    /// user (one only), with the groups, HOME, SHELL, USER and LOGNAME of that user. This needs root, unless the user
    /// is the caller [default: the user who called sudo, if sudo started isotherm]
    #[arg(long, help_heading = TARGETS, value_name = "NAME", hide_short_help = true)]
    pub user: Vec<String>,
    /// Start this command and watch it
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = SELECTORS)]
    pub command: Vec<OsString>,
}

/// What isotherm may cost: for all commands that watch.
#[derive(Args)]
pub struct BudgetOptions {
    /// The highest share of one CPU that isotherm uses while it watches [default: 1%; 10% for `isotherm tier run`]
    ///
    /// It holds after the first 3 s, which may take 300 ms of CPU time: as much as 30 s of the budget, but no more.
    /// Surveys and samples are taken as often as this allows. With --sample, or with --survey off, samples are taken at
    /// their interval, whatever they cost, unless a budget is given.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub cpu_budget: Option<f64>,
    /// The highest share of one CPU that targets may lose because they have to set accessed bits again
    #[arg(long, value_name = "SHARE", default_value = "0.5%", value_parser = share, hide_short_help = true)]
    pub target_budget: f64,
    /// What the start of a run may cost the targets, while isotherm clears all accessed bits once [default: quick;
    /// gentle for `isotherm run` and `isotherm tier run`]
    #[arg(long, value_name = "HOW", hide_short_help = true)]
    pub start: Option<StartChoice>,
}

/// What the start of a run may cost the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StartChoice {
    /// Up to 3 % of one CPU for the first 3 s, so that it is known soon how much memory is in use, and which
    Quick,
    /// No more than --target-budget, from the first moment on
    Gentle,
}

/// How the monitor is scheduled: for all commands that watch.
#[derive(Args)]
pub struct SchedulingOptions {
    /// Nice value of the monitoring thread, -20 to 19 [default: after its start, the thread gives way to all others,
    /// unless it wakes up late too often; if permitted, it has a real-time priority with --sample TIME, or if it stays
    /// late]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(NICE))]
    #[arg(hide_short_help = true)]
    pub nice: Option<i32>,
    /// Run the monitoring thread on these processors only, such as 0,2-3. housekeeping stands for the processors that
    /// are neither isolated (isolcpus) nor nohz_full
    #[arg(long, value_name = "CPUS|housekeeping", value_parser = cpus, hide_short_help = true)]
    pub cpu_affinity: Option<Cpus>,
}

/// The nice values that there are.
const NICE: std::ops::Range<i64> = -20..20;

/// Processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// The processors with these numbers.
    Numbers(Vec<usize>),
    /// The processors that are not reserved for other work.
    Housekeeping,
}

/// How shared memory is observed: for all commands that survey processes.
#[derive(Args)]
pub struct SharedOption {
    /// Whether surveys of page tables (bpf) observe memory that several processes map and locked memory, by clearing
    /// the referenced marks of the process (/proc/PID/clear_refs) or, where the multi-generational LRU is on and this
    /// costs the process less, by aging its cgroup. The kernel uses these marks to choose what to reclaim. Page faults
    /// of the process wait while clear_refs runs
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub shared: SharedChoice,
    /// With --shared auto: the longest time for which page faults of a process may wait while its shared and locked
    /// memory is observed. 10 ms suffice for a process of 500 MiB to 1.2 GiB, depending on the machine. A process whose
    /// page faults are so rare that hardly any would wait may be held for twice as long
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = units::parse_duration)]
    #[arg(hide_short_help = true)]
    pub shared_hold: Duration,
}

/// How long a target may wait for a single call.
#[derive(Args)]
pub struct PauseOption {
    /// With the probe refs: also watch processes that one call keeps from mapping memory for more than 100 ms, by their
    /// size. About 5 GiB in one mapping, or 100,000 mappings, take so long
    #[arg(long, hide_short_help = true)]
    pub allow_pauses: bool,
}

/// Physical memory that is watched, for commands that only watch.
#[derive(Args)]
pub struct PhysicalOptions {
    /// Watch physical memory instead of processes, by the probe idle, bpf or damon
    ///
    /// auto takes idle, or else bpf. bpf sees only memory that processes map, by surveys without samples. A command
    /// after `--` then only sets the duration.
    #[arg(long, help_heading = TARGETS, conflicts_with_all = SELECTORS)]
    #[arg(conflicts_with_all = ["exclude", "children", "wait", "mapping"])]
    pub physical: bool,
    #[command(flatten)]
    pub range: RangeOption,
    /// With --physical: watch only the memory of this NUMA node. May be given several times
    #[arg(long, help_heading = TARGETS, value_name = "N", requires = "physical", hide_short_help = true)]
    pub node: Vec<u32>,
}

/// Files whose page cache is watched: for commands that watch memory of more than processes.
#[derive(Args)]
pub struct FilesOption {
    /// Watch the page cache of this file, or of the files below this directory, instead of processes. May be given
    /// several times
    ///
    /// That is all of their memory, whether a process maps it or not. Links are not followed, and other file systems
    /// that are mounted below are left out. How long pages have been idle is known with idle page tracking only.
    #[arg(long, help_heading = TARGETS, value_name = "PATH", conflicts_with_all = SELECTORS)]
    #[arg(conflicts_with_all = ["exclude", "children", "wait", "mapping", "user", "command"])]
    pub files: Vec<PathBuf>,
    /// Watch the page cache of the files that the processes have open or mapped, instead of their memory
    #[arg(long, help_heading = TARGETS)]
    #[arg(conflicts_with_all = ["files", "children", "wait", "mapping", "command"])]
    pub open_files: bool,
}

impl FilesOption {
    /// Whether files are watched.
    pub fn is_given(&self) -> bool {
        self.open_files || !self.files.is_empty()
    }
}

/// Addresses that are watched: for all commands that watch.
#[derive(Args)]
pub struct RangeOption {
    /// Watch only these addresses of one process, such as 0x7f0000000000:0x7f0040000000, or of physical memory, such as
    /// 4GiB:5GiB. May be given several times
    #[arg(long, help_heading = TARGETS, value_name = "FROM:TO", value_parser = units::parse_address_range)]
    #[arg(hide_short_help = true)]
    pub range: Vec<AddrRange>,
}

/// The heading of the options below.
const ATTRIBUTES: &str = "Monitoring attributes";

/// The monitoring attributes.
#[derive(Args)]
pub struct AttributeOptions {
    /// How the sampling and the aggregation interval are chosen, unless --sample or --aggr sets them: auto begins with
    /// 5ms and 100ms, and lengthens them until samples find 4 % of all accesses that they could find, or 20 % in the
    /// memory in use. fixed keeps 5ms and 100ms. auto also keeps them with schemes that compare access rates other than
    /// 0%, because a sample finds at most one access, however long its interval is
    #[arg(long, help_heading = ATTRIBUTES, value_name = "HOW", default_value = "auto", hide_short_help = true)]
    pub intervals: IntervalsChoice,
    /// With --intervals auto, the goal for the share of all accesses that samples find, as a mean of three
    /// aggregations. Five times this share in the memory in use is enough, too. A higher goal needs longer intervals
    /// [default: 4%]
    #[arg(long, help_heading = ATTRIBUTES, value_name = "SHARE", value_parser = goal)]
    #[arg(conflicts_with_all = ["sample", "aggr"], hide_short_help = true)]
    pub intervals_goal: Option<f64>,
    /// Sampling interval: the time from clearing the accessed bit of a page to reading it, at least 100us [default:
    /// 5ms; with refs 100ms]
    ///
    /// Without --aggr, the aggregation interval becomes 20 times as long (10 times with refs). With off, isotherm only
    /// surveys: it finds whether and when each page was accessed, but not how often.
    #[arg(long, help_heading = ATTRIBUTES, value_name = "TIME|off", value_parser = sample)]
    pub sample: Option<Sampling>,
    /// Aggregation interval: the time over which accesses are counted, and from one snapshot to the next [default:
    /// 100ms; with refs 1s]
    #[arg(long, help_heading = ATTRIBUTES, value_name = "TIME", value_parser = units::parse_duration)]
    pub aggr: Option<Duration>,
    /// Update interval: the time from one read of the mappings to the next [default: 200ms in runs with
    /// surveys, else 1s]
    #[arg(long, help_heading = ATTRIBUTES, value_name = "TIME", value_parser = units::parse_duration)]
    #[arg(hide_short_help = true)]
    pub update: Option<Duration>,
    /// Number of regions of all targets together. isotherm aims at the minimum, and never exceeds the maximum [default:
    /// 10:1000]
    #[arg(long, help_heading = ATTRIBUTES, value_name = "MIN:MAX", value_parser = regions, hide_short_help = true)]
    pub regions: Option<(usize, usize)>,
    /// Seed of the random choices, to repeat a run [default: from the clock]
    #[arg(long, help_heading = ATTRIBUTES, value_name = "N", hide_short_help = true)]
    pub seed: Option<u64>,
}

/// The choice of intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IntervalsChoice {
    /// Adapt the intervals to the accesses that are observed
    Auto,
    /// Keep the intervals as they are
    Fixed,
}

/// The choice of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// No samples.
    Off,
    /// Samples at this interval.
    Every(Duration),
}

fn sample(text: &str) -> Result<Sampling, QuantityError> {
    match text {
        "off" => Ok(Sampling::Off),
        time => units::parse_duration(time).map(Sampling::Every),
    }
}

/// Reads a list of processors, as the kernel writes it: `0,2-3`; or `housekeeping`.
fn cpus(text: &str) -> Result<Cpus, QuantityError> {
    if text == "housekeeping" {
        return Ok(Cpus::Housekeeping);
    }
    let form = || QuantityError::form("a list of processors such as 0,2-3, or housekeeping", text);
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|cpu| *cpu < MOST_CPUS);
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
            _ => return Err(form()),
        }
    }
    Ok(Cpus::Numbers(cpus))
}

/// Reads a share of one CPU, above 0.
pub(super) fn share(text: &str) -> Result<f64, String> {
    match units::parse_share(text) {
        Ok(share) if share > 0.0 => Ok(share),
        Ok(_) => Err("a budget of 0 allows no work; give a share such as 1%".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads the share of the accesses that samples are to find, above 0.
fn goal(text: &str) -> Result<f64, String> {
    match units::parse_share(text) {
        Ok(share) if share > 0.0 => Ok(share),
        Ok(_) => Err("a goal of 0 asks for no access; give a share such as 4%".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn survey(text: &str) -> Result<SurveyChoice, QuantityError> {
    match text {
        "auto" => Ok(SurveyChoice::Auto),
        "off" => Ok(SurveyChoice::Off),
        time => units::parse_duration(time).map(SurveyChoice::Every),
    }
}

fn regions(text: &str) -> Result<(usize, usize), QuantityError> {
    units::parse_count_range(text).map(|(min, max)| (min as usize, max as usize))
}

/// A method that checks whether a page was accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProbeChoice {
    /// The best that works: idle, then bpf, then refs
    Auto,
    /// Idle page tracking: single pages. Needs root and CONFIG_IDLE_PAGE_TRACKING
    Idle,
    /// Page tables, read by an eBPF program: single pages. Needs root
    Bpf,
    /// /proc/PID/clear_refs and smaps: whole mappings only. Needs no root for processes of one's own
    Refs,
    /// The kernel's DAMON does the sampling. Needs root, and a kernel whose DAMON is not in use. Never chosen by auto
    Damon,
}

/// Whether memory that several processes map is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SharedChoice {
    /// If this delays page faults and mmap of a process for less than --shared-hold at a time, and costs the process no
    /// more than half a percent of its time, or the share that is allowed instead. A cgroup is aged only if targets
    /// have at least half of its memory
    Auto,
    /// In every survey: clear_refs delays page faults for 8 to 20 ms for each GiB of the process
    Always,
    /// Not at all: such memory is unobservable
    Never,
}

impl From<SharedChoice> for SharedMemory {
    fn from(choice: SharedChoice) -> Self {
        match choice {
            SharedChoice::Auto => Self::Auto,
            SharedChoice::Always => Self::Always,
            SharedChoice::Never => Self::Never,
        }
    }
}

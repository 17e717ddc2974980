//! `isotherm idle`: reports how much memory is idle, by cgroup, process and mapping.

use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm_core::{AddressSpace, NodeId, sanitise, shown_name, units};
use isotherm_kernel::{
    Part, ProcessTable, Processes, Selector, Stop, Waiter, Woken, monitor_cpu_time, page_ranges, unix_ns,
};
use isotherm_output::{LockedOutput, Output, standard_output};
use isotherm_probes::bpf::SharedLimits;
use isotherm_probes::idle_scan::{
    self, CpuAccount, Detail, IdleFindings, MappingIdle, ProcessIdle, ProcessScope, Rate, Scan, ScanChoice, ScanError,
    ScanMethod, ScanPacer, Scope,
};
use isotherm_record::permission_letters;
use isotherm_report::Terminal;
use isotherm_report::idle::{
    IdleCost, IdleFigures, IdleFormat, IdleReport, MappingFigures, NodeFigures, ProcessFigures, cgroup_tree, write_idle,
};
use signal_hook::low_level::emulate_default_handler;

use crate::cli::{By, Idle, IdleProbeChoice};
use crate::command::{self, ENDING, on_signals};
use crate::report::{unknown_format, write_file};
use crate::terminal::terminal;
use crate::{WrongCall, tell};

/// The default interval.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time from one search for a process that is waited for to the next.
const SEARCH_EVERY: Duration = Duration::from_millis(200);

/// The minimum time from one display of the progress to the next.
const SHOW_EVERY: Duration = Duration::from_millis(250);

pub fn run(options: &Idle) -> Result<ExitCode> {
    let interval = options.interval.unwrap_or(INTERVAL);
    if interval.is_zero() {
        return Err(WrongCall::new("idle", "the interval is zero; write a time such as 60s").into());
    }
    let repeated = options.interval.is_some() || options.count.is_some();
    let count = if repeated { options.count.unwrap_or(u64::MAX) } else { 1 };
    let format = format(options)?;
    let scope = scope(options).map_err(|error| WrongCall::new("idle", error))?;
    let detail = detail(options, &scope, format);
    // What cannot be written is better known before memory is read.
    let output = options.output.as_deref().map(|path| output(path, format, detail).lock()).transpose()?;
    if let (Some(path), true, false) = (&options.output, holds_addresses(format, detail), options.quiet) {
        tell(format_args!(
            "isotherm: only you can read {}, because metrics of mappings hold addresses (leave out --by mapping)",
            path.display()
        ));
    }
    command::raise_file_limit();
    let limits = SharedLimits::default().with_longest_hold(options.shared.shared_hold);
    let nodes: Vec<NodeId> = options.node.iter().copied().map(NodeId).collect();
    let shared = options.shared.shared.into();
    let scan = idle_scan::open(method(options.probe), scope.clone(), &nodes, detail, shared, limits)?;

    let stop = Stop::new().context("this process has no file descriptor left")?;
    let asked = stop.clone();
    let mut stopping = false;
    on_signals(ENDING, move |origin| {
        if stopping {
            // A second signal has its default effect.
            let _ = emulate_default_handler(origin.signal);
        }
        stopping = true;
        asked.ask();
    })?;
    let on_terminal = !options.quiet && stderr().is_terminal();
    let account = CpuAccount::default();
    let run = Run { options, interval, scan, stop, on_terminal, named: scope, format, output, account };
    run.until(count)
}

/// Whose memory is reported. If nothing but cgroups is named, that is what is charged to them; otherwise the memory of
/// processes.
fn scope(options: &Idle) -> Result<Scope, String> {
    let mut selection = options.selectors.selection(&options.user, &options.exclude, options.children)?;
    let ranges = page_ranges(options.range.iter().copied());
    let part = Part { ranges, mappings: options.mapping.clone(), ..Part::default() };
    if !part.ranges.is_empty() && !matches!(selection.any[..], [Selector::Pid(_)]) {
        return Err("--range is of one process; give one --pid with --range, or --mapping instead".into());
    }
    let is_narrowed =
        !selection.except.is_empty() || selection.least_resident > 0 || selection.children || !part.is_whole();
    if selection.any.is_empty() && is_narrowed {
        selection.any.push(Selector::All);
    }
    if options.wait && !selection.is_open() {
        return Err("--wait needs processes that can appear; name them with --name or --cgroup, for example".into());
    }
    let is_narrowed = is_narrowed || options.wait;
    let cgroups = &options.selectors.cgroup;
    Ok(match &selection.any[..] {
        [] => Scope::All,
        [Selector::All] if !is_narrowed => Scope::All,
        any if any.len() == cgroups.len() && !is_narrowed => Scope::Cgroups(cgroups.clone()),
        _ => Scope::Processes(ProcessScope { selection, part, waits: options.wait }),
    })
}

/// What figures are listed for. The collector of metrics is another user, who may not know addresses unless they were
/// asked for.
fn detail(options: &Idle, scope: &Scope, format: IdleFormat) -> Detail {
    if options.by.is_empty() {
        let named = matches!(scope, Scope::Processes(_));
        return Detail { processes: named, mappings: named && format != IdleFormat::Prometheus };
    }
    let mappings = options.by.contains(&By::Mapping);
    Detail { processes: mappings || options.by.contains(&By::Process), mappings }
}

fn method(probe: IdleProbeChoice) -> ScanChoice {
    match probe {
        IdleProbeChoice::Auto => ScanChoice::Auto,
        IdleProbeChoice::Idle => ScanChoice::Idle,
        IdleProbeChoice::Bpf => ScanChoice::Bpf,
    }
}

/// What the reports of a run have in common.
struct Run<'a> {
    options: &'a Idle,
    interval: Duration,
    scan: Box<dyn Scan>,
    stop: Stop,
    on_terminal: bool,
    named: Scope,
    format: IdleFormat,
    /// The output; standard output if it is `None`.
    output: Option<LockedOutput>,
    account: CpuAccount,
}

impl Run<'_> {
    /// Makes `count` reports, or fewer if the run is stopped or all named processes have ended.
    fn until(mut self, count: u64) -> Result<ExitCode> {
        let mut waiter = Waiter::new(ProcessTable::default(), self.stop.clone());
        if self.wait_for_process(&mut waiter)? == Woken::Stopped {
            return Ok(ExitCode::SUCCESS);
        }
        let mut began = Instant::now();
        let rate = self.options.rate.unwrap_or(Rate::Budget(self.options.cpu_budget));
        let mut pacer = self.pacer("marking", Some(rate), self.stop.clone());
        match self.scan.mark(&mut pacer) {
            // There is nothing to report yet.
            Err(ScanError::Interrupted) => return Ok(ExitCode::SUCCESS),
            marked => marked?,
        }
        for number in 1..=count {
            let due = began + self.interval;
            let stopped = self.wait(&mut waiter, due)?;
            // If the first interval is cut short, a report is made of it. There is no other one.
            if stopped && number > 1 {
                break;
            }
            let mut pacer = if stopped {
                // Who ends the run does not wait for the budget of the time that is left out.
                let stop = Stop::new().context("this process has no file descriptor left")?;
                self.pacer("reading", self.options.rate, stop)
            } else {
                self.pacer("reading", Some(rate), self.stop.clone())
            };
            let (cpu, now) = (monitor_cpu_time(), Instant::now());
            let found = match self.scan.read(&mut pacer) {
                Err(ScanError::Interrupted) => break,
                found => found?,
            };
            self.clear_line();
            let cost = IdleCost {
                cpu_ns: (monitor_cpu_time() - cpu).as_nanos() as u64,
                wall_ns: now.elapsed().as_nanos() as u64,
            };
            let over = matches!(&self.named, Scope::Processes(named) if !named.waits) && found.total.is_empty();
            let mut report = self.report(found, cost);
            (report.number, report.interval_ns) = (number, (now - began).as_nanos() as u64);
            report.cut_short = stopped;
            if now - began > self.interval + self.interval / 10 {
                report.notes.push(
                    "reading takes so long that the time between two reads of a page is longer than the interval; \
                     lengthen --interval, or raise --cpu-budget or --rate"
                        .into(),
                );
            }
            self.write(&report)?;
            if over || stopped {
                break;
            }
            began = now;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Waits until there is a process in the scope, if it is to be waited for, or until the run is stopped.
    fn wait_for_process(&self, waiter: &mut Waiter) -> Result<Woken> {
        let Scope::Processes(ProcessScope { selection, part, waits: true }) = &self.named else {
            return Ok(Woken::Due);
        };
        if let Some(warning) = selection.warning(Path::new("/")) {
            tell(format_args!("isotherm: {warning}"));
        }
        let mut processes = Processes::wait_for(selection.clone())?.narrowed_to(part.clone())?;
        let mut is_there = || -> Result<bool> {
            let spaces = processes.read_targets().map_err(anyhow::Error::from_boxed)?;
            Ok(spaces.iter().any(|space| !space.mappings.is_empty()))
        };
        while !is_there()? {
            self.show(format_args!("waiting for a process that matches  (Ctrl-C to end)"));
            if waiter.until(Instant::now() + SEARCH_EVERY).context("waiting failed")? == Woken::Stopped {
                self.clear_line();
                return Ok(Woken::Stopped);
            }
        }
        self.clear_line();
        Ok(Woken::Due)
    }

    /// Waits until `due`. Returns whether the run was stopped before.
    fn wait(&self, waiter: &mut Waiter, due: Instant) -> Result<bool> {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if self.on_terminal {
                let whole = Duration::from_secs(left.as_secs_f64().ceil() as u64);
                self.show(format_args!("next read in {}  (Ctrl-C to end)", units::duration(whole)));
            }
            let next = if self.on_terminal { Instant::now() + left.min(Duration::from_secs(1)) } else { due };
            if waiter.until(next).context("waiting failed")? == Woken::Stopped {
                self.clear_line();
                return Ok(true);
            }
            if Instant::now() >= due {
                return Ok(false);
            }
        }
    }

    fn pacer(&self, doing: &'static str, rate: Option<Rate>, stop: Stop) -> ScanPacer {
        let on = self.on_terminal;
        let mut shown = Instant::now();
        ScanPacer::new(rate, stop, move |done, total| {
            if on && shown.elapsed() >= SHOW_EVERY {
                shown = Instant::now();
                line(format_args!("{doing}: {} of {}", units::bytes(done), units::bytes(total)));
            }
        })
        .with_account(self.account.clone())
    }

    fn show(&self, text: std::fmt::Arguments<'_>) {
        if self.on_terminal {
            line(text);
        }
    }

    fn clear_line(&self) {
        if self.on_terminal {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }

    fn report(&self, found: IdleFindings, cost: IdleCost) -> IdleReport {
        let ages = self.options.histogram;
        let mut processes: Vec<ProcessFigures> =
            found.processes.into_iter().map(|process| process_figures(process, ages)).collect();
        processes.sort_by_key(|process| std::cmp::Reverse((process.figures.idle_bytes, process.figures.size_bytes)));
        let owns: Vec<_> = found.cgroups.into_iter().map(|cgroup| (cgroup.path, cgroup.inode, cgroup.own)).collect();
        let nodes = found.nodes.iter().map(|node| NodeFigures {
            node: node.node.map(|node| node.0),
            figures: IdleFigures::new(&node.tally, ages),
        });
        IdleReport {
            number: 0,
            time_unix_ns: unix_ns(),
            interval_ns: 0,
            cut_short: false,
            way: match found.method {
                ScanMethod::IdlePageTracking => "idle_page_tracking",
                ScanMethod::PageTables => "page_tables",
            },
            cgroup_version: found.cgroup_version.map(|version| version.number()),
            cost,
            notes: found.notes,
            total: IdleFigures::new(&found.total, ages),
            shared: found.shared.map(|shared| IdleFigures::new(&shared, ages)),
            nodes: nodes.collect(),
            cgroups: cgroup_tree(&owns, ages),
            processes,
        }
    }

    fn write(&self, report: &IdleReport) -> Result<()> {
        let format = self.format;
        // In a stream, one report follows the other.
        let separator = if format == IdleFormat::Text && report.number > 1 { "\n" } else { "" };
        let Some(output) = &self.output else {
            let mut out = standard_output();
            write!(out, "{separator}")?;
            return Ok(write_idle(report, format, &terminal(), &mut out)?);
        };
        let file = output.create()?;
        let separator = if file.is_stream() { separator } else { "" };
        write_file(file, |mut out| {
            write!(out, "{separator}")?;
            write_idle(report, format, &Terminal::default(), &mut out)
        })
    }
}

/// The format that `--format` or the name of the output selects.
fn format(options: &Idle) -> Result<IdleFormat> {
    let of_file = || options.output.as_deref().map_or(Ok(None), IdleFormat::of_file);
    let named = options.format.map_or_else(of_file, |format| Ok(Some(format)));
    Ok(named.map_err(|error| unknown_format("idle", &error))?.unwrap_or(IdleFormat::Text))
}

fn process_figures(process: ProcessIdle, ages: bool) -> ProcessFigures {
    let mapping = |mapping: &MappingIdle| MappingFigures {
        start: mapping.range.start(),
        end: mapping.range.end(),
        permissions: permission_letters(mapping.permissions),
        name: shown_name(&mapping.name).to_owned(),
        figures: IdleFigures::new(&mapping.tally, ages),
    };
    ProcessFigures {
        pid: process.pid,
        inner_pid: process.inner_pid,
        mappings: process.mappings.iter().map(mapping).collect(),
        figures: IdleFigures::new(&process.total, ages),
        shared_bytes: process.shared,
        command: process.command,
        cgroup: process.cgroup,
    }
}

/// The output of reports. The collector of metrics is another user, who can read them if they hold no addresses. Only
/// the owner can read other reports.
fn output(path: &Path, format: IdleFormat, detail: Detail) -> Output {
    let output = Output::new(path);
    match format {
        IdleFormat::Prometheus if !holds_addresses(format, detail) => output.readable_by_all(),
        _ => output,
    }
}

/// Whether metrics hold addresses.
fn holds_addresses(format: IdleFormat, detail: Detail) -> bool {
    format == IdleFormat::Prometheus && detail.mappings
}

fn line(text: std::fmt::Arguments<'_>) {
    let width = rustix::termios::tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col));
    let text: String = sanitise(&text.to_string()).chars().take(width.saturating_sub(1)).collect();
    // This fails if the terminal has been closed. The run continues.
    let _ = write!(stderr(), "\r{text}\x1b[K");
}

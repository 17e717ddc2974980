//! `isotherm idle`: reports how much memory is idle, by cgroup, process and mapping.

use std::fs::Permissions;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use isotherm_core::units;
use isotherm_kernel::{ProcessTable, Stop, Waiter, Woken, monitor_cpu_time, unix_ns};
use isotherm_probes::idle_scan::{
    self, Detail, IdleFindings, MappingIdle, Pacer, ProcessIdle, Scan, ScanChoice, ScanError, ScanMethod, Scope,
};
use isotherm_record::permission_letters;
use isotherm_report::Terminal;
use isotherm_report::idle::{
    IdleCost, IdleFigures, IdleFormat, IdleReport, MappingFigures, NodeFigures, ProcessFigures, cgroup_tree, write_idle,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::low_level::emulate_default_handler;
use tempfile::NamedTempFile;

use crate::WrongCall;
use crate::cli::{By, Idle, IdleFormatChoice, IdleProbeChoice};
use crate::command::{ENDING, on_signals};
use crate::report::unknown_format;
use crate::terminal::terminal;

/// The default interval.
const INTERVAL: Duration = Duration::from_secs(60);

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
    if let Some(path) = &options.output {
        replaceable(path).with_context(|| unwritable(path))?;
    }
    raise_file_limit();
    let scope = scope(options);
    let scan = idle_scan::open(method(options.probe), scope.clone(), detail(options), options.shared.shared.into())?;

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
    let run = Run { options, interval, scan, stop, on_terminal, named: scope, format };
    run.until(count)
}

/// Allows as many open files as the system lets this process have: a scan of page tables holds two for each process. If
/// there are too few, opening a process says so.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn scope(options: &Idle) -> Scope {
    if !options.pid.is_empty() {
        Scope::Processes(options.pid.clone())
    } else if !options.cgroup.is_empty() {
        Scope::Cgroups(options.cgroup.clone())
    } else {
        Scope::All
    }
}

fn detail(options: &Idle) -> Detail {
    if options.by.is_empty() {
        let named = !options.pid.is_empty();
        return Detail { processes: named, mappings: named };
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
}

impl Run<'_> {
    /// Makes `count` reports, or fewer if the run is stopped or all named processes have ended.
    fn until(mut self, count: u64) -> Result<ExitCode> {
        let mut waiter = Waiter::new(ProcessTable::default(), self.stop.clone());
        let mut began = Instant::now();
        let mut pacer = self.pacer("marking", self.stop.clone());
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
            let stop = if stopped {
                Stop::new().context("this process has no file descriptor left")?
            } else {
                self.stop.clone()
            };
            let mut pacer = self.pacer("reading", stop);
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
            let over = matches!(self.named, Scope::Processes(_)) && found.total.is_empty();
            let mut report = self.report(found, cost);
            (report.number, report.interval_ns) = (number, (now - began).as_nanos() as u64);
            report.cut_short = stopped;
            if now - began > self.interval + self.interval / 10 {
                report.notes.push(
                    "reading takes so long that the time between two reads of a page is longer than the interval; \
                     lengthen --interval or raise --rate"
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

    fn pacer(&self, doing: &'static str, stop: Stop) -> Pacer {
        let on = self.on_terminal;
        let mut shown = Instant::now();
        Pacer::new(self.options.rate, stop, move |done, total| {
            if on && shown.elapsed() >= SHOW_EVERY {
                shown = Instant::now();
                line(format_args!("{doing}: {} of {}", units::bytes(done), units::bytes(total)));
            }
        })
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
        let Some(path) = &self.options.output else {
            let mut out = stdout().lock();
            if format == IdleFormat::Text && report.number > 1 {
                writeln!(out)?;
            }
            return Ok(write_idle(report, format, &terminal(), &mut out)?);
        };
        let mut text = Vec::new();
        write_idle(report, format, &Terminal::default(), &mut text)?;
        replace(path, &text, format).with_context(|| unwritable(path))
    }
}

/// The format that `--format` or the name of the output selects.
fn format(options: &Idle) -> Result<IdleFormat> {
    Ok(match (options.format, &options.output) {
        (Some(IdleFormatChoice::Text), _) | (None, None) => IdleFormat::Text,
        (Some(IdleFormatChoice::Json), _) => IdleFormat::Json,
        (Some(IdleFormatChoice::Prometheus), _) => IdleFormat::Prometheus,
        (None, Some(path)) => {
            let named = IdleFormat::of_file(path).map_err(|error| unknown_format("idle", &error))?;
            named.unwrap_or(IdleFormat::Text)
        }
    })
}

fn process_figures(process: ProcessIdle, ages: bool) -> ProcessFigures {
    let mapping = |mapping: &MappingIdle| MappingFigures {
        start: mapping.range.start(),
        end: mapping.range.end(),
        permissions: permission_letters(mapping.permissions),
        name: if mapping.name.is_empty() { "anonymous".into() } else { mapping.name.to_string() },
        figures: IdleFigures::new(&mapping.tally, ages),
    };
    ProcessFigures {
        pid: process.pid,
        mappings: process.mappings.iter().map(mapping).collect(),
        figures: IdleFigures::new(&process.total, ages),
        shared_bytes: process.shared,
        command: process.command,
        cgroup: process.cgroup,
    }
}

/// Writes a file, and replaces an existing one atomically. Everyone can read a file for Prometheus, because its
/// collector is another user. Only the owner can read other files.
fn replace(path: &Path, text: &[u8], format: IdleFormat) -> Result<()> {
    let mode = if format == IdleFormat::Prometheus { 0o644 } else { 0o600 };
    let mut file = temporary_file(path)?;
    file.write_all(text)?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.persist(path)?;
    Ok(())
}

/// Checks that `path` can be written, before memory is read.
fn replaceable(path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!("it is a directory");
    }
    temporary_file(path)?;
    Ok(())
}

/// A temporary file in the directory of `path`.
fn temporary_file(path: &Path) -> Result<NamedTempFile> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(tempfile::Builder::new().prefix(".isotherm-idle-").tempfile_in(directory)?)
}

fn unwritable(path: &Path) -> String {
    format!("the report {} cannot be written; name another file", path.display())
}

fn line(text: std::fmt::Arguments<'_>) {
    let width = rustix::termios::tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col));
    let text: String = text.to_string().chars().take(width.saturating_sub(1)).collect();
    // This fails if the terminal has been closed. The run continues.
    let _ = write!(stderr(), "\r{text}\x1b[K");
}

//! One run of the kernel's own DAMON: the same findings as from [`Session`](crate::session::Session), made by the kernel.
//!
//! The kernel samples, merges and splits; this thread takes what it tells, an aggregation at a time, and adds what only
//! user space knows: the mappings, and what the targets are.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use isotherm_core::{
    AddrRange, AddressSpace, Attributes, Layout, Mapping, Snapshot, TargetId, TargetSnapshot, TargetSpace,
};
use isotherm_linux::damon::{self, Aggregation, DamonError, Places, Run, Scope, Settings};
use isotherm_linux::{Roster, Stop, Waiter, Woken, monitor_cpu_time};
use isotherm_record::{Cost, TargetInfo};

use crate::session::Finding;

/// The kernel's findings are taken at least this often, so that an end is noticed.
const PACE: Duration = Duration::from_secs(1);

/// What the kernel is to watch, and how.
pub struct KernelSession {
    pub attributes: Attributes,
    pub places: Places,
    pub space: Box<dyn AddressSpace + Send>,
    /// The processes of that space; none if it is physical memory.
    pub roster: Roster,
    /// Only this range of the one process.
    pub range: Option<AddrRange>,
    pub duration: Option<Duration>,
}

impl KernelSession {
    /// Starts the thread. It sends what the kernel finds to `findings` and ends when `stop` is asked for, when the time is over, when
    /// the last target has ended, or when nobody receives the findings any more. Whatever its end, the kernel's DAMON is left as it was.
    pub fn start(self, findings: SyncSender<Finding>, stop: Stop) -> Result<JoinHandle<Result<()>>> {
        let thread = std::thread::Builder::new().name("monitor".into());
        thread.spawn(move || self.watch(findings, stop)).context("the monitor's thread cannot be started")
    }

    fn watch(self, findings: SyncSender<Finding>, stop: Stop) -> Result<()> {
        let Self { attributes, places, mut space, roster, range, duration } = self;
        let mut run = Run::prepare(places)?;
        let waiter = Waiter::new(roster.clone(), stop);
        let spaces = survey(&mut *space, range)?;
        let scope = scope(&spaces, range)?;
        let ids = spaces.iter().map(|space| space.id).collect();
        let start = Instant::now();
        run.start(&Settings { attributes, scope })?;
        let mut forward = Forward {
            findings,
            roster,
            ids,
            spaces,
            attributes,
            start_ns: damon::now_ns(),
            last_ns: 0,
            regions: attributes.min_regions(),
            cpu: monitor_cpu_time() + run.cpu_time(),
        };

        let pace = attributes.aggregation().min(PACE);
        let (mut due, mut update) = (start + pace, start + attributes.update());
        loop {
            let woken = waiter.until(due).context("waiting for the targets failed")?;
            // First of all, so that nothing is missed of what it told before its end.
            let is_on = run.is_on();
            for aggregation in run.collect()? {
                forward.aggregated(aggregation, run.cpu_time())?;
            }
            let now = Instant::now();
            if woken == Woken::Stopped || duration.is_some_and(|duration| now - start >= duration) {
                break;
            }
            if woken == Woken::TargetEnded || now >= update || !is_on {
                forward.spaces = survey(&mut *space, range)?;
                update = now + attributes.update();
                if forward.spaces.is_empty() {
                    break;
                }
            }
            if !is_on {
                return Err(DamonError::TurnedOff.into());
            }
            due = (due + pace).max(now);
        }
        Ok(run.end()?)
    }
}

/// The targets that live, with what of their mappings is watched.
fn survey(space: &mut dyn AddressSpace, range: Option<AddrRange>) -> Result<Vec<TargetSpace>> {
    let spaces = space.survey().map_err(|error| anyhow::anyhow!("the mappings cannot be read: {error}"))?;
    let Some(range) = range else { return Ok(spaces) };
    let clip = |mapping: &Mapping| Some(Mapping { range: mapping.range.intersection(range)?, ..mapping.clone() });
    let clipped = spaces
        .into_iter()
        .map(|space| TargetSpace { mappings: space.mappings.iter().filter_map(clip).collect(), ..space });
    Ok(clipped.collect())
}

/// What the kernel is told to watch.
fn scope(spaces: &[TargetSpace], range: Option<AddrRange>) -> Result<Scope> {
    match (spaces, range) {
        ([], _) => bail!("there is no target left to watch"),
        ([memory], _) if memory.layout == Layout::Ranges => Ok(Scope::Physical(whole(&memory.mappings))),
        ([target], Some(range)) => Ok(Scope::Ranges(target.id.0, vec![range])),
        (_, Some(_)) => bail!("--range is for one process"),
        (targets, None) => Ok(Scope::Processes(targets.iter().map(|target| target.id.0).collect())),
    }
}

/// The ranges of these mappings; those that touch are one.
fn whole(mappings: &[Mapping]) -> Vec<AddrRange> {
    let mut ranges: Vec<AddrRange> = Vec::new();
    for mapping in mappings {
        match ranges.last_mut() {
            Some(last) if last.touches(mapping.range) => {
                *last = AddrRange::new(last.start(), mapping.range.end()).unwrap_or(*last);
            }
            _ => ranges.push(mapping.range),
        }
    }
    ranges
}

/// Makes findings of aggregations, and hands them to another thread.
struct Forward {
    findings: SyncSender<Finding>,
    roster: Roster,
    /// The targets in the order in which the kernel has them.
    ids: Vec<TargetId>,
    /// Those that live.
    spaces: Vec<TargetSpace>,
    attributes: Attributes,
    /// By the clock of aggregations.
    start_ns: u64,
    /// The last aggregation, since the start.
    last_ns: u64,
    /// How many regions the last aggregation ended with.
    regions: usize,
    /// CPU time, the kernel's and ours, up to the last aggregation.
    cpu: Duration,
}

impl Forward {
    fn aggregated(&mut self, aggregation: Aggregation, kernels_cpu: Duration) -> Result<()> {
        let time_ns = aggregation.time_ns.saturating_sub(self.start_ns);
        let samples = self.attributes.samples();
        // Rounds of aggregations that did not come are the kernel's work, too.
        let rounds = samples.saturating_mul(if aggregation.gap { self.passed(time_ns) } else { 1 });
        self.last_ns = time_ns;

        let told: usize = aggregation.targets.iter().map(|(_, regions)| regions.len()).sum();
        let reads = self.reads();
        self.regions = told;
        let target = |(index, regions): (usize, Vec<_>)| {
            let id = self.ids.get(index)?;
            // The kernel keeps the regions of a target that has ended.
            let space = self.spaces.iter().find(|space| space.id == *id)?;
            Some(TargetSnapshot { id: *id, regions, mappings: Arc::clone(&space.mappings) })
        };
        let targets: Vec<_> = aggregation.targets.into_iter().filter_map(target).collect();
        let cpu = monitor_cpu_time() + kernels_cpu;
        let cost = Cost {
            rounds,
            late_rounds: 0,
            reads: u64::from(rounds) * u64::from(reads),
            max_reads: reads,
            clears: u64::from(rounds) * u64::from(reads),
            cpu_ns: cpu.saturating_sub(self.cpu).as_nanos() as u64,
            unobservable_bytes: 0,
        };
        self.cpu = cpu;
        let snapshot = Snapshot {
            time: Duration::from_nanos(time_ns),
            aggregation: self.attributes.aggregation(),
            samples,
            targets,
            rounds,
            reads: cost.reads,
            max_reads: cost.max_reads,
            clears: cost.clears,
        };
        let infos = self.infos();
        self.findings
            .send(Finding { snapshot, cost, infos })
            .map_err(|_| anyhow::anyhow!("nobody takes the snapshots any more"))
    }

    /// How many aggregations have passed since the last one, at least one.
    fn passed(&self, time_ns: u64) -> u32 {
        let interval = self.attributes.aggregation().as_nanos().max(1);
        let passed = (u128::from(time_ns.saturating_sub(self.last_ns)) + interval / 2) / interval;
        u32::try_from(passed).unwrap_or(u32::MAX).max(1)
    }

    /// How many pages the kernel looked at in a round: about one a region, and it tells the regions at the end of an
    /// aggregation only, after merging. It begins the next by splitting each of them in two, if there may be twice as many.
    fn reads(&self) -> u32 {
        let max = self.attributes.max_regions();
        let regions = if self.regions > max / 2 { self.regions } else { self.regions * 2 };
        u32::try_from(regions.min(max)).unwrap_or(u32::MAX)
    }

    fn infos(&self) -> Arc<[(TargetId, Arc<TargetInfo>)]> {
        let members = self.roster.members();
        let info = |(&id, member): (&TargetId, &isotherm_linux::Member)| {
            let started_unix_ns = member.process.started_unix_ns();
            (id, Arc::new(TargetInfo { command: member.command.clone(), started_unix_ns }))
        };
        members.iter().map(info).collect()
    }
}

//! One run of the kernel's own DAMON: the same findings as from [`Session`](crate::session::Session), made by the kernel.
//!
//! The kernel samples, merges and splits; this thread takes what it tells, an aggregation at a time, and adds what only
//! user space knows: the mappings, and what the targets are.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use isotherm_core::{
    AddrRange, AddressSpace, Attributes, Layout, Mapping, PAGE_SIZE, Snapshot, TargetId, TargetSnapshot, TargetSpace,
};
use isotherm_kernel::{Rest, Waiter, Woken, monitor_cpu_time};
use isotherm_probes::damon::{self, Aggregation, DamonError, Places, Run, Scope, Settings};
use isotherm_record::Cost;

use crate::session::{Control, Finding};
use crate::targets::{Infos, Targets};

/// The kernel's findings are taken at least this often, so that an end is noticed.
const PACE: Duration = Duration::from_secs(1);

/// What the kernel is to watch, and how.
pub struct KernelSession {
    pub attributes: Attributes,
    pub places: Places,
    pub targets: Targets,
    /// Only these ranges of the one process; all of it if there are none.
    pub ranges: Vec<AddrRange>,
    pub duration: Option<Duration>,
}

impl KernelSession {
    /// Starts the thread. It sends what the kernel finds to `findings` and ends when `control` asks for it, when the time is over, when
    /// the last target has ended, or when nobody receives the findings any more. Whatever its end, the kernel's DAMON is left as it was.
    pub fn start(self, findings: SyncSender<Finding>, control: Control) -> Result<JoinHandle<Result<()>>> {
        let thread = std::thread::Builder::new().name("monitor".into());
        thread.spawn(move || self.watch(findings, control)).context("the monitor's thread cannot be started")
    }

    fn watch(self, findings: SyncSender<Finding>, control: Control) -> Result<()> {
        let Self { attributes, places, mut targets, ranges, duration } = self;
        let Control { stop, rest } = control;
        let ranges = whole(ranges);
        let mut run = Run::prepare(places.clone())?;
        let mut waiter = Waiter::new(targets.roster(), stop);
        let spaces = survey(&mut targets, &ranges)?;
        let start = Instant::now();
        let end = duration.map(|duration| start + duration);
        run.start(&Settings { attributes, scope: scope(&spaces, ranges.clone())? })?;
        let mut forward = Forward {
            findings,
            infos: targets.infos(),
            ids: spaces.iter().map(|space| space.id).collect(),
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
            if rest.is_wanted() {
                // Nobody else need do without the kernel's DAMON meanwhile.
                run.end()?;
                if !sleep(&mut waiter, &rest, end, || {
                    forward.spaces = survey(&mut targets, &ranges)?;
                    Ok(!forward.spaces.is_empty())
                })? {
                    return Ok(());
                }
                run = Run::prepare(places.clone())?;
                run.start(&Settings { attributes, scope: scope(&forward.spaces, ranges.clone())? })?;
                forward.begin_again(run.cpu_time());
                (due, update) = (Instant::now() + pace, Instant::now() + attributes.update());
            }
            let woken = waiter.until(due).context("waiting for the targets failed")?;
            // First of all, so that nothing is missed of what it told before its end.
            let is_on = run.is_on();
            for aggregation in run.collect()? {
                forward.aggregated(aggregation, run.cpu_time())?;
            }
            let now = Instant::now();
            if woken == Woken::Stopped || end.is_some_and(|end| now >= end) {
                break;
            }
            if woken == Woken::TargetEnded || now >= update || !is_on {
                forward.spaces = survey(&mut targets, &ranges)?;
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

/// Waits until the rest is over; says whether there is anything left to do then. `survey` says whether any target lives.
fn sleep(
    waiter: &mut Waiter,
    rest: &Rest,
    end: Option<Instant>,
    mut survey: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    loop {
        let woken = waiter.rest(rest, end).context("waiting for the targets failed")?;
        if woken == Woken::Stopped || end.is_some_and(|end| Instant::now() >= end) || !survey()? {
            return Ok(false);
        }
        if !rest.is_wanted() {
            return Ok(true);
        }
    }
}

/// The targets that live, with what of their mappings is watched.
fn survey(targets: &mut Targets, ranges: &[AddrRange]) -> Result<Vec<TargetSpace>> {
    let spaces = targets.survey().map_err(|error| anyhow!("the mappings cannot be read: {error}"))?;
    if ranges.is_empty() {
        return Ok(spaces);
    }
    let clip = |mapping: &Mapping| {
        let parts: Vec<_> = ranges.iter().filter_map(|range| range.intersection(mapping.range)).collect();
        let mapping = mapping.clone();
        parts.into_iter().map(move |range| Mapping { range, ..mapping.clone() })
    };
    let clipped = spaces
        .into_iter()
        .map(|space| TargetSpace { mappings: space.mappings.iter().flat_map(clip).collect(), ..space });
    Ok(clipped.collect())
}

/// What the kernel is told to watch.
fn scope(spaces: &[TargetSpace], ranges: Vec<AddrRange>) -> Result<Scope> {
    match spaces {
        [] => bail!("there is no target left to watch"),
        [memory] if memory.layout == Layout::Ranges => {
            Ok(Scope::Physical(whole(memory.mappings.iter().map(|mapping| mapping.range).collect())))
        }
        [target] if !ranges.is_empty() => Ok(Scope::Ranges(target.id.0, ranges)),
        targets => Ok(Scope::Processes(targets.iter().map(|target| target.id.0).collect())),
    }
}

/// The same memory as ranges of whole pages, in order, of which none touches another: as the kernel wants them.
fn whole(mut ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    ranges.sort_unstable();
    let mut whole: Vec<AddrRange> = Vec::new();
    for range in ranges {
        let start = range.start() / PAGE_SIZE * PAGE_SIZE;
        let end = range.end().checked_next_multiple_of(PAGE_SIZE).unwrap_or(u64::MAX / PAGE_SIZE * PAGE_SIZE);
        match whole.last_mut() {
            Some(last) if start <= last.end() => {
                *last = AddrRange::new(last.start(), end.max(last.end())).unwrap_or(*last);
            }
            _ => whole.extend(AddrRange::new(start, end)),
        }
    }
    whole
}

/// Makes findings of aggregations, and hands them to another thread.
struct Forward {
    findings: SyncSender<Finding>,
    infos: Infos,
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
        let infos = self.infos.now();
        self.findings
            .send(Finding { snapshot, cost, infos })
            .map_err(|_| anyhow!("nobody takes the snapshots any more"))
    }

    /// After a rest: the kernel has its targets in the order of the last survey, and counts its time from zero.
    fn begin_again(&mut self, kernels_cpu: Duration) {
        self.ids = self.spaces.iter().map(|space| space.id).collect();
        self.regions = self.attributes.min_regions();
        self.last_ns = damon::now_ns().saturating_sub(self.start_ns);
        self.cpu = monitor_cpu_time() + kernels_cpu;
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
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    #[test]
    fn ranges_become_whole_pages_in_order_that_do_not_touch() {
        let asked = vec![range(0x9001, 0x9002), range(0x1000, 0x3000), range(0x3000, 0x4000), range(0x2000, 0x2800)];
        assert_eq!(whole(asked), [range(0x1000, 0x4000), range(0x9000, 0xa000)]);
        assert_eq!(whole(vec![range(0x1000, u64::MAX)]), [range(0x1000, u64::MAX / 4096 * 4096)]);
        assert!(whole(vec![]).is_empty());
    }
}

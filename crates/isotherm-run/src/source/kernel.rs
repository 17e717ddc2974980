//! The kernel's own DAMON. It samples, merges and splits; this source takes whole aggregations and adds the mappings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::{AddressSpace, Attributes, IntervalsGoal, Snapshot, TargetId, TargetSnapshot, TargetSpace};
use isotherm_kernel::{Part, Rest, Waiter, Woken, monitor_cpu_time, page_ranges};
use isotherm_probes::damon::{self, Aggregation, DamonError, DamonPaths, Scope, Settings};
use isotherm_record::{Cost, SnapshotRecord};

use super::{Outlet, Source};
use crate::targets::{InfoReader, LiveTargets};
use crate::{EndReason, RunError};

/// Aggregations are collected at least this often, so that an end is noticed.
const COLLECT_EVERY: Duration = Duration::from_secs(1);

/// An interval has changed if an aggregation took longer or shorter by more than this part of it. Less is lateness.
const LEAST_CHANGE: f64 = 0.1;

/// Lets the kernel's DAMON watch the targets.
pub(crate) struct KernelSource {
    pub(crate) attributes: Attributes,
    pub(crate) paths: DamonPaths,
    pub(crate) targets: LiveTargets,
    /// The part of the one process that is watched, or the whole of all targets.
    pub(crate) part: Part,
    /// By what the kernel tunes the intervals. `None` if they are fixed.
    pub(crate) goal: Option<IntervalsGoal>,
}

impl Source for KernelSource {
    /// However it ends, the kernel's DAMON is left as it was.
    fn run(self: Box<Self>, outlet: &mut Outlet) -> Result<EndReason, RunError> {
        let Self { mut attributes, paths, mut targets, part, goal } = *self;
        let control = outlet.control.clone();
        let mut run = damon::Run::prepare(paths.clone())?;
        // The length of an aggregation follows from the time of the one before.
        let goal = goal.filter(|_| run.is_complete());
        let mut waiter = Waiter::new(targets.processes(), control.stop_signal());
        let spaces = read_spaces(&mut targets)?;
        let start = Instant::now();
        let deadline = outlet.begin(start);
        if spaces.is_empty() {
            return Ok(EndReason::Finished);
        }
        run.start(&Settings { attributes, scope: scope(&spaces, &part), goal })?;
        outlet.attributes(attributes);
        let mut converter = Converter {
            infos: targets.infos(),
            ids: spaces.iter().map(|space| space.id).collect(),
            spaces,
            attributes,
            tunes: goal.is_some(),
            start_ns: damon::now_ns(),
            last_ns: 0,
            regions: attributes.min_regions(),
            cpu: monitor_cpu_time() + run.cpu_time(),
        };

        let mut pace = attributes.aggregation().min(COLLECT_EVERY);
        let (mut due, mut update) = (start + pace, start + attributes.update());
        loop {
            let commands = control.take();
            let changed = commands.attributes(attributes).filter(|new| *new != attributes);
            if control.rest.is_wanted() || changed.is_some() {
                // While the schemes sleep, others may use the kernel's DAMON. Other attributes need another start, too.
                run.end()?;
                let rested = rest(&mut waiter, &control.rest, deadline, || {
                    converter.spaces = read_spaces(&mut targets)?;
                    Ok(!converter.spaces.is_empty())
                })?;
                if let Some(reason) = rested {
                    return Ok(reason);
                }
                attributes = changed.unwrap_or(attributes);
                pace = attributes.aggregation().min(COLLECT_EVERY);
                run = damon::Run::prepare(paths.clone())?;
                run.start(&Settings { attributes, scope: scope(&converter.spaces, &part), goal })?;
                converter.begin_again(attributes, run.cpu_time());
                outlet.attributes(attributes);
                (due, update) = (Instant::now() + pace, Instant::now() + attributes.update());
            }
            let woken = waiter.until(due).map_err(RunError::Wait)?;
            // Asked before the collection, so that nothing is missed of what the kernel found before its end.
            let is_on = run.is_on();
            for aggregation in run.collect()? {
                let before = converter.attributes;
                let record = converter.convert(aggregation, run.cpu_time());
                if converter.attributes != before {
                    outlet.attributes(converter.attributes);
                }
                outlet.snapshot(Arc::new(record));
            }
            let now = Instant::now();
            let reason = match woken {
                Woken::Stopped => Some(EndReason::Stopped),
                _ if deadline.is_some_and(|deadline| now >= deadline) => Some(EndReason::DurationOver),
                _ => None,
            };
            if let Some(reason) = reason {
                run.end()?;
                return Ok(reason);
            }
            if woken == Woken::TargetEnded || now >= update || commands.update || !is_on {
                converter.spaces = read_spaces(&mut targets)?;
                update = now + attributes.update();
                if converter.spaces.is_empty() {
                    run.end()?;
                    return Ok(EndReason::Finished);
                }
            }
            if !is_on {
                return Err(DamonError::TurnedOff.into());
            }
            due = (due + pace).max(now);
        }
    }
}

/// Waits until the rest is over. Returns why the run ends, if it does. `any_target` says whether a target is left.
fn rest(
    waiter: &mut Waiter,
    rest: &Rest,
    deadline: Option<Instant>,
    mut any_target: impl FnMut() -> Result<bool, RunError>,
) -> Result<Option<EndReason>, RunError> {
    loop {
        let woken = waiter.rest(rest, deadline).map_err(RunError::Wait)?;
        if woken == Woken::Stopped {
            return Ok(Some(EndReason::Stopped));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(Some(EndReason::DurationOver));
        }
        if !any_target()? {
            return Ok(Some(EndReason::Finished));
        }
        if !rest.is_wanted() {
            return Ok(None);
        }
    }
}

/// The targets that live, with the mappings that are watched.
fn read_spaces(targets: &mut LiveTargets) -> Result<Vec<TargetSpace>, RunError> {
    targets.read_targets().map_err(RunError::Space)
}

/// The targets, as the kernel needs them. Of a part with names of mappings, these are the mappings of `spaces`, because
/// the kernel knows addresses only. Memory that is mapped later in ranges of addresses belongs to them.
fn scope(spaces: &[TargetSpace], part: &Part) -> Scope {
    let pids: Vec<u32> = spaces.iter().filter_map(|space| space.id.pid()).collect();
    let mapped = |space: &TargetSpace| page_ranges(space.mappings.iter().map(|mapping| mapping.range));
    match (spaces, &pids[..]) {
        ([memory], []) => Scope::Physical(mapped(memory)),
        ([process], [pid]) if !part.mappings.is_empty() => Scope::Ranges(*pid, mapped(process)),
        (_, [pid]) if !part.ranges.is_empty() => Scope::Ranges(*pid, page_ranges(part.ranges.iter().copied())),
        _ => Scope::Processes(pids),
    }
}

/// Makes snapshots of the kernel's aggregations.
struct Converter {
    infos: InfoReader,
    /// The targets in the order in which the kernel has them.
    ids: Vec<TargetId>,
    /// Those that live.
    spaces: Vec<TargetSpace>,
    attributes: Attributes,
    /// Whether the kernel tunes the intervals.
    tunes: bool,
    /// The start of the run, by the clock of aggregations.
    start_ns: u64,
    /// The time of the last aggregation, since the start.
    last_ns: u64,
    /// How many regions the last aggregation ended with.
    regions: usize,
    /// CPU time, the kernel's and ours, up to the last aggregation.
    cpu: Duration,
}

impl Converter {
    fn convert(&mut self, aggregation: Aggregation, kernel_cpu: Duration) -> SnapshotRecord {
        let time_ns = aggregation.time_ns.saturating_sub(self.start_ns);
        if self.tunes && !aggregation.gap {
            self.follow_tuned(Duration::from_nanos(time_ns.saturating_sub(self.last_ns)));
        }
        let samples = self.attributes.samples();
        // The kernel made the rounds of aggregations that did not reach us, too.
        let rounds = samples.saturating_mul(if aggregation.gap { self.passed(time_ns) } else { 1 });
        self.last_ns = time_ns;

        let regions: usize = aggregation.targets.iter().map(|(_, regions)| regions.len()).sum();
        let reads = self.reads();
        self.regions = regions;
        let target = |(index, regions): (usize, Vec<_>)| {
            let id = self.ids.get(index)?;
            // The kernel keeps the regions of a target that has ended.
            let space = self.spaces.iter().find(|space| space.id == *id)?;
            Some(TargetSnapshot { id: *id, regions, mappings: Arc::clone(&space.mappings) })
        };
        let targets: Vec<_> = aggregation.targets.into_iter().filter_map(target).collect();
        let cpu = monitor_cpu_time() + kernel_cpu;
        let cost = Cost {
            rounds,
            late_rounds: 0,
            sampled_rounds: Some(rounds),
            reads: u64::from(rounds) * u64::from(reads),
            max_reads: reads,
            clears: u64::from(rounds) * u64::from(reads),
            cpu_ns: cpu.saturating_sub(self.cpu).as_nanos() as u64,
            other_cpu_ns: None,
            limited: None,
            not_afforded: None,
            unobservable_bytes: 0,
            longest_hold_ns: None,
            holds_ns: None,
        };
        self.cpu = cpu;
        let snapshot = Snapshot {
            time: Duration::from_nanos(time_ns),
            aggregation: self.attributes.aggregation(),
            samples,
            targets,
            rounds,
            sampled_rounds: rounds,
            reads: cost.reads,
            max_reads: cost.max_reads,
            clears: cost.clears,
            histories: Vec::new(),
        };
        let infos = self.infos.read(snapshot.targets.iter().map(|target| target.id));
        SnapshotRecord { snapshot, cost: Some(cost), infos, ..SnapshotRecord::default() }
    }

    /// Takes in that the last aggregation took `passed`. The kernel keeps the number of samples of an aggregation.
    fn follow_tuned(&mut self, passed: Duration) {
        let sampling = passed / self.attributes.samples().max(1);
        let change = sampling.abs_diff(self.attributes.sampling());
        if change > self.attributes.sampling().mul_f64(LEAST_CHANGE)
            && let Ok(tuned) =
                self.attributes.with_intervals(sampling, sampling.saturating_mul(self.attributes.samples()))
        {
            self.attributes = tuned;
        }
    }

    /// After another start: the kernel numbers the targets in the order of the last reading, and counts from zero.
    fn begin_again(&mut self, attributes: Attributes, kernel_cpu: Duration) {
        self.ids = self.spaces.iter().map(|space| space.id).collect();
        self.attributes = attributes;
        self.regions = attributes.min_regions();
        self.last_ns = damon::now_ns().saturating_sub(self.start_ns);
        self.cpu = monitor_cpu_time() + kernel_cpu;
    }

    /// How many aggregations have passed since the last one, at least one.
    fn passed(&self, time_ns: u64) -> u32 {
        let interval = self.attributes.aggregation().as_nanos().max(1);
        let passed = (u128::from(time_ns.saturating_sub(self.last_ns)) + interval / 2) / interval;
        u32::try_from(passed).unwrap_or(u32::MAX).max(1)
    }

    /// How many pages the kernel looked at in a round: about one a region. It reports the regions after merging, at
    /// the end of an aggregation, and begins the next by splitting each in two if there may be twice as many.
    fn reads(&self) -> u32 {
        let max = self.attributes.max_regions();
        let regions = if self.regions > max / 2 { self.regions } else { self.regions * 2 };
        u32::try_from(regions.min(max)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::AddrRange;

    use super::*;

    fn range(start: u64, end: u64) -> AddrRange {
        AddrRange::new(start, end).unwrap()
    }

    #[test]
    fn ranges_become_whole_pages_in_order_that_do_not_touch() {
        let asked = vec![range(0x9001, 0x9002), range(0x1000, 0x3000), range(0x3000, 0x4000), range(0x2000, 0x2800)];
        assert_eq!(page_ranges(asked), [range(0x1000, 0x4000), range(0x9000, 0xa000)]);
        assert_eq!(page_ranges(vec![range(0x1000, u64::MAX)]), [range(0x1000, u64::MAX / 4096 * 4096)]);
        assert!(page_ranges(vec![]).is_empty());
    }
}

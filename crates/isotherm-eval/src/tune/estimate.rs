//! What schemes that free memory would give, estimated from recordings: no program runs.
//!
//! A recording is replayed through the schemes, which act on nothing. What they would have freed counts as out of
//! memory until a survey finds that it was accessed; then it has come back, and each page of it has cost a page fault.
//! So many values are tried in one pass over the recording.
//!
//! Not known are: how much longer the program would have waited in places where it cannot wait, read-ahead, and what a
//! program does differently because it waits.

use std::path::PathBuf;
use std::time::Duration;

use isotherm_core::scheme::{DryRunActuator, DryRunInspector, NoGauges, Scheme, Schemes};
use isotherm_core::{AddrRange, PAGE_SIZE, Sink, Snapshot, TargetId};
use isotherm_run::{Event, RunConfig, Source, recorded_facts};

use super::Changes;
use crate::EvalError;

/// What is estimated of some values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Estimate {
    /// The changes, as if the program had waited for each page that came back.
    pub(super) changes: Changes,
    /// Bytes that were freed.
    pub(super) freed: u64,
    /// Bytes of these that came back.
    pub(super) came_back: u64,
}

/// Whether a trial can say what comes of schemes.
pub(super) fn can_be_estimated(schemes: &[Scheme]) -> bool {
    schemes.iter().any(|scheme| scheme.action.frees())
}

/// Replays recordings through several lists of schemes. A page that comes back costs `fault`.
pub(super) fn estimate(
    recordings: &[PathBuf],
    lists: &[Vec<Scheme>],
    fault: Duration,
) -> Result<Vec<Estimate>, EvalError> {
    let mut sums = vec![Sums::default(); lists.len()];
    for recording in recordings {
        let mut trials = lists.iter().map(|schemes| Trial::new(schemes)).collect::<Result<Vec<_>, _>>()?;
        replay(recording, lists.first().cloned().unwrap_or_default(), |event| {
            if let Event::Snapshot(record) = event {
                for trial in &mut trials {
                    for (id, info) in record.infos.iter() {
                        trial.engine.inspector_mut().insert(*id, recorded_facts(&info.command));
                    }
                    trial.take(&record.snapshot)?;
                }
            }
            Ok(())
        })?;
        sums.iter_mut().zip(trials).for_each(|(sums, trial)| sums.add(trial.sums));
    }
    if sums.iter().any(|sums| sums.present == 0.0) {
        let named: Vec<String> = recordings.iter().map(|path| path.display().to_string()).collect();
        return Err(EvalError::Failed(format!(
            "{} has no survey, so that nothing can be estimated; record without --survey off",
            named.join(", ")
        )));
    }
    Ok(sums.into_iter().map(|sums| sums.finish(fault)).collect())
}

/// Hands the events of a recording to `each`. The schemes make the replay follow the pages of surveys.
fn replay(
    recording: &std::path::Path,
    schemes: Vec<Scheme>,
    mut each: impl FnMut(Event) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    let failed = |error: &(dyn std::error::Error + 'static)| {
        EvalError::Failed(format!("{} cannot be replayed: {}", recording.display(), isotherm_run::chain(error)))
    };
    let source = Source::Replay { path: recording.into(), max_memory: None };
    let mut run = RunConfig::new(source).schemes(schemes).prepare().map_err(|error| failed(&error))?;
    let events = run.subscribe();
    let session = run.start().map_err(|error| failed(&error))?;
    events.into_iter().try_for_each(&mut each)?;
    session.wait().map_err(|error| failed(&error))?;
    Ok(())
}

/// Sums over the time of recordings.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    seconds: f64,
    /// Byte seconds of present memory.
    present: f64,
    /// Byte seconds of memory that would have been out.
    out: f64,
    freed: u64,
    came_back: u64,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.present += other.present;
        self.out += other.out;
        self.freed += other.freed;
        self.came_back += other.came_back;
    }

    fn finish(self, fault: Duration) -> Estimate {
        let waited = (self.came_back / PAGE_SIZE) as f64 * fault.as_secs_f64();
        let rss = -100.0 * self.out / self.present;
        let changes = Changes {
            runtime: 100.0 * waited / self.seconds,
            rss,
            system: rss,
            pressure: 100.0 * waited / self.seconds,
        };
        Estimate { changes, freed: self.freed, came_back: self.came_back }
    }
}

/// One list of schemes on one recording.
struct Trial {
    engine: Schemes<DryRunActuator, DryRunInspector, NoGauges>,
    /// What would be out of memory, with the time since which it is.
    out: Vec<(TargetId, AddrRange, Duration)>,
    out_bytes: u64,
    last: Option<Duration>,
    /// The time of the survey that was looked at last.
    surveyed: Option<Duration>,
    sums: Sums,
}

impl Trial {
    fn new(schemes: &[Scheme]) -> Result<Self, EvalError> {
        // As when schemes are tried: a recording has no values for goals.
        let untuned = |scheme: &Scheme| Scheme { quota: scheme.quota.clone().without_goals(), ..scheme.clone() };
        let schemes = schemes.iter().map(untuned).collect();
        let engine = Schemes::new(schemes, DryRunActuator, DryRunInspector::default(), NoGauges)
            .map_err(|error| EvalError::Failed(isotherm_run::chain(&error).to_string()))?;
        Ok(Self { engine, out: vec![], out_bytes: 0, last: None, surveyed: None, sums: Sums::default() })
    }

    fn take(&mut self, snapshot: &Snapshot) -> Result<(), EvalError> {
        let now = snapshot.time;
        let passed = now.saturating_sub(self.last.replace(now).unwrap_or(now)).as_secs_f64();
        let present: u64 = snapshot.histories.iter().map(|(_, pages)| pages.present() * PAGE_SIZE).sum();
        if present > 0 {
            self.sums.seconds += passed;
        }
        self.sums.present += passed * present as f64;
        self.sums.out += passed * self.out_bytes.min(present) as f64;
        let surveyed = snapshot.histories.iter().map(|(_, pages)| pages.time()).max();
        if surveyed != self.surveyed {
            self.surveyed = surveyed;
            self.see_what_came_back(snapshot);
        }
        self.engine
            .aggregated(snapshot)
            .map_err(|error| EvalError::Failed(format!("the schemes cannot be tried: {error}")))?;
        let applied = self.engine.schemes().zip(self.engine.reports());
        let applied = applied.filter(|(scheme, report)| scheme.action.frees() && report.last.time == now);
        let mut freed = 0;
        for region in applied.flat_map(|(_, report)| &report.last.regions) {
            let Some(pages) = snapshot.history(region.target) else { continue };
            for range in pages.present_ranges(region.range) {
                freed += range.size();
                self.out.push((region.target, range, now));
            }
        }
        self.out_bytes += freed;
        self.sums.freed += freed;
        Ok(())
    }

    /// Takes back in what was accessed since it was freed, and what the program has given back itself.
    fn see_what_came_back(&mut self, snapshot: &Snapshot) {
        let mut out: Vec<(TargetId, AddrRange, Duration)> = Vec::with_capacity(self.out.len());
        for (target, range, at) in self.out.drain(..) {
            let Some(pages) = snapshot.history(target) else { continue };
            let present: u64 = pages.present_ranges(range).iter().map(|range| range.size()).sum();
            let idle = pages.idle_ranges(range, pages.time().saturating_sub(at));
            let still: u64 = idle.iter().map(|(range, _)| range.size()).sum();
            self.sums.came_back += present.saturating_sub(still);
            for (idle, _) in idle {
                match out.last_mut() {
                    Some((of, before, when)) if *of == target && *when == at && before.end() == idle.start() => {
                        *before = AddrRange::new(before.start(), idle.end()).unwrap_or(*before);
                    }
                    _ => out.push((target, idle, at)),
                }
            }
        }
        self.out_bytes = out.iter().map(|(_, range, _)| range.size()).sum();
        self.out = out;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::sync::Arc;

    use isotherm_core::survey::{BLOCK_SIZE, BlockPages, ClearPages, PageBits, PageHistory};
    use isotherm_core::{Figures, Mapping, RegionSnapshot, TargetSnapshot};

    use super::*;

    const ID: TargetId = TargetId::process(7, Duration::ZERO);

    /// The snapshots of two blocks, of which the first is always in use, and the second only at some seconds.
    fn snapshots(seconds: u64, second_in_use: &[u64]) -> Vec<Snapshot> {
        let range = |nth: u64| AddrRange::new(nth * BLOCK_SIZE, (nth + 1) * BLOCK_SIZE).unwrap();
        let mappings: Arc<[Mapping]> = Arc::new([Mapping::anonymous(AddrRange::new(0, 2 * BLOCK_SIZE).unwrap())]);
        let mut pages = PageHistory::default();
        let mut age = 0;
        let snapshot = |second: u64| {
            let is_used = [true, second_in_use.contains(&second)];
            let blocks = [0, 1].map(|nth| BlockPages {
                start: nth * BLOCK_SIZE,
                present: PageBits::ALL,
                accessed: if is_used[nth as usize] { PageBits::ALL } else { PageBits::NONE },
                ..BlockPages::default()
            });
            pages.take(&blocks, Duration::from_secs(second));
            let clear = |nth: u64| ClearPages { start: nth * BLOCK_SIZE, pages: PageBits::ALL, ..Default::default() };
            pages.cleared(&[0, 1].map(clear));
            age = if is_used[1] { 0 } else { age + 1 };
            let region = |nth: u64| {
                let touched = if is_used[nth as usize] { BLOCK_SIZE } else { 0 };
                RegionSnapshot {
                    nr_accesses: if is_used[nth as usize] { 20 } else { 0 },
                    nr_samples: 20,
                    age: if nth == 0 { second as u32 } else { age },
                    pages: Some(Figures { present: BLOCK_SIZE, touched, ..Figures::default() }),
                    ..RegionSnapshot::new(range(nth))
                }
            };
            let target =
                TargetSnapshot { id: ID, regions: vec![region(0), region(1)], mappings: Arc::clone(&mappings) };
            Snapshot {
                time: Duration::from_secs(second),
                aggregation: Duration::from_secs(1),
                samples: 20,
                targets: vec![target],
                histories: vec![(ID, Arc::new(pages.clone()))],
                ..Snapshot::default()
            }
        };
        (1..=seconds).map(snapshot).collect()
    }

    fn estimated(text: &str, snapshots: &[Snapshot]) -> Estimate {
        let mut trial = Trial::new(&isotherm_scheme::parse("a.yaml", text).unwrap()).unwrap();
        snapshots.iter().for_each(|snapshot| trial.take(snapshot).unwrap());
        trial.sums.finish(Duration::from_micros(100))
    }

    #[test]
    fn what_is_freed_is_out_until_it_is_accessed_and_then_costs_faults() {
        let of = |age: u64| format!("- {{action: pageout, access_rate: 0%, age: {{min: {age}s}}}}");
        let idle = snapshots(20, &[]);
        let found = estimated(&of(3), &idle);
        assert_eq!((found.freed, found.came_back, found.changes.runtime), (BLOCK_SIZE, 0, 0.0));
        assert!((-50.0..-35.0).contains(&found.changes.rss), "{found:?}");

        let again = snapshots(20, &[11]);
        let found = estimated(&of(3), &again);
        assert_eq!((found.freed, found.came_back), (2 * BLOCK_SIZE, BLOCK_SIZE));
        // 512 faults of 100 µs in 19 s.
        assert!((found.changes.runtime - 100.0 * 512.0 * 1e-4 / 19.0).abs() < 1e-6, "{found:?}");
        assert!(found.changes.rss > estimated(&of(3), &idle).changes.rss);
        let never = estimated(&of(30), &again);
        assert_eq!((never.freed, never.changes.rss), (0, 0.0));
    }
}

//! A trial: a recording replayed through schemes that act on nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use isotherm_core::scheme::{
    ActedRegion, DryRunActuator, DryRunInspector, FilterKind, NoGauges, PageKind, ProcessFacts, Quota, Report, Scheme,
    Schemes,
};
use isotherm_core::{AddrRange, Mapping, Sink, Snapshot, TargetId};
use isotherm_record::{Recording, Row};

/// What schemes would have done.
pub struct Trial {
    pub recording: PathBuf,
    pub duration: Duration,
    pub snapshots: u64,
    pub schemes: Vec<Tried>,
    /// What a recording cannot tell, and what was assumed.
    pub notes: Vec<String>,
}

/// What one scheme would have done.
pub struct Tried {
    pub scheme: Scheme,
    pub report: Report,
    /// Its applications that found something, in the order of time.
    pub steps: Vec<Step>,
    /// Different bytes that it would have taken, however often.
    pub distinct_bytes: u64,
    /// The most that was left alone at once because its temperature could not be observed.
    pub most_unobservable: u64,
}

/// One application that found something.
pub struct Step {
    pub time: Duration,
    pub bytes: u64,
    pub held_back: u64,
    pub regions: Vec<(ActedRegion, Arc<str>)>,
}

/// Replays `recording` through `schemes`.
pub fn trial(schemes: Vec<Scheme>, recording: &Recording) -> Result<Trial> {
    let notes = notes(&schemes);
    let mut replay = Replay::new(&schemes)?;
    let mut rows: Vec<Row> = Vec::new();
    for row in recording.rows()? {
        let row = row?;
        if rows.first().is_some_and(|first| first.time != row.time) {
            replay.step(&mut rows)?;
        }
        rows.push(row);
    }
    if !rows.is_empty() {
        replay.step(&mut rows)?;
    }
    let Replay { engine, steps, taken, most_unobservable, snapshots, end } = replay;
    let tried = schemes.into_iter().zip(engine.reports()).zip(steps).zip(taken).zip(most_unobservable);
    let tried = tried.map(|((((scheme, report), steps), taken), most_unobservable)| {
        let distinct_bytes =
            taken.into_values().map(|ranges| joined(ranges).iter().map(|r| r.size()).sum::<u64>()).sum();
        Tried { scheme, report: report.clone(), steps, distinct_bytes, most_unobservable }
    });
    let schemes = tried.collect();
    Ok(Trial { recording: recording.path().to_path_buf(), duration: end, snapshots, schemes, notes })
}

/// The schemes at work, and what they did so far.
struct Replay {
    engine: Schemes<DryRunActuator, DryRunInspector, NoGauges>,
    steps: Vec<Vec<Step>>,
    taken: Vec<BTreeMap<TargetId, Vec<AddrRange>>>,
    most_unobservable: Vec<u64>,
    snapshots: u64,
    end: Duration,
}

impl Replay {
    fn new(schemes: &[Scheme]) -> Result<Self> {
        let tried: Vec<Scheme> = schemes.iter().map(without_goals).collect::<Result<_>>()?;
        Ok(Self {
            engine: Schemes::new(tried, DryRunActuator, DryRunInspector::default(), NoGauges)?,
            steps: schemes.iter().map(|_| Vec::new()).collect(),
            taken: schemes.iter().map(|_| BTreeMap::new()).collect(),
            most_unobservable: vec![0; schemes.len()],
            snapshots: 0,
            end: Duration::ZERO,
        })
    }

    /// Takes the rows of one snapshot.
    fn step(&mut self, rows: &mut Vec<Row>) -> Result<()> {
        let first = rows.first().context("a snapshot has a row")?;
        let mut snapshot = Snapshot {
            time: first.time,
            aggregation: first.aggregation,
            samples: first.samples,
            ..Snapshot::default()
        };
        for row in rows.drain(..) {
            let facts = ProcessFacts { name: name(&row.info.command).into(), cgroup: "".into() };
            self.engine.inspector_mut().insert(row.target.id, facts);
            snapshot.targets.push(row.target);
        }
        let before: Vec<u64> = self.engine.reports().map(|report| report.total.applications).collect();
        self.engine.aggregated(&snapshot).map_err(|error| anyhow::anyhow!(error))?;
        self.snapshots += 1;
        self.end = snapshot.time;
        for (nth, report) in self.engine.reports().enumerate() {
            let most = &mut self.most_unobservable[nth];
            *most = report.last.unobservable_bytes.max(*most);
            let found = !report.last.regions.is_empty() || report.last.held_back_bytes > 0;
            if report.total.applications == before[nth] || !found {
                continue;
            }
            for region in &report.last.regions {
                let ranges = self.taken[nth].entry(region.target).or_default();
                ranges.push(region.range);
                if ranges.len() > MANY {
                    *ranges = joined(std::mem::take(ranges));
                }
            }
            self.steps[nth].push(Step {
                time: snapshot.time,
                bytes: report.last.regions.iter().map(|region| region.range.size()).sum(),
                held_back: report.last.held_back_bytes,
                regions: report.last.regions.iter().map(|region| (*region, mapping(&snapshot, region))).collect(),
            });
        }
        Ok(())
    }
}

/// After so many ranges those that overlap are joined, so that memory does not grow with the recording's length.
const MANY: usize = 1 << 16;

/// The ranges without what they share.
fn joined(mut ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, kept| match AddrRange::new(kept.start(), kept.end().max(next.end())) {
        Some(both) if next.start() <= kept.end() => {
            *kept = both;
            true
        }
        _ => false,
    });
    ranges
}

/// The name of the mapping that a region lies in.
fn mapping(snapshot: &Snapshot, region: &ActedRegion) -> Arc<str> {
    let of = snapshot.targets.iter().find(|target| target.id == region.target);
    let found = of.and_then(|target| target.mappings.iter().find(|m| m.range.contains(region.range.start())));
    found.map_or_else(|| "".into(), Mapping::label)
}

/// The name that a process of this command line likely has: the kernel keeps 15 bytes of it.
fn name(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let end = (0..=name.len().min(15)).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    &name[..end]
}

/// The scheme with a quota that stays as it is written.
fn without_goals(scheme: &Scheme) -> Result<Scheme> {
    let quota = &scheme.quota;
    let fixed = Quota::new(quota.bytes(), quota.time(), quota.period(), quota.weights(), Vec::new())?;
    Ok(Scheme { quota: fixed, ..scheme.clone() })
}

/// What a recording cannot tell, and what is assumed in its place.
fn notes(schemes: &[Scheme]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |applies: bool, scheme: &Scheme, what: &str| {
        if applies {
            notes.push(format!("{}: {what}", scheme.name));
        }
    };
    for scheme in schemes {
        let pages = |kind| scheme.page_kinds().any(|asked| asked == kind);
        let cgroup = scheme.filters.iter().any(|filter| matches!(filter.kind, FilterKind::Cgroup(_)));
        note(pages(PageKind::Young), scheme, "a recording does not tell which pages are young: none was taken to be");
        note(pages(PageKind::Huge), scheme, "a recording does not tell which pages are huge: none was taken to be");
        note(cgroup, scheme, "a recording does not tell cgroups: no process was taken to be in one");
        note(scheme.watermarks.is_some(), scheme, "its watermarks were left out: it was awake all the time");
        note(!scheme.quota.goals().is_empty(), scheme, "its goals were left out: its quota was not tuned");
        note(
            scheme.quota.time().is_some(),
            scheme,
            "its quota of time was left out: how long actions take is not known",
        );
    }
    notes
}

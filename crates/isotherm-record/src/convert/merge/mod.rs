//! One recording of several.
//!
//! The recordings are laid on one time axis by the time at which they started. In a recording, a snapshot has all
//! targets that are watched at its time, and so does a survey; reports rely on that. Therefore snapshots of recordings
//! that cover the same time are joined: at the time of a snapshot of the result, each recording has the snapshot that
//! covers this time ([`join`]). The same holds for surveys and activities.

mod error;
mod header;
mod input;
mod join;
mod sums;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::survey::SurveySnapshot;
use isotherm_core::{Allocations, TargetId, chain, sanitise};

use super::of_output;
use super::recording::interleave;
use crate::id::StoredId;
use crate::{
    Activity, Contents, Ending, Header, Mark, Missed, RecordError, Recorder, Recording, SnapshotRecord, SurveyRecord,
    TargetInfo, pid_column, recording_at,
};
use input::Input;
use join::{Join, Moment, Pieces, Share};
use sums::{Step, Sums};

pub use error::MergeError;

/// What was merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The number of snapshots of the result. Those of several recorders at one time count as one.
    pub snapshots: u64,
    /// The number of targets of the result.
    pub targets: u64,
    /// The recordings of which something is missing, and why.
    pub incomplete: Vec<(PathBuf, String)>,
}

/// Writes one recording of several to `output`.
///
/// The result begins when the first recording started, by the wall clock. It appears when it is whole. A recording that
/// is replaced is kept. Of a recording that is damaged or has no end mark, what can be read is merged; the result then
/// has no end mark either. For each recording, one part of it is in memory at a time, as when it is read.
///
/// # Errors
/// If figures of the recordings together would be wrong, which the error says; if none has a snapshot or a survey, if
/// one cannot be read, or if `output` is one of them or cannot be written.
pub fn merge(recordings: &[Recording], output: &Path) -> Result<Merged, MergeError> {
    let mut sorted: Vec<&Recording> = recordings.iter().collect();
    sorted.sort_by_key(|recording| recording.header().started_unix_ns);
    let Some((first, others)) = sorted.split_first() else { return Err(MergeError::Nothing) };
    for other in others {
        if let Some(what) = header::difference(first.header(), other.header()) {
            return Err(MergeError::Differ { first: first.path().into(), second: other.path().into(), what });
        }
    }
    let file = recording_at(output).apart_from(recordings.iter().map(Recording::path)).create()?;
    let started = first.header().started_unix_ns;
    let inputs: Vec<Input<'_>> = sorted.iter().map(|recording| Input::new(recording, started)).collect();
    let headers: Vec<_> = inputs.iter().map(|input| (input.recording.header(), input.time())).collect();
    let Some(header) = header::together(&headers) else { return Err(MergeError::Nothing) };

    let merging = Merging::new(&inputs, &header);
    let snapshots = merging.snapshots();
    let surveys = merging.surveys();
    let mut activities = merging.activities().peekable();
    let mut marks = merging.marks().peekable();
    let missed = merging.missed();
    let next_stack = RefCell::new(0);
    let allocations = merging.allocations(&next_stack);
    let has = |of: fn(&Contents) -> bool| inputs.iter().any(|input| of(&input.recording.contents()));
    let contents = Contents {
        activities: activities.peek().is_some(),
        surveys: has(|contents| contents.surveys),
        live: has(|contents| contents.live),
        marks: marks.peek().is_some(),
        allocations: has(|contents| contents.allocations),
    };
    let incomplete = RefCell::new(Vec::new());
    // Bounds of several recordings cannot be added up.
    let panels = std::iter::empty();
    let write = || {
        let mut recorder = Recorder::begin(file, &header, contents)?.appearing_whole();
        interleave(&mut recorder, snapshots, activities, surveys, marks, allocations, (missed, panels))?;
        merging.check()?;
        *incomplete.borrow_mut() = missing(&inputs)?;
        if incomplete.borrow().is_empty() {
            recorder.finish().map(drop)?
        } else {
            recorder.break_off()?
        }
        Ok(())
    };
    write().map_err(|error| match error {
        MergeError::Record(error) => of_output(output, error).into(),
        error => error,
    })?;
    let targets = merging.targets.borrow().len() as u64;
    Ok(Merged { snapshots: merging.snapshots.get(), targets, incomplete: incomplete.take() })
}

/// What is missing of recordings that have been read.
///
/// # Errors
/// If one could not be read for another reason than what it says.
fn missing(inputs: &[Input<'_>]) -> Result<Vec<(PathBuf, String)>, RecordError> {
    let mut incomplete = Vec::new();
    for input in inputs {
        let recording = input.recording;
        let mut why = Vec::new();
        match input.take_error() {
            Some(error @ RecordError::Damaged { .. }) => why.push(chain(&error)),
            Some(error) => return Err(error),
            None => {}
        }
        match recording.damage().len() {
            0 => {}
            1 => why.push("a part of it is damaged; `isotherm check` says which".into()),
            parts => why.push(format!("{parts} parts of it are damaged; `isotherm check` says which")),
        }
        match recording.ending() {
            Ending::Whole => {}
            Ending::Unfinished => why.push("it has no end mark: it is being made, or its recorder was killed".into()),
            Ending::CutShort { at } => why.push(format!("it is cut short at byte {at}")),
        }
        if !why.is_empty() {
            incomplete.push((recording.path().into(), why.join("; ")));
        }
    }
    Ok(incomplete)
}

/// Recordings that are being merged.
struct Merging<'a> {
    inputs: &'a [Input<'a>],
    /// Whether the starts of processes are counted from the boot.
    from_boot: bool,
    /// Why they cannot be merged, if that has turned out. All items end then.
    refused: RefCell<Option<MergeError>>,
    /// The targets so far.
    targets: RefCell<HashSet<TargetId>>,
    /// Whether the targets are physical memory, and the first recording that has some.
    kind: Cell<Option<(bool, usize)>>,
    /// The snapshots so far. Those of one time count as one.
    snapshots: Cell<u64>,
    has_survey: Cell<bool>,
}

impl<'a> Merging<'a> {
    fn new(inputs: &'a [Input<'a>], header: &Header) -> Self {
        Self {
            inputs,
            from_boot: header.host.counts_from_boot(),
            refused: RefCell::new(None),
            targets: RefCell::default(),
            kind: Cell::new(None),
            snapshots: Cell::new(0),
            has_survey: Cell::new(false),
        }
    }

    /// Fails if the recordings cannot be merged, or had nothing.
    fn check(&self) -> Result<(), MergeError> {
        match self.refused.take() {
            Some(error) => Err(error),
            None if self.snapshots.get() == 0 && !self.has_survey.get() => {
                // What cannot be read is the reason.
                let error = self.inputs.iter().find_map(Input::take_error);
                Err(error.map_or(MergeError::Nothing, MergeError::Record))
            }
            None => Ok(()),
        }
    }

    fn path(&self, of: usize) -> PathBuf {
        self.inputs.get(of).map(|input| input.recording.path().into()).unwrap_or_default()
    }

    fn join<T>(
        &'a self,
        start: fn(&Input<'a>) -> Duration,
        items: impl Fn(&'a Input<'a>) -> Pieces<'a, T> + Copy + 'a,
    ) -> impl Iterator<Item = Moment<T>> + 'a
    where
        T: Clone + 'a,
    {
        let mut join = Join::new();
        self.inputs.iter().for_each(|input| join.add(start(input), move || items(input)));
        join.take_while(|_| self.refused.borrow().is_none())
    }

    fn snapshots(&'a self) -> impl Iterator<Item = SnapshotRecord> + 'a {
        let moments = self.join(|input| input.time().start, Input::snapshots);
        moments.map_while(move |moment| self.admitted(self.snapshot(moment))).flatten()
    }

    /// The snapshots of a moment: one of each recorder, since each has its own intervals and costs.
    fn snapshot(&self, moment: Moment<Vec<SnapshotRecord>>) -> Result<Vec<SnapshotRecord>, MergeError> {
        let mut all = Vec::new();
        let mut seen = Seen::default();
        for Share { of, item, is_new, .. } in moment.shares {
            for mut record in item {
                for (nth, target) in record.snapshot.targets.iter().enumerate() {
                    self.admit(of, target.id, || record.nth_info(nth), &mut seen)?;
                }
                record.snapshot.time = moment.time;
                // What it cost counts once.
                record.cost = record.cost.filter(|_| is_new);
                all.push(record);
            }
        }
        // A reader takes a snapshot without a cost for a part of the one before it.
        all.sort_by_key(|record| record.cost.is_none());
        self.snapshots.set(self.snapshots.get() + 1);
        Ok(all)
    }

    fn surveys(&'a self) -> impl Iterator<Item = SurveyRecord> + 'a {
        let mut before = Duration::ZERO;
        self.join(|input| input.time().start, Input::surveys).map_while(move |moment| {
            let before = std::mem::replace(&mut before, moment.time);
            self.admitted(self.survey(moment, before))
        })
    }

    /// The survey of a moment, with the targets of all recordings. What one of them knows of all its targets together
    /// is not known of all targets of all of them.
    fn survey(&self, moment: Moment<SurveyRecord>, before: Duration) -> Result<SurveyRecord, MergeError> {
        let Moment { time, shares } = moment;
        let is_alone = shares.len() == 1;
        let since = shares.iter().map(|share| share.since).min().unwrap_or(time).max(before);
        // The first survey of a run tells nothing of when memory was accessed, and neither does one together with it.
        let begins = shares.iter().any(|share| share.item.survey.interval.is_zero());
        let interval = if begins { Duration::ZERO } else { time.saturating_sub(since) };
        let mut whole =
            SurveyRecord { survey: SurveySnapshot { time, interval, ..Default::default() }, ..Default::default() };
        let (mut infos, mut seen) = (Vec::new(), Seen::default());
        for Share { of, item: SurveyRecord { survey, cpu, infos: known }, is_new, end, .. } in shares {
            let record = SurveyRecord { survey, cpu, infos: known };
            for (target, info) in record.described() {
                self.admit(of, target.id, || info.clone(), &mut seen)?;
                infos.push((target.id, info));
            }
            if is_new {
                whole.survey.cost.reads = whole.survey.cost.reads.saturating_add(record.survey.cost.reads);
                whole.survey.cost.clears = whole.survey.cost.clears.saturating_add(record.survey.cost.clears);
                whole.cpu = match (whole.cpu, record.cpu) {
                    (Some(one), Some(other)) => Some(one.saturating_add(other)),
                    (one, other) => one.or(other),
                };
            }
            if is_alone {
                whole.survey.total = record.survey.total;
                whole.survey.by_node = record.survey.by_node;
                // Its interval may be a little longer than the time since the survey before.
                whole.survey.interval = if end == time { record.survey.interval } else { interval };
            }
            whole.survey.left_out = whole.survey.left_out.or(record.survey.left_out);
            whole.survey.targets.extend(record.survey.targets);
        }
        whole.infos = infos.into();
        self.has_survey.set(true);
        Ok(whole)
    }

    fn activities(&'a self) -> impl Iterator<Item = Activity> + 'a {
        let mut sums = Sums::default();
        self.join(|input| input.time().start, Input::activities)
            .map_while(move |moment| self.admitted(self.activity(moment, &mut sums)))
            .flatten()
    }

    /// The activity of a moment: the memory of all targets, and what schemes have done in all recordings so far.
    fn activity(&self, moment: Moment<Step>, sums: &mut Sums) -> Result<Option<Activity>, MergeError> {
        moment.shares.iter().filter(|share| share.is_new).for_each(|share| sums.add(&share.item));
        // The memory of the system is that of the recording whose activity is of this time.
        let of_now = moment.shares.iter().position(|share| share.end == moment.time).unwrap_or(0);
        let Some(now) = moment.shares.get(of_now) else { return Ok(None) };
        let mut whole = Activity {
            time: moment.time,
            schemes: Vec::new(),
            memory: Vec::new(),
            system: now.item.activity.system,
            major_faults: Some(sums.major_faults()),
        };
        let mut names = HashMap::new();
        for Share { of, item: Step { activity, .. }, .. } in moment.shares {
            whole.memory.extend(activity.memory);
            whole.major_faults = whole.major_faults.filter(|_| activity.major_faults.is_some());
            for mut scheme in activity.schemes {
                if let Some(other) = names.insert(scheme.name.clone(), of).filter(|&other| other != of) {
                    let name = sanitise(&scheme.name).into_owned();
                    return Err(MergeError::SameScheme { first: self.path(other), second: self.path(of), name });
                }
                scheme.total = sums.of(&scheme.name);
                whole.schemes.push(scheme);
            }
        }
        Ok(Some(whole))
    }

    fn marks(&'a self) -> impl Iterator<Item = Mark> + 'a {
        let moments = self.join(|input| input.time().start, Input::marks);
        moments.flat_map(|moment| moment.shares).filter(|share| share.is_new).map(|share| share.item)
    }

    fn missed(&'a self) -> impl Iterator<Item = Missed> + 'a {
        let moments = self.join(|input| input.time().start, Input::missed);
        moments.flat_map(|moment| moment.shares).filter(|share| share.is_new).map(|share| share.item)
    }

    fn allocations(&'a self, next: &'a RefCell<u32>) -> impl Iterator<Item = Allocations> + 'a {
        let moments = self.join(Input::shift, move |input| input.allocations(next));
        moments.flat_map(|moment| moment.shares).filter(|share| share.is_new).map(|share| share.item)
    }

    /// Takes in that the recording `of` has a target in a moment, of which `seen` has the others.
    fn admit(
        &self,
        of: usize,
        id: TargetId,
        info: impl FnOnce() -> std::sync::Arc<TargetInfo>,
        seen: &mut Seen,
    ) -> Result<(), MergeError> {
        let is_physical = id == TargetId::PhysicalMemory;
        match self.kind.get() {
            None => self.kind.set(Some((is_physical, of))),
            Some((known, first)) if known != is_physical => {
                let (first, second) = (self.path(first), self.path(of));
                let kinds =
                    if known { "physical memory, the other processes" } else { "processes, the other physical memory" };
                let what = format!("one is of {kinds}, which is the same memory by other addresses");
                return Err(MergeError::Differ { first, second, what });
            }
            Some(_) => {}
        }
        if let Some(other) = seen.0.insert(StoredId::new(id, self.from_boot), of).filter(|&other| other != of) {
            let target = match id {
                TargetId::PhysicalMemory => "physical memory".into(),
                id => format!("process {} ({})", pid_column(id), sanitise(&info().command)),
            };
            return Err(MergeError::SameTarget { first: self.path(other), second: self.path(of), target });
        }
        self.targets.borrow_mut().insert(id);
        Ok(())
    }

    /// The result; `None` if the recordings cannot be merged, for which the reason is kept.
    fn admitted<T>(&self, result: Result<T, MergeError>) -> Option<T> {
        result.map_err(|error| _ = self.refused.borrow_mut().get_or_insert(error)).ok()
    }
}

/// The targets of a moment, each with the recording that has it.
#[derive(Debug, Default)]
struct Seen(HashMap<StoredId, usize>);

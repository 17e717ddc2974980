//! One pass over several recordings: the events of each kind, joined.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::SurveySnapshot;
use isotherm_core::{StackId, TargetId, sanitise};

use super::Joined;
use super::error::JoinError;
use super::join::{Join, Moment, Piece, Pieces, Share};
use super::place::Place;
use super::sums::{Step, Sums};
use crate::id::StoredId;
use crate::{
    Activity, Event, Needs, Recording, SnapshotRecord, SurveyDetail, SurveyRecord, TargetInfo, TargetInfos, pid_column,
};

/// The events of one kind.
type Kind<'a> = Box<dyn Iterator<Item = Event> + 'a>;

/// What a target is told to be, and what it was.
type Told = (Arc<TargetInfo>, Arc<TargetInfo>);

/// What the events of all kinds have in common.
pub(super) struct Pass<'a> {
    joined: &'a Joined,
    /// Whether the starts of processes are counted from the boot.
    from_boot: bool,
    /// What has gone wrong and was not told yet.
    errors: RefCell<VecDeque<JoinError>>,
    /// Whether the recordings turned out not to fit together. All events end then.
    is_refused: Cell<bool>,
    /// Whether the targets are physical memory, and the first recording that has some.
    kind: Cell<Option<(bool, usize)>>,
    /// The targets of several machines.
    infos: RefCell<HashMap<TargetId, Told>>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(joined: &'a Joined) -> Self {
        Self {
            joined,
            // Targets of several machines are told apart by the starts of processes.
            from_boot: joined.header.host.counts_from_boot() || !joined.machines.is_empty(),
            errors: RefCell::default(),
            is_refused: Cell::new(false),
            kind: Cell::new(None),
            infos: RefCell::default(),
        }
    }

    pub(super) fn take_error(&self) -> Option<JoinError> {
        self.errors.borrow_mut().pop_front()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.get()
    }

    /// The events that are needed, by kind.
    pub(super) fn kinds(self: &Rc<Self>, needs: Needs) -> Vec<Kind<'a>> {
        let of = |is_needed: bool, kind: fn(&Rc<Self>, Needs) -> Kind<'a>| is_needed.then(|| kind(self, needs));
        let kinds = [
            of(needs.snapshots, Self::snapshots),
            of(needs.snapshots && needs.merged, Self::merged_snapshots),
            of(needs.panels, Self::panels),
            of(needs.surveys, Self::surveys),
            of(needs.surveys && needs.blocks && needs.merged, Self::merged_surveys),
            of(needs.activities, Self::activities),
            of(needs.marks, |pass, _| pass.moments(Needs::MARKS)),
            of(needs.allocations, |pass, _| pass.allocations()),
            of(needs.missed, |pass, _| pass.moments(Needs::MISSED)),
        ];
        kinds.into_iter().flatten().collect()
    }

    fn recordings(&self) -> impl Iterator<Item = (usize, &'a Recording, Place)> {
        let Joined { recordings, places, .. } = self.joined;
        recordings.iter().zip(places).enumerate().map(|(nth, (recording, place))| (nth, recording, *place))
    }

    fn path(&self, of: usize) -> PathBuf {
        self.joined.recordings.get(of).map(|recording| recording.path().into()).unwrap_or_default()
    }

    /// What a recording has up to the end of its part, and up to the first error, which is kept. `item` takes it out of
    /// an event.
    fn read<T: 'a>(
        self: &Rc<Self>,
        recording: &Recording,
        place: Place,
        needs: Needs,
        item: fn(Event) -> Option<T>,
    ) -> impl Iterator<Item = T> + 'a {
        let pass = Rc::clone(self);
        let events = recording
            .events(needs)
            .map_while(move |event| event.map_err(|error| pass.errors.borrow_mut().push_back(error.into())).ok());
        events.take_while(move |event| !place.is_over(event.time())).filter_map(item)
    }

    fn join<T: Clone + 'a>(
        self: &Rc<Self>,
        pieces: impl Fn(&Rc<Self>, &'a Recording, Place) -> Pieces<'a, T> + Copy + 'a,
    ) -> impl Iterator<Item = Moment<T>> + 'a {
        let mut join = Join::new();
        for (_, recording, place) in self.recordings() {
            let pass = Rc::clone(self);
            join.add(place.time().start, move || pieces(&pass, recording, place));
        }
        let pass = Rc::clone(self);
        join.take_while(move |_| !pass.is_refused())
    }

    /// Snapshots that are not merged.
    fn snapshots(self: &Rc<Self>, needs: Needs) -> Kind<'a> {
        let Needs { regions, region_counts, costs, merged, .. } = needs;
        let needs = Needs { snapshots: true, regions, region_counts, costs, merged, ..Needs::NOTHING };
        self.snapshots_of(needs, |event| {
            if let Event::Snapshot(record) = event { Some(record).filter(|record| !record.is_merged) } else { None }
        })
    }

    /// Merged snapshots.
    fn merged_snapshots(self: &Rc<Self>, _: Needs) -> Kind<'a> {
        self.snapshots_of(Needs { merged: true, ..Needs::SNAPSHOTS }, |event| {
            if let Event::Snapshot(record) = event { Some(record).filter(|record| record.is_merged) } else { None }
        })
    }

    /// Those of one time are one piece. A snapshot holds since the one before, unless snapshots are missing in between.
    fn snapshots_of(self: &Rc<Self>, needs: Needs, snapshot: fn(Event) -> Option<SnapshotRecord>) -> Kind<'a> {
        let moments = self.join(move |pass, recording, place| {
            let records = pass.read(recording, place, needs, snapshot);
            let mut records = records.filter(move |record| place.holds(record.snapshot.time)).peekable();
            let (pass, mut before) = (Rc::clone(pass), None);
            Box::new(std::iter::from_fn(move || {
                let mut all = vec![records.next()?];
                let time = all[0].snapshot.time;
                while let Some(record) = records.next_if(|record| record.snapshot.time == time) {
                    all.push(record);
                }
                let aggregation = all.iter().map(|record| record.snapshot.aggregation).max().unwrap_or_default();
                let before = before.replace(time);
                let from = before.unwrap_or(place.start());
                let is_next = time.saturating_sub(from) <= aggregation.saturating_mul(2);
                let since = if is_next { from } else { time.saturating_sub(aggregation).max(from) };
                for record in &mut all {
                    record.snapshot.time = place.at(time);
                    record.snapshot.targets.iter_mut().for_each(|target| target.id = place.id(target.id));
                    record.infos = pass.told(place, &record.infos);
                }
                Some(Piece { since: place.at(since), end: place.at(time), until: place.at(time), item: all })
            }))
        });
        let pass = Rc::clone(self);
        Box::new(moments.flat_map(move |moment| {
            let records = pass.admitted(pass.snapshot(moment)).unwrap_or_default();
            records.into_iter().map(Event::Snapshot)
        }))
    }

    /// The snapshots of a moment: one of each recorder, since each has its own intervals and costs.
    fn snapshot(&self, moment: Moment<Vec<SnapshotRecord>>) -> Result<Vec<SnapshotRecord>, JoinError> {
        let mut all = Vec::new();
        let mut seen = Seen::default();
        for Share { of, item, is_new, .. } in moment.shares {
            for mut record in item {
                for (nth, target) in record.snapshot.targets.iter().enumerate() {
                    self.admit(of, target.id, record.nth_info(nth), &mut seen)?;
                }
                record.snapshot.time = moment.time;
                // What it cost counts once.
                record.cost = record.cost.filter(|_| is_new);
                all.push(record);
            }
        }
        // A reader takes a snapshot without a cost for a part of the one before it.
        all.sort_by_key(|record| record.cost.is_none());
        Ok(all)
    }

    /// Surveys that are not merged. In a part of a run, the first one counts as the first of a run, because what it
    /// refers to is left out.
    fn surveys(self: &Rc<Self>, needs: Needs) -> Kind<'a> {
        let Needs { blocks, merged, .. } = needs;
        let needs = Needs { surveys: true, blocks, merged, ..Needs::NOTHING };
        self.surveys_of(needs, false)
    }

    /// Merged surveys.
    fn merged_surveys(self: &Rc<Self>, _: Needs) -> Kind<'a> {
        self.surveys_of(Needs { merged: true, ..Needs::SURVEYS }, true)
    }

    fn surveys_of(self: &Rc<Self>, needs: Needs, are_merged: bool) -> Kind<'a> {
        let moments = self.join(move |pass, recording, place| {
            let surveys = pass.read(recording, place, needs, |event| match event {
                Event::Survey(record) => Some(record),
                _ => None,
            });
            let surveys = surveys.filter(move |record| (record.detail == SurveyDetail::Merged) == are_merged);
            let (pass, mut before) = (Rc::clone(pass), None);
            let surveys = surveys.filter(move |record| place.holds(record.survey.time)).map(move |mut record| {
                record.infos = pass.told(place, &record.infos);
                let survey = &mut record.survey;
                survey.targets.iter_mut().for_each(|target| target.id = place.id(target.id));
                if before.is_none() && record.detail != SurveyDetail::Merged {
                    survey.interval = Duration::ZERO;
                }
                let (since, end) = (survey.time.saturating_sub(survey.interval), survey.time);
                let since = before.replace(end).map_or(since, |before| since.max(before));
                survey.time = place.at(end);
                Piece { since: place.at(since), end: place.at(end), until: place.at(end), item: record }
            });
            until_the_end(surveys, place)
        });
        let (pass, mut before) = (Rc::clone(self), Duration::ZERO);
        Box::new(moments.filter_map(move |moment| {
            let before = std::mem::replace(&mut before, moment.time);
            pass.admitted(pass.survey(moment, before)).map(Event::Survey)
        }))
    }

    /// The survey of a moment, with the targets of all recordings. What one of them knows of all its targets together
    /// is not known of all targets of all of them.
    fn survey(&self, moment: Moment<SurveyRecord>, before: Duration) -> Result<SurveyRecord, JoinError> {
        let Moment { time, shares } = moment;
        let is_alone = shares.len() == 1;
        let since = shares.iter().map(|share| share.since).min().unwrap_or(time).max(before);
        // The first survey of a run tells nothing of when memory was accessed, and neither does one together with it.
        let begins = shares.iter().any(|share| share.item.survey.interval.is_zero());
        let interval = if begins { Duration::ZERO } else { time.saturating_sub(since) };
        let mut whole =
            SurveyRecord { survey: SurveySnapshot { time, interval, ..Default::default() }, ..Default::default() };
        let (mut infos, mut seen) = (Vec::new(), Seen::default());
        for Share { of, item: record, is_new, end, .. } in shares {
            for (target, info) in record.described() {
                self.admit(of, target.id, info, &mut seen)?;
                infos.push((target.id, Arc::clone(info)));
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
                whole.detail = record.detail;
            }
            whole.survey.left_out = whole.survey.left_out.or(record.survey.left_out);
            whole.survey.targets.extend(record.survey.targets);
        }
        whole.infos = infos.into();
        Ok(whole)
    }

    /// Activities. An activity holds since the one before.
    fn activities(self: &Rc<Self>, _: Needs) -> Kind<'a> {
        let activity = |event| if let Event::Activity(activity) = event { Some(activity) } else { None };
        let moments = self.join(move |pass, recording, place| {
            let mut before: Option<Activity> = None;
            let steps = pass.read(recording, place, Needs::ACTIVITIES, activity).filter_map(move |mut activity| {
                let before = before.replace(activity.clone());
                if !place.holds(activity.time) {
                    return None;
                }
                let since = before.as_ref().map_or(place.start(), |before| before.time.max(place.start()));
                let end = activity.time;
                activity.time = place.at(end);
                activity.memory.iter_mut().for_each(|(id, _)| *id = place.id(*id));
                for scheme in &mut activity.schemes {
                    scheme.last.time = place.at(scheme.last.time);
                    scheme.last.regions.iter_mut().for_each(|region| region.target = place.id(region.target));
                }
                let step = Step::since(before.as_ref(), activity);
                Some(Piece { since: place.at(since), end: place.at(end), until: place.at(end), item: step })
            });
            until_the_end(steps, place)
        });
        let (pass, mut sums) = (Rc::clone(self), Sums::default());
        Box::new(
            moments.filter_map(move |moment| {
                pass.admitted(pass.activity(moment, &mut sums)).flatten().map(Event::Activity)
            }),
        )
    }

    /// The activity of a moment: the memory of all targets, and what schemes have done in all recordings so far.
    fn activity(&self, moment: Moment<Step>, sums: &mut Sums) -> Result<Option<Activity>, JoinError> {
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
            compressed_growth: now.item.activity.compressed_growth.map(|_| sums.compressed_growth()),
            // Those of the targets of several recordings are not known.
            surroundings: now.item.activity.surroundings.clone().filter(|_| moment.shares.len() == 1),
        };
        let mut names = HashMap::new();
        for Share { of, item: Step { activity, .. }, .. } in moment.shares {
            whole.memory.extend(activity.memory);
            whole.major_faults = whole.major_faults.filter(|_| activity.major_faults.is_some());
            for mut scheme in activity.schemes {
                if let Some(other) = names.insert(scheme.name.clone(), of).filter(|&other| other != of) {
                    let name = sanitise(&scheme.name).into_owned();
                    return Err(JoinError::SameScheme { first: self.path(other), second: self.path(of), name });
                }
                scheme.total = sums.of(&scheme.name);
                whole.schemes.push(scheme);
            }
        }
        Ok(Some(whole))
    }

    /// Readings of the panel while no other recording covers their time: bounds of several cannot be added up.
    fn panels(self: &Rc<Self>, _: Needs) -> Kind<'a> {
        let pass = Rc::clone(self);
        Box::new(self.moments(Needs::PANELS).filter(move |event| {
            let covers = |place: &&Place| place.time().start <= event.time() && event.time() <= place.time().end;
            pass.joined.places.iter().filter(covers).count() == 1
        }))
    }

    /// The calls that mapped memory, also those before its part: the memory belongs to the same calls in it.
    fn allocations(self: &Rc<Self>) -> Kind<'a> {
        // The number of the next stack of all recordings.
        let next: Rc<Cell<StackId>> = Rc::default();
        let mut join = Join::new();
        for (_, recording, place) in self.recordings() {
            let (pass, next) = (Rc::clone(self), Rc::clone(&next));
            let found = |event| if let Event::Allocations(found) = event { Some(found) } else { None };
            join.add(place.shift, move || {
                let mut numbers: HashMap<StackId, StackId> = HashMap::new();
                Box::new(pass.read(recording, place, Needs::ALLOCATIONS, found).map(move |mut found| {
                    found.time = place.at(found.time);
                    for (stack, _) in &mut found.stacks {
                        *stack = *numbers.entry(*stack).or_insert_with(|| {
                            next.set(next.get().saturating_add(1));
                            next.get()
                        });
                    }
                    for call in &mut found.calls {
                        call.time = place.at(call.time);
                        call.target = place.id(call.target);
                        call.stack = call.stack.and_then(|stack| numbers.get(&stack).copied());
                    }
                    Piece::at(found.time, Event::Allocations(found))
                }))
            });
        }
        Box::new(each(join))
    }

    /// What holds at its time alone: marks, what is missing, or readings of the panel.
    fn moments(self: &Rc<Self>, needs: Needs) -> Kind<'a> {
        Box::new(each(self.join(move |pass, recording, place| {
            let events = pass.read(recording, place, needs, Some).filter(move |event| place.holds(event.time()));
            Box::new(events.map(move |mut event| {
                let time = place.at(event.time());
                match &mut event {
                    Event::Mark(mark) => mark.time = time,
                    Event::Missed(missed) => missed.time = time,
                    Event::Panel(panel) => {
                        panel.time = time;
                        panel.targets.iter_mut().for_each(|target| target.id = place.id(target.id));
                    }
                    Event::Snapshot(_) | Event::Survey(_) | Event::Activity(_) | Event::Allocations(_) => {}
                }
                Piece::at(time, event)
            }))
        })))
    }

    /// Takes in that the recording `of` has a target in a moment, of which `seen` has the others.
    fn admit(&self, of: usize, id: TargetId, info: &TargetInfo, seen: &mut Seen) -> Result<(), JoinError> {
        let differ = |first: usize, what: String| {
            Err(JoinError::Differ { first: self.path(first), second: self.path(of), what })
        };
        let is_physical = id == TargetId::PhysicalMemory;
        match self.kind.get() {
            None => self.kind.set(Some((is_physical, of))),
            Some((known, first)) if known != is_physical => {
                let kinds =
                    if known { "physical memory, the other processes" } else { "processes, the other physical memory" };
                return differ(first, format!("one is of {kinds}, which is the same memory by other addresses"));
            }
            Some((true, first)) if self.machine(first) != self.machine(of) => {
                return differ(first, "both are of physical memory, and of different machines".into());
            }
            Some(_) => {}
        }
        if let Some(other) = seen.0.insert(StoredId::new(id, self.from_boot), of).filter(|&other| other != of) {
            let target = match id {
                TargetId::PhysicalMemory | TargetId::PageCache => id.to_string(),
                id => format!("process {} ({})", pid_column(id), sanitise(&info.command)),
            };
            return Err(JoinError::SameTarget { first: self.path(other), second: self.path(of), target });
        }
        Ok(())
    }

    fn machine(&self, of: usize) -> Option<u32> {
        self.joined.places.get(of).map(|place| place.machine)
    }

    /// The result; `None` if the recordings do not fit together, for which the reason is kept.
    fn admitted<T>(&self, result: Result<T, JoinError>) -> Option<T> {
        result
            .map_err(|error| {
                self.is_refused.set(true);
                self.errors.borrow_mut().push_back(error);
            })
            .ok()
    }

    /// What the targets of a recording are. If there are several machines, the command lines name them.
    fn told(&self, place: Place, infos: &TargetInfos) -> TargetInfos {
        let Some(machine) = self.joined.machines.get(place.machine as usize) else { return Arc::clone(infos) };
        let mut known = self.infos.borrow_mut();
        let mut told = |(id, info): &(TargetId, Arc<TargetInfo>)| {
            let id = place.id(*id);
            if let Some((was, told)) = known.get(&id)
                && Arc::ptr_eq(was, info)
            {
                return (id, Arc::clone(told));
            }
            let mut told = TargetInfo::clone(info);
            if !told.command.is_empty() {
                told.command = format!("{} ({machine})", told.command);
            }
            let told = Arc::new(told);
            known.insert(id, (Arc::clone(info), Arc::clone(&told)));
            (id, told)
        };
        infos.iter().map(&mut told).collect()
    }
}

/// The targets of a moment, each with the recording that has it.
#[derive(Debug, Default)]
struct Seen(HashMap<StoredId, usize>);

/// The same pieces. The last one holds until the end of the recording.
fn until_the_end<'a, T: 'a>(pieces: impl Iterator<Item = Piece<T>> + 'a, place: Place) -> Pieces<'a, T> {
    let mut pieces = pieces.peekable();
    Box::new(std::iter::from_fn(move || {
        let piece = pieces.next()?;
        let end = if pieces.peek().is_none() { place.time().end } else { piece.end };
        Some(Piece { until: end.max(piece.end), ..piece })
    }))
}

/// Each item once.
fn each<T>(moments: impl Iterator<Item = Moment<T>>) -> impl Iterator<Item = T> {
    moments.flat_map(|moment| moment.shares).filter(|share| share.is_new).map(|share| share.item)
}

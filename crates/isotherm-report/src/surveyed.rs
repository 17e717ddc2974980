//! Adds to the summary what surveys found.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{BlockSums, PageSums, SurveySnapshot, TotalSums};
use isotherm_core::{AddrRange, Mapping, TargetId, is_memory};
use isotherm_record::{Needs, SurveyRecord};

use crate::ReportError;
use crate::brief::Brief;
use crate::bytes::Bytes;
use crate::extent::shown_name;
use crate::groups::{Grouping, StackShares};
use crate::node_memory::OnNodes;
use crate::resident::idle_bytes;
use crate::source::{Accumulator, Seen, Selection};
use crate::summary::{CountedOnce, Summary, Temperature};
use crate::surveys::{Reach, part};

/// The sums over surveys, in bytes × nanoseconds of their intervals.
#[derive(Default)]
struct Sums {
    all: PageSums<u128>,
    no_access: u128,
    /// Bytes that are mapped with access permission. `None` for physical memory.
    mapped: Option<u128>,
    /// The touched bytes of the current survey, its time, and the most touched bytes of one survey.
    current: (Duration, u64),
    most: u64,
    /// The intervals of the surveys that found something of it, and the last of these surveys.
    lived: Duration,
    seen: Option<Duration>,
    /// The sums of each target at its last survey.
    last: HashMap<TargetId, (Duration, PageSums)>,
}

impl Sums {
    /// Takes in that a survey found something of it.
    fn see(&mut self, time: Duration, interval: Duration) {
        if self.seen.replace(time) != Some(time) {
            self.lived += interval;
        }
    }

    /// Adds mapped memory, whether a survey found some of it or not.
    fn map(&mut self, time: Duration, interval: Duration, target: TargetId, bytes: u64) {
        if target != TargetId::PhysicalMemory {
            *self.mapped.get_or_insert(0) += u128::from(bytes) * interval.as_nanos();
        }
        self.last_of(target, time);
    }

    fn add(&mut self, time: Duration, interval: Duration, target: TargetId, sums: &PageSums) {
        if !interval.is_zero() {
            self.all += sums.map(|bytes| u128::from(bytes) * interval.as_nanos());
            let before = if self.current.0 == time { self.current.1 } else { 0 };
            self.current = (time, before.saturating_add(sums.figures.touched));
            self.most = self.most.max(self.current.1);
        }
        *self.last_of(target, time) += *sums;
    }

    /// Adds what a survey has found in space without access permission, of which nothing else counts as mapped.
    fn add_without_access(&mut self, time: Duration, interval: Duration, target: TargetId, sums: &PageSums) {
        self.map(time, interval, target, sums.figures.kept());
        self.no_access += u128::from(sums.figures.present) * interval.as_nanos();
    }

    fn last_of(&mut self, target: TargetId, time: Duration) -> &mut PageSums {
        let last = self.last.entry(target).or_insert((time, PageSums::default()));
        if last.0 != time {
            *last = (time, PageSums::default());
        }
        &mut last.1
    }

    /// Writes the means over `time`, and what was idle and in swap at the end: at the last survey with any of it.
    fn write(&self, surveys: &Covered, time: Duration, of: &mut Temperature) {
        let mean = |sum: u128| (sum / time.as_nanos().max(1)) as u64;
        let means = self.all.map(mean);
        (of.working_set_bytes, of.working_set_max_bytes) = (means.figures.touched, self.most);
        let out = &mut of.surveyed;
        out.resident_bytes = Bytes::exact(means.figures.present);
        out.touched_bytes = Bytes::exact(means.figures.touched);
        let elsewhere = self.all.figures.kept() + self.all.mapped_again;
        out.absent_bytes = self.mapped.map(|mapped| mean(mapped.saturating_sub(elsewhere))).into();
        out.no_access_bytes = Bytes::exact(mean(self.no_access));
        out.mapped_again_bytes = Bytes::exact(means.mapped_again);
        let end = self.last.values().map(|(time, _)| *time).max();
        let is_last = |id: &TargetId, time: Duration| end == Some(time) && surveys.last.get(id) == Some(&time);
        let last = || self.last.iter().filter(|(id, (time, _))| is_last(id, *time)).map(|(_, of)| of.1);
        let sums: PageSums = last().sum();
        if surveys.know_swap {
            out.swapped_bytes = Bytes(sums.figures.swapped);
        }
        out.kinds.0 = out.kinds.0 + sums.kinds;
        [out.idle_10s_bytes, out.idle_1m_bytes, out.idle_10m_bytes] = idle_bytes(last, surveys.time).map(Bytes::from);
    }
}

/// What the surveys of a selection cover.
#[derive(Default)]
struct Covered {
    /// Their intervals together.
    intervals: Duration,
    /// The time from the first survey of the recording to the last of the selection.
    time: Duration,
    /// The last survey of each target.
    last: HashMap<TargetId, Duration>,
    /// Whether they tell what is in swap.
    know_swap: bool,
}

/// Memory by node: of each target, of each group of targets, and of all.
#[derive(Default)]
struct Nodes {
    of_targets: HashMap<TargetId, OnNodes>,
    of_groups: HashMap<usize, OnNodes>,
    all: OnNodes,
}

impl Nodes {
    /// Takes in a survey. The nodes of a part of the addresses are not known.
    fn add(&mut self, survey: &SurveySnapshot, selection: &Selection, grouping: &Grouping) {
        if selection.address.is_some() {
            return;
        }
        let (time, interval) = (survey.time, survey.interval);
        let counts_once = selection.holds_all(survey) && survey.total.is_some();
        if counts_once {
            self.all.add(time, interval, &survey.by_node);
        }
        for target in survey.targets.iter().filter(|target| selection.holds_target(target.id)) {
            if !counts_once {
                self.all.add(time, interval, &target.by_node);
            }
            self.of_targets.entry(target.id).or_default().add(time, interval, &target.by_node);
            if let Some(group) = grouping.of_target(target.id) {
                self.of_groups.entry(group).or_default().add(time, interval, &target.by_node);
            }
        }
    }
}

/// What surveys found in the memory of a summary.
#[derive(Default)]
pub(crate) struct SurveyedMemory {
    selection: Selection,
    grouping: Grouping,
    names: HashMap<String, Sums>,
    targets: HashMap<TargetId, Sums>,
    groups: HashMap<usize, Sums>,
    /// Those of groups that are stacks.
    of_stacks: HashMap<usize, Sums>,
    total: Sums,
    once: Option<[u128; 3]>,
    once_swapped: Bytes,
    reach: Reach,
    surveys: Covered,
    nodes: Nodes,
    brief: Brief,
    stacks: Option<StackShares>,
}

impl SurveyedMemory {
    /// That of a selection, before its walk.
    pub(crate) fn new(selection: &Selection, grouping: &Grouping) -> Self {
        Self {
            selection: selection.clone(),
            grouping: grouping.clone(),
            once: Some([0; 3]),
            stacks: grouping.of_stack().map(StackShares::new),
            ..Self::default()
        }
    }

    fn add(&mut self, record: &SurveyRecord) {
        let Self {
            selection,
            grouping,
            names,
            targets,
            groups,
            of_stacks,
            total,
            once,
            once_swapped,
            reach,
            surveys,
            nodes,
            brief,
            stacks,
        } = self;
        brief.add(record, selection, grouping);
        let survey = &record.survey;
        let covered = reach.of(survey);
        if !selection.holds_time(survey.time) {
            return;
        }
        surveys.time = covered;
        // The first survey counts all memory that was ever accessed as touched.
        surveys.intervals += survey.interval;
        let found = survey.total.filter(|_| selection.holds_all(survey));
        *once_swapped = found.map_or_else(Bytes::default, |total| Bytes(total.sums.figures.swapped));
        if !survey.interval.is_zero() {
            *once = once.zip(found).map(|(sums, TotalSums { sums: found, shared })| {
                let found = [found.figures.present, shared, found.figures.touched];
                std::array::from_fn(|i| sums[i] + u128::from(found[i]) * survey.interval.as_nanos())
            });
        }
        nodes.add(survey, selection, grouping);
        for target in survey.targets.iter().filter(|target| selection.holds_target(target.id)) {
            surveys.last.insert(target.id, survey.time);
            // After its end, a target is still there until the next snapshot, and has no memory.
            let lives = target.total().figures.kept() > 0;
            let blocks: Vec<BlockSums> = stacks.iter().flat_map(|_| target.by_block.iter()).collect();
            let mut all = |mapping: &Mapping, add: &dyn Fn(&mut Sums)| {
                let label = mapping.label();
                let name = shown_name(&label);
                add(names.entry(name.to_owned()).or_default());
                add(total);
                let group = grouping.of_memory(target.id, name).map(|nth| groups.entry(nth).or_default());
                for of in group.into_iter().chain([targets.entry(target.id).or_default()]).filter(|_| lives) {
                    of.see(survey.time, survey.interval);
                    add(of);
                }
            };
            for mapping in target.mappings.iter().filter(|mapping| is_memory(&target.mappings, mapping)) {
                let range = selection.address.map_or(Some(mapping.range), |wanted| wanted.intersection(mapping.range));
                if let Some(bytes) = range.map(AddrRange::size) {
                    all(mapping, &|of| of.map(survey.time, survey.interval, target.id, bytes));
                }
                if let (Some(stacks), Some(range), true) = (&mut *stacks, range, lives) {
                    for (nth, bytes) in stacks.sizes(target.id, survey.time, mapping, range) {
                        let of = of_stacks.entry(nth).or_default();
                        of.see(survey.time, survey.interval);
                        of.map(survey.time, survey.interval, target.id, bytes);
                    }
                }
            }
            for (mapping, sums) in target.surveyed() {
                let sums = part(sums, mapping.range, selection.address);
                surveys.know_swap |= !sums.figures.swapped.is_unknown();
                all(mapping, &|of| of.add(survey.time, survey.interval, target.id, &sums));
                if !is_memory(&target.mappings, mapping) {
                    all(mapping, &|of| of.add_without_access(survey.time, survey.interval, target.id, &sums));
                }
                let range = selection.clip(mapping.range);
                if let (Some(stacks), Some(range), true) = (&mut *stacks, range, lives) {
                    for (nth, sums) in stacks.sums(target.id, survey.time, mapping, range, &sums, &blocks) {
                        of_stacks.entry(nth).or_default().add(survey.time, survey.interval, target.id, &sums);
                    }
                }
            }
        }
    }

    /// Adds it to a summary of the same selection.
    pub(crate) fn write(self, summary: &mut Summary) {
        let Self { names, targets, mut groups, of_stacks, total, once, once_swapped, surveys, nodes, brief, .. } = self;
        groups.extend(of_stacks);
        brief.write(summary);
        if surveys.intervals.is_zero() {
            return;
        }
        summary.counted_once = once.map(|sums| {
            let [resident_bytes, shared_bytes, touched_bytes] =
                sums.map(|sum| (sum / surveys.intervals.as_nanos()) as u64);
            CountedOnce { resident_bytes, shared_bytes, touched_bytes, swapped_bytes: once_swapped }
        });
        let none = Sums::default();
        total.write(&surveys, surveys.intervals, &mut summary.total);
        // Memory that is wholly in swap, or that counts where it is mapped first, has no region.
        let known: HashSet<Arc<str>> = summary.mappings.iter().map(|of| Arc::clone(&of.name)).collect();
        let elsewhere = |sums: &Sums| sums.all.figures.swapped.least() + sums.all.mapped_again;
        let mut others: Vec<_> =
            names.iter().filter(|(name, sums)| elsewhere(sums) > 0 && !known.contains(&***name)).collect();
        others.sort_by_key(|(name, sums)| (Reverse(elsewhere(sums)), *name));
        let without_region = |name: &str| Temperature { name: name.into(), ..Temperature::default() };
        summary.mappings.extend(others.into_iter().map(|(name, _)| without_region(name)));
        for of in &mut summary.mappings {
            names.get(&*of.name).unwrap_or(&none).write(&surveys, surveys.intervals, of);
        }
        summary.nodes = nodes.all.memory(surveys.intervals, surveys.time);
        for of in &mut summary.targets {
            let sums = targets.get(&of.id).unwrap_or(&none);
            sums.write(&surveys, sums.lived, &mut of.total);
            of.nodes = nodes.of_targets.get(&of.id).map_or_else(Vec::new, |of| of.memory(sums.lived, surveys.time));
        }
        for of in &mut summary.groups {
            let sums = groups.get(&of.place).unwrap_or(&none);
            sums.write(&surveys, sums.lived, &mut of.total);
            of.nodes = nodes.of_groups.get(&of.place).map_or_else(Vec::new, |of| of.memory(sums.lived, surveys.time));
        }
    }
}

impl Accumulator for SurveyedMemory {
    fn needs(&self) -> Needs {
        Needs { surveys: true, blocks: self.stacks.is_some(), ..Needs::NOTHING }
    }

    fn event(&mut self, event: &Seen<'_>) -> Result<(), ReportError> {
        if let Seen::Survey(record) = event {
            self.add(record);
        }
        Ok(())
    }
}

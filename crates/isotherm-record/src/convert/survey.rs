//! A survey in JSON: as in the recording's column, with the targets in a list.

use std::collections::BTreeMap;

use isotherm_core::survey::{Kinds, MappingSums, NodeSums, TargetSurvey, TotalSums, WINDOWS};
use serde::Serialize;

use super::identity::IdOut;
use super::mapping::MappingOut;
use crate::id::pid_column;
use crate::time::nanoseconds;
use crate::{SurveyRecord, TargetInfo};

#[derive(Serialize)]
pub(super) struct SurveyOut<'a> {
    time_ns: u64,
    interval_ns: u64,
    cost: Cost,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Total<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<&'a str>,
    windows_ns: Vec<u64>,
    targets: Vec<Target<'a>>,
}

#[derive(Serialize)]
struct Cost {
    reads: u64,
    clears: u64,
    cpu_ns: Option<u64>,
}

#[derive(Serialize)]
struct Total<'a> {
    present_bytes: u64,
    shared_bytes: u64,
    touched_bytes: u64,
    unobservable_bytes: u64,
    unknown_bytes: u64,
    swapped_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kinds: Option<KindsOut>,
    mapped_again_bytes: u64,
    within_bytes: &'a [u64],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<OnNode<'a>>,
}

#[derive(Serialize)]
struct Target<'a> {
    pid: u32,
    id: IdOut,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<TargetInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<Vec<MappingOut>>,
    by_mapping: Vec<Surveyed<'a>>,
    blocks: Vec<Block>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<OnNode<'a>>,
}

#[derive(Serialize)]
struct Surveyed<'a> {
    mapping: u32,
    present_bytes: u64,
    touched_bytes: u64,
    unobservable_bytes: u64,
    unknown_bytes: u64,
    swapped_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kinds: Option<KindsOut>,
    mapped_again_bytes: u64,
    within_bytes: &'a [u64],
}

/// Bytes by kind, without those of which there are none.
#[derive(Serialize)]
struct KindsOut {
    lazily_freed_bytes: u64,
    unobservable_bytes: BTreeMap<&'static str, u64>,
}

impl KindsOut {
    /// `None` if there are no such bytes.
    fn of(kinds: &Kinds) -> Option<Self> {
        let unobservable_bytes = kinds.unseen.iter().map(|(reason, bytes)| (reason.name(), bytes)).collect();
        (*kinds != Kinds::default()).then_some(Self { lazily_freed_bytes: kinds.lazily_freed, unobservable_bytes })
    }
}

#[derive(Serialize)]
struct OnNode<'a> {
    node: u32,
    present_bytes: u64,
    touched_bytes: u64,
    unobservable_bytes: u64,
    unknown_bytes: u64,
    within_bytes: &'a [u64],
}

#[derive(Serialize)]
struct Block {
    start: u64,
    present_pages: u16,
    touched_pages: u16,
    idle_ns: u64,
    mean_idle_ns: Option<u64>,
    swapped_pages: Option<u16>,
    unobservable_pages: Option<u16>,
    unknown_pages: Option<u16>,
}

impl<'a> SurveyOut<'a> {
    /// `before` is the survey before, and `from_boot`: starts of processes are counted from the boot.
    pub(super) fn new(record: &'a SurveyRecord, before: Option<&SurveyRecord>, from_boot: bool) -> Self {
        let survey = &record.survey;
        let cost = Cost { reads: survey.cost.reads, clears: survey.cost.clears, cpu_ns: record.cpu.map(nanoseconds) };
        let targets = survey.targets.iter().map(|target| Target::new(target, record, before, from_boot));
        Self {
            time_ns: nanoseconds(survey.time),
            interval_ns: nanoseconds(survey.interval),
            cost,
            total: survey.total.as_ref().map(|total| Total::new(total, &survey.by_node)),
            left_out: survey.left_out.as_deref(),
            windows_ns: WINDOWS.map(nanoseconds).to_vec(),
            targets: targets.collect(),
        }
    }
}

impl<'a> Total<'a> {
    fn new(TotalSums { sums, shared }: &'a TotalSums, by_node: &'a [NodeSums]) -> Self {
        Self {
            present_bytes: sums.present,
            shared_bytes: *shared,
            touched_bytes: sums.touched,
            unobservable_bytes: sums.unobservable,
            unknown_bytes: sums.unknown,
            swapped_bytes: sums.swapped,
            kinds: KindsOut::of(&sums.kinds),
            mapped_again_bytes: sums.mapped_again,
            within_bytes: &sums.within,
            nodes: by_node.iter().map(OnNode::new).collect(),
        }
    }
}

impl<'a> OnNode<'a> {
    fn new(NodeSums { node, sums }: &'a NodeSums) -> Self {
        Self {
            node: node.0,
            present_bytes: sums.present,
            touched_bytes: sums.touched,
            unobservable_bytes: sums.unobservable,
            unknown_bytes: sums.unknown,
            within_bytes: &sums.within,
        }
    }
}

impl<'a> Target<'a> {
    fn new(target: &'a TargetSurvey, record: &SurveyRecord, before: Option<&SurveyRecord>, from_boot: bool) -> Self {
        let known = before.and_then(|before| {
            let known = before.survey.targets.iter().find(|known| known.id == target.id)?;
            Some((before.info(target.id), &known.mappings))
        });
        let info = record.info(target.id);
        let same_info = known.as_ref().is_some_and(|(known, _)| *known == info);
        let same_mappings = known.is_some_and(|(_, known)| *known == target.mappings);
        let mappings = || target.mappings.iter().map(|mapping| MappingOut::new(target.id, mapping)).collect();
        let by_mapping = target.by_mapping.iter().map(|MappingSums { mapping, sums }| Surveyed {
            mapping: *mapping,
            present_bytes: sums.present,
            touched_bytes: sums.touched,
            unobservable_bytes: sums.unobservable,
            unknown_bytes: sums.unknown,
            swapped_bytes: sums.swapped,
            kinds: KindsOut::of(&sums.kinds),
            mapped_again_bytes: sums.mapped_again,
            within_bytes: &sums.within,
        });
        let blocks = target.by_block.iter().map(|block| Block {
            start: block.start,
            present_pages: block.present,
            touched_pages: block.touched,
            idle_ns: nanoseconds(block.idle),
            mean_idle_ns: block.mean_idle.map(nanoseconds),
            swapped_pages: block.swapped,
            unobservable_pages: block.unobservable,
            unknown_pages: block.unknown,
        });
        Self {
            pid: pid_column(target.id),
            id: IdOut::new(target.id, from_boot),
            target: (!same_info).then(|| TargetInfo::clone(&info)),
            mappings: (!same_mappings).then(mappings),
            by_mapping: by_mapping.collect(),
            blocks: blocks.collect(),
            nodes: target.by_node.iter().map(OnNode::new).collect(),
        }
    }
}

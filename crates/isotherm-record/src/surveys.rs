//! Reading a recording: surveys, which are gathered of the rows of targets.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{BlockSums, MappingSums, NodeSums, PageSums, SurveySnapshot, TargetSurvey, TotalSums};
use isotherm_core::{Figures, Mapping, TargetId};

use crate::described::{Described, Part};
use crate::events::Said;
use crate::snapshots::TargetRow;
use crate::survey::{self, Cost};
use crate::{SurveyDetail, SurveyRecord, TargetInfo, blocks, check, columns};

/// One target in one survey.
#[derive(Debug)]
pub(crate) struct SurveyRow {
    time: Duration,
    interval: Duration,
    cost: Option<Cost>,
    total: Option<TotalSums>,
    /// All targets together on each node.
    by_node: Vec<NodeSums>,
    left_out: Option<Arc<str>>,
    target: TargetSurvey,
    info: Arc<TargetInfo>,
    detail: SurveyDetail,
}

impl SurveyRow {
    /// The survey of a target that these columns hold.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(
        found: columns::Survey,
        (id, info, mappings): Said,
        described: &mut Described,
    ) -> Result<Self, &'static str> {
        let (info, mappings) = described.add(Part::Survey(found.time_ns), id, info, mappings)?;
        let target = survey::read(&found, id.target(&info), mappings)?;
        check::survey(&target)?;
        let (total, by_node) = survey::total(&found)?;
        if let Some(total) = &total {
            check::total(total)?;
        }
        check::nodes(&by_node)?;
        Ok(Self {
            time: Duration::from_nanos(found.time_ns),
            interval: Duration::from_nanos(found.interval_ns),
            cost: survey::cost(&found),
            total,
            by_node,
            left_out: found.left_out,
            target,
            info,
            detail: SurveyDetail::Whole,
        })
    }

    /// The same, of which merged surveys have the blocks.
    pub(crate) fn bare(self) -> Self {
        Self { detail: SurveyDetail::Bare, ..self }
    }

    /// The surveys that are merged for the merged snapshot `row`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn merged(found: &columns::MergedSurveys, row: &TargetRow) -> Result<Self, &'static str> {
        let time = Duration::from_nanos(found.time_ns);
        let mappings = &row.target.mappings;
        let sums = PageSums::of(Figures::unknown());
        let of = |&mapping: &u32| MappingSums::new(mapping as usize, mappings, sums).ok_or(survey::NO_MAPPING);
        let target = TargetSurvey {
            id: row.target.id,
            mappings: Arc::clone(mappings),
            by_mapping: found.mappings.iter().map(of).collect::<Result<_, _>>()?,
            by_block: blocks::read(&found.blocks, time)?,
            by_node: Vec::new(),
        };
        check::survey(&target)?;
        Ok(Self {
            time,
            interval: Duration::from_nanos(found.interval_ns),
            cost: None,
            total: None,
            by_node: Vec::new(),
            left_out: None,
            target,
            info: Arc::clone(&row.info),
            detail: SurveyDetail::Merged,
        })
    }
}

/// A survey whose rows are being gathered.
#[derive(Debug)]
pub(crate) struct GatheredSurvey {
    record: SurveyRecord,
    infos: Vec<(TargetId, Arc<TargetInfo>)>,
    targets: HashSet<TargetId>,
    /// The memory of its sums and mappings.
    pub(crate) bytes: usize,
}

impl GatheredSurvey {
    pub(crate) fn new(mut first: SurveyRow) -> Self {
        let (cost, cpu) = first.cost.unwrap_or_default();
        let (time, interval, total) = (first.time, first.interval, first.total);
        let by_node = std::mem::take(&mut first.by_node);
        let left_out = first.left_out.take();
        let survey = SurveySnapshot {
            time,
            interval,
            cost,
            targets: Vec::new(),
            total,
            by_node,
            left_out,
            by_party: Vec::new(),
        };
        let bytes = survey.left_out.as_deref().map_or(0, str::len);
        let record = SurveyRecord { survey, cpu, infos: Arc::default(), detail: first.detail };
        let mut gathered = Self { record, infos: Vec::new(), targets: HashSet::new(), bytes };
        gathered.add(first);
        gathered
    }

    /// Whether `row` is of the same survey.
    pub(crate) fn takes(&self, row: &SurveyRow) -> bool {
        let SurveySnapshot { time, interval, .. } = self.record.survey;
        row.cost.is_none() && (row.time, row.interval) == (time, interval) && !self.targets.contains(&row.target.id)
    }

    pub(crate) fn add(&mut self, row: SurveyRow) {
        self.bytes += size_of_val::<[MappingSums]>(&row.target.by_mapping);
        self.bytes += row.target.by_block.len() * size_of::<BlockSums>();
        self.bytes += size_of_val::<[NodeSums]>(&row.target.by_node);
        self.bytes += size_of_val::<[Mapping]>(&row.target.mappings);
        self.targets.insert(row.target.id);
        self.infos.push((row.target.id, row.info));
        self.record.survey.targets.push(row.target);
    }

    /// The survey, when it has all of its rows.
    pub(crate) fn finish(self) -> SurveyRecord {
        SurveyRecord { infos: self.infos.into(), ..self.record }
    }
}

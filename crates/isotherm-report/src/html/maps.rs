//! The heatmap of a page, and what its script shows beside it.

use isotherm_record::Mark;
use serde_json::Value;

use super::data::{self, Limits};
use super::moments::SampledSnapshots;
use crate::evidence::Evidence;
use crate::extent::{Extent, SurveyedExtent, TargetExtent};
use crate::heatmap::Heatmap;
use crate::source::{Accumulator, Selection, Source, walk};
use crate::{Measure, ReportError};

/// The heatmaps of a page, and the regions of some moments.
pub(crate) struct Maps<'a> {
    /// How often memory is accessed. Without samples, the share of it that surveys found touched.
    pub(crate) heatmap: Heatmap,
    /// With samples and surveys, the share that surveys found touched in the same cells.
    pub(crate) touched: Option<Heatmap>,
    /// The regions of some moments.
    pub(crate) moments: SampledSnapshots<'a>,
    targets: Vec<&'a TargetExtent>,
    /// Whether there are samples.
    sampled: bool,
}

impl<'a> Maps<'a> {
    /// Those of a selection, before their walk.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub(crate) fn begin(
        source: &dyn Source,
        selection: &Selection,
        extent: &'a Extent,
        evidence: &Evidence,
        limits: Limits,
    ) -> Result<Self, ReportError> {
        let sampled = has_rates(evidence);
        let surveyed = evidence.surveyed();
        let plan = data::plan(extent, surveyed, limits);
        let targets: Vec<&TargetExtent> = plan.lanes.iter().map(|lane| &extent.targets[lane.target]).collect();
        let mut of_surveys = SurveyedExtent::new(selection);
        if !sampled {
            walk(source, selection, &mut [&mut of_surveys])?;
        }
        let heatmap = match of_surveys.found() {
            Some(extent) => Heatmap::begin(selection, Measure::Touched, &extent, &data::plan(&extent, true, limits)),
            None => Heatmap::begin(selection, Measure::Rate, extent, &plan),
        };
        let touched =
            (surveyed && sampled).then(|| Heatmap::begin(selection, Measure::Touched, extent, &plan).unplaced());
        Ok(Self { heatmap, touched, moments: SampledSnapshots::new(&targets, sampled, limits), targets, sampled })
    }

    /// What takes in the events of the walk.
    pub(crate) fn accumulators(&mut self) -> impl Iterator<Item = &mut dyn Accumulator> {
        let Self { heatmap, touched, moments, .. } = self;
        let touched = touched.as_mut().map(|touched| touched as &mut dyn Accumulator);
        [heatmap as &mut dyn Accumulator, moments].into_iter().chain(touched)
    }

    /// The same after the walk.
    pub(crate) fn finish(self) -> Self {
        let Self { heatmap, targets, sampled, .. } = self;
        let mut heatmap = heatmap.finish();
        if !sampled {
            heatmap.targets.retain(|map| targets.iter().any(|target| target.id == map.id));
        }
        Self { heatmap, targets, ..self }
    }

    /// What the script draws.
    pub(crate) fn data(&self, marks: &[Mark]) -> Value {
        data::data(&self.heatmap, self.touched.as_ref(), &self.moments, marks)
    }
}

/// Whether samples tell how often memory is accessed.
pub(crate) fn has_rates(evidence: &Evidence) -> bool {
    evidence.has_samples() || !evidence.has_intervals()
}

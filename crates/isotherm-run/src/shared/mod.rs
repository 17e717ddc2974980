//! One run for several groups of processes, each of which sees its own processes only.
//!
//! A process that belongs to several groups is sampled and surveyed once. Groups come and go while the run goes on.

mod part;
mod splitter;
mod view;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use isotherm_core::{Attributes, Budget, Pace};
use isotherm_kernel::{Parties, ProcessTable, Selection, Selector};
use isotherm_record::{Header, NotAfforded, TargetInfos};

use crate::delivery::Delivery;
use crate::plan::SchemeNeeds;
use crate::prepared::Prepared;
use crate::{
    Allowance, Control, EventSink, Need, Notice, Part, Properties, RunConfig, RunError, SchemeOptions, Session, Source,
    Targets,
};
pub(crate) use part::snapshot as snapshot_part;
use splitter::Splitter;
pub use view::View;
use view::ViewState;

/// The name of the sink that hands each view its part.
const SINK: &str = "groups";

/// A run whose processes are those of its [views](Self::view). Dropping it ends the run.
pub struct SharedRun {
    shared: Arc<Shared>,
    session: Session,
}

/// What a run and its views share.
struct Shared {
    parties: Parties,
    header: Header,
    properties: Properties,
    control: Control,
    views: Mutex<BTreeMap<u32, Arc<ViewState>>>,
    now: Mutex<Now>,
    regions: Mutex<Regions>,
    started: OnceLock<Started>,
    is_over: AtomicBool,
}

/// What there is once the run has started.
struct Started {
    processes: ProcessTable,
    delivery: Delivery,
}

/// How many regions the run has.
#[derive(Clone, Debug)]
struct Regions {
    /// Their bounds for one view.
    of_view: (usize, usize),
    /// The budget that pays for them.
    allowance: Option<Allowance>,
}

/// The most regions that views together have, for each percent of a CPU that may be spent.
const MOST_REGIONS: f64 = 4000.0;

impl Regions {
    /// Their bounds for this many views: those of each view, as long as the budget suffices to sample them often.
    fn of(&self, views: usize) -> (usize, usize) {
        let (min, max) = self.of_view;
        let cpu = self.allowance.as_ref().map_or(Budget::default().cpu, |of| of.whole().cpu);
        // A cast from f64 saturates.
        let most = ((cpu * 100.0 * MOST_REGIONS) as usize).max(max);
        let all = max.saturating_mul(views.max(1)).min(most);
        (min.saturating_mul(views.max(1)).min(all), all)
    }
}

/// What is in force.
#[derive(Default)]
struct Now {
    attributes: Option<Attributes>,
    pace: Option<(Pace, NotAfforded)>,
    infos: TargetInfos,
    /// The time of the last snapshot.
    time: Duration,
}

impl SharedRun {
    /// Starts a run with no processes yet. Of `config`, its targets, schemes and recording are not used. Without
    /// `compares_rates`, no scheme of a view may compare access rates, as intervals follow from what is observed.
    /// `notices` gets what is not about one view.
    ///
    /// # Errors
    /// If what the configuration asks for does not work here.
    pub fn start(
        config: RunConfig,
        compares_rates: bool,
        notices: impl FnMut(&Notice) + Send + 'static,
    ) -> Result<Self, RunError> {
        let parties = Parties::default();
        let source = match config.source {
            Source::Live { probe, .. } => {
                let any = vec![Selector::AnyOf(parties.clone())];
                let selection = Selection { any, ..Selection::default() };
                Source::Live { targets: Targets::Processes { selection, waits: true, part: Part::default() }, probe }
            }
            other => other,
        };
        let needs = SchemeNeeds { compares_rates, longest: Duration::MAX };
        let config = RunConfig { source, schemes: None, recording: None, ..config };
        let allowance = config.allowance.clone();
        let mut prepared = Prepared::of_views(config, needs)?;
        let attributes = prepared.properties().attributes.unwrap_or_default();
        let of_view = (attributes.min_regions(), attributes.max_regions());
        let shared = Arc::new(Shared {
            parties,
            header: prepared.header(),
            properties: prepared.properties().clone(),
            control: prepared.control(),
            views: Mutex::default(),
            now: Mutex::default(),
            regions: Mutex::new(Regions { of_view, allowance }),
            started: OnceLock::new(),
            is_over: AtomicBool::new(false),
        });
        prepared.add_sink(SINK, Need::Needed, Splitter::new(Arc::clone(&shared), Box::new(notices)));
        let (session, delivery, processes) = prepared.launch()?;
        // It is set here only.
        let _ = shared.started.set(Started { processes, delivery });
        Ok(Self { shared, session })
    }

    /// Adds a view of the processes of a selection, on which its schemes act. `sink` gets the events that are about
    /// them, the first of which says what is in force. Times count from the start of the run.
    ///
    /// # Errors
    /// If the schemes cannot work here, or one compares access rates and the run was not started for that.
    pub fn view(
        &self,
        selection: Selection,
        schemes: Option<SchemeOptions>,
        sink: impl EventSink + 'static,
    ) -> Result<View, RunError> {
        View::begin(&self.shared, selection, schemes, Box::new(sink))
    }

    /// How many views there are.
    pub fn views(&self) -> usize {
        self.shared.views().len()
    }

    /// Whether the run has ended, as after an error. Its views have been told.
    pub fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Relaxed)
    }

    /// Gives commands that concern all views: an update of the mappings, the end.
    pub fn control(&self) -> Control {
        self.session.control()
    }

    /// Changes the attributes of all views, as [`Control::set_attributes`]. The number of regions is that of each.
    pub fn set_attributes(&self, attributes: Attributes) {
        self.shared.control.set_attributes(attributes);
        self.set_regions(attributes.min_regions(), attributes.max_regions());
    }

    /// Changes the bounds of the number of regions for each view, as [`Control::set_regions`].
    pub fn set_regions(&self, min: usize, max: usize) {
        self.shared.regions().of_view = (min, max);
        self.shared.fit_regions();
    }

    /// The header of a recording of a view.
    pub fn header(&self) -> &Header {
        &self.shared.header
    }

    /// What holds for the run.
    pub fn properties(&self) -> &Properties {
        &self.shared.properties
    }

    /// The time of the last snapshot, since the start of the run.
    pub fn time(&self) -> Duration {
        self.shared.now().time
    }
}

impl Shared {
    fn views(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<ViewState>>> {
        // Each change is one insertion or removal, so a panic of another thread does not spoil it.
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the run have the regions that its views need.
    fn fit_regions(&self) {
        let views = self.views().len();
        let (min, max) = self.regions().of(views);
        self.control.set_regions(min, max);
    }

    fn regions(&self) -> MutexGuard<'_, Regions> {
        // Each change is one assignment.
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // Each change is one assignment.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::Shares;

    use super::*;

    #[test]
    fn views_have_the_regions_of_each_within_the_budget() {
        let of = |of_view, cpu, views| {
            let allowance = Allowance::new(Shares { cpu, ..Budget::default().shares() });
            Regions { of_view, allowance: Some(allowance) }.of(views)
        };
        assert_eq!(of((10, 1000), 0.01, 0), (10, 1000));
        assert_eq!(of((10, 1000), 0.01, 3), (30, 3000));
        assert_eq!(of((10, 1000), 0.01, 50), (500, 4000));
        assert_eq!(of((10, 1000), 0.05, 50), (500, 20_000));
        assert_eq!(of((10, 50_000), 0.01, 2), (20, 50_000), "what one view asks for is not cut");
        assert_eq!(of((1000, 1000), 0.01, 50), (4000, 4000));
    }
}

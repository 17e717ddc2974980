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

use isotherm_core::{Attributes, Pace};
use isotherm_kernel::{Parties, ProcessTable, Selection, Selector};
use isotherm_record::{Header, NotAfforded, TargetInfos};

use crate::delivery::Delivery;
use crate::plan::SchemeNeeds;
use crate::prepared::Prepared;
use crate::{
    Control, EventSink, Need, Notice, Part, Properties, RunConfig, RunError, SchemeOptions, Session, Source, Targets,
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
    started: OnceLock<Started>,
    is_over: AtomicBool,
}

/// What there is once the run has started.
struct Started {
    processes: ProcessTable,
    delivery: Delivery,
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
        let mut prepared = Prepared::of_views(config, needs)?;
        let shared = Arc::new(Shared {
            parties,
            header: prepared.header(),
            properties: prepared.properties().clone(),
            control: prepared.control(),
            views: Mutex::default(),
            now: Mutex::default(),
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

    /// Gives commands that concern all views: other attributes, an update of the mappings, the end.
    pub fn control(&self) -> Control {
        self.session.control()
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

    fn now(&self) -> MutexGuard<'_, Now> {
        // Each change is one assignment.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

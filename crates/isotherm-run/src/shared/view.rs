//! A view of a shared run: some of its processes, and the schemes that act on them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use isotherm_core::chain;
use isotherm_core::scheme::Scheme;
use isotherm_kernel::Selection;
use isotherm_record::TargetInfos;

use super::Shared;
use crate::schemes::{ActedOn, PreparedSchemes, SchemeThread};
use crate::{Control, EndReason, Event, EventSink, MarkError, Notice, RunError, SchemeOptions, SchemeSource, Severity};

/// A view of a [`SharedRun`](super::SharedRun). Dropping it ends the view, and not the run.
pub struct View {
    shared: Arc<Shared>,
    state: Arc<ViewState>,
    schemes: Mutex<Option<SchemeThread>>,
}

/// What a view and the run share.
pub(super) struct ViewState {
    pub(super) number: u32,
    /// Takes the marks and the schemes of the view.
    pub(super) control: Control,
    inner: Mutex<Inner>,
}

struct Inner {
    /// `None` once it has got its last event.
    sink: Option<Box<dyn EventSink>>,
    /// The processes that it knows of.
    infos: TargetInfos,
}

impl View {
    pub(super) fn begin(
        shared: &Arc<Shared>,
        selection: Selection,
        schemes: Option<SchemeOptions>,
        sink: Box<dyn EventSink>,
    ) -> Result<Self, RunError> {
        let warning = selection.is_open().then(|| selection.warning("/".as_ref())).flatten();
        let schemes = schemes.map(|options| prepare(shared, options, &selection)).transpose()?;
        let longest = schemes.as_ref().map(PreparedSchemes::longest_in_time);
        let control = Control::of_view(&shared.control)?;
        let inner = Mutex::new(Inner { sink: Some(sink), infos: TargetInfos::default() });
        let number = shared.parties.add(selection);
        let state = Arc::new(ViewState { number, control, inner });
        let view = Self { shared: Arc::clone(shared), state: Arc::clone(&state), schemes: Mutex::default() };
        {
            // Nothing comes between what is in force and the events that follow.
            let now = shared.now();
            now.attributes.into_iter().for_each(|attributes| state.send(&Event::Attributes(attributes)));
            let pace = now.pace.map(|(pace, not_afforded)| Event::Pace { pace, not_afforded });
            pace.into_iter().for_each(|pace| state.send(&pace));
            shared.views().insert(number, Arc::clone(&state));
        }
        shared.fit_regions();
        if let Some(text) = warning {
            state.send(&Event::Notice(Notice::new(Severity::Warning, &text)));
        }
        if let Some(started) = shared.started.get() {
            let (to, parties) = (Arc::clone(&state), shared.parties.clone());
            let delivery = started.delivery.of_view(move |event| to.send(&event));
            view.start_marks();
            if let Some(schemes) = schemes {
                let own = move |id| parties.of(id).contains(&number);
                let control = state.control.clone();
                let (processes, helper) = (started.processes.clone(), delivery);
                let thread = schemes.start(processes, control, helper, None, Some(Box::new(own)))?;
                shared.control.viewers.add(number, Arc::clone(&state.control.mailbox), longest);
                *view.lock() = Some(thread);
            }
        }
        Ok(view)
    }

    /// Puts other schemes in force. Without effect in a view that has begun without schemes.
    pub fn set_schemes(&self, schemes: Vec<Scheme>) {
        let longest = schemes.iter().map(Scheme::longest_in_time).fold(Duration::MAX, Duration::min);
        self.shared.control.viewers.set_longest(self.state.number, longest);
        self.state.control.set_schemes(schemes);
    }

    /// Gives this moment a name. As [`Control::mark`].
    ///
    /// # Errors
    /// Those of [`Control::mark`].
    pub fn mark(&self, text: impl AsRef<[u8]>) -> Result<(), MarkError> {
        self.start_marks();
        self.state.control.mark(text)
    }

    /// Ends the view if its processes have ended, or its schemes have failed. Its sink is told.
    pub fn check(&self) {
        let failed = self.lock().take_if(|thread| thread.is_finished()).map(SchemeThread::end);
        if let Some(Err(error)) = failed {
            self.state.end(EndReason::Failed(Arc::new(error)));
        }
        if self.shared.parties.is_over(self.state.number) {
            self.state.end(EndReason::Finished);
        }
    }

    /// Marks have times from when the run has begun.
    fn start_marks(&self) {
        if let (Some(began), Some(started)) = (self.shared.control.began(), self.shared.started.get()) {
            let to = Arc::clone(&self.state);
            let delivery = started.delivery.of_view(move |event| to.send(&event));
            self.state.control.marks.start(began, move |mark| delivery.send(Event::Mark(mark)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<SchemeThread>> {
        self.schemes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.shared.control.viewers.remove(self.state.number);
        let ended = self.lock().take().map_or(Ok(()), SchemeThread::end);
        if let Err(error) = ended {
            let text = format!("the schemes have failed: {}", chain(&error));
            self.state.send(&Event::Notice(Notice::new(Severity::Warning, &text)));
        }
        self.shared.views().remove(&self.state.number);
        self.shared.fit_regions();
        self.shared.parties.remove(self.state.number);
        self.state.control.marks.end();
        self.state.end(EndReason::Stopped);
    }
}

impl ViewState {
    /// Hands over an event. After the last one, none follows.
    pub(super) fn send(&self, event: &Event) {
        Self::send_to(&mut self.lock(), event);
    }

    /// Hands over what is made of the processes that it knows of, after these processes if they have changed.
    pub(super) fn send_part(&self, make: impl FnOnce(&TargetInfos) -> (TargetInfos, Event)) {
        let mut inner = self.lock();
        let (infos, event) = make(&inner.infos);
        if !Arc::ptr_eq(&infos, &inner.infos) {
            inner.infos = Arc::clone(&infos);
            Self::send_to(&mut inner, &Event::Targets(infos));
        }
        Self::send_to(&mut inner, &event);
    }

    /// Hands over the last event.
    pub(super) fn end(&self, reason: EndReason) {
        self.send(&Event::End(reason));
    }

    fn send_to(inner: &mut Inner, event: &Event) {
        let Some(sink) = &mut inner.sink else { return };
        // A sink that fails gets no further event.
        if sink.event(event).is_err() || matches!(event, Event::End(_)) {
            inner.sink = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the schemes of a view, and opens what they need.
fn prepare(shared: &Shared, options: SchemeOptions, selection: &Selection) -> Result<PreparedSchemes, RunError> {
    debug_assert!(matches!(options.schemes, SchemeSource::Fixed(_)), "a file may come to compare access rates");
    PreparedSchemes::new(
        options,
        ActedOn::Processes(Some(selection)),
        shared.properties.look,
        shared.properties.surveys,
    )
}

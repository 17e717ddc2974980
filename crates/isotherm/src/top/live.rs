//! The main loop of the live screen. It receives events of the run, keys and signals, and draws the screen.
//!
//! A sink of the run updates the state. It never uses the terminal, so no event waits for a terminal that is slow or
//! stopped (Ctrl-S). The screen is drawn when the state has changed. The CPU time of drawing is a part of the budget of
//! the run.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use isotherm_core::BoxError;
use isotherm_kernel::monitor_cpu_time;
use isotherm_run::{EndReason, Event as RunEvent, EventSink, HelperCpu};
use ratatui::crossterm::event::{self, Event};

use super::app::{App, Outcome};
use super::keys::action;
use super::screen::Screen;

/// The minimum time between two drawings of changes of the state. Effects of keys are drawn at once.
const REDRAW: Duration = Duration::from_millis(150);

/// The part of the budget that drawing changes of the state takes at most. If it took more, together with the work of
/// the other threads that help, the run would have fewer snapshots.
const DRAWING: f64 = 0.15;

/// For how long keys can keep changes of the state from being drawn.
const LONGEST_DEBT: Duration = Duration::from_secs(2);

/// The maximum time until the loop notices that another thread has panicked.
const IDLE: Duration = Duration::from_secs(1);

/// How long a notice is shown, unless a key removes it before.
const NOTICE: Duration = Duration::from_secs(10);

/// An input of the main loop.
pub enum ScreenEvent {
    /// The state has changed.
    Changed,
    /// The run has ended.
    Ended(EndReason),
    /// A key was pressed, or the size of the terminal has changed.
    Terminal(Event),
    /// A signal requests the end.
    Quit,
    /// The job continues after a stop.
    Continued,
    /// Keys can no longer be read.
    InputClosed(std::io::Error),
}

/// The state, which the main loop and the sink share.
pub struct Shared(Mutex<App>);

impl Shared {
    pub fn new(app: App) -> Arc<Self> {
        Arc::new(Self(Mutex::new(app)))
    }

    pub fn lock(&self) -> MutexGuard<'_, App> {
        // A panic in another thread ends the program soon. Until then, the state can still be drawn.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The channel to the main loop.
pub fn inputs() -> (SyncSender<ScreenEvent>, Receiver<ScreenEvent>) {
    sync_channel(256)
}

/// The sink that updates the state.
pub fn sink(state: Arc<Shared>, inputs: SyncSender<ScreenEvent>) -> impl EventSink {
    move |event: &RunEvent| -> Result<(), BoxError> {
        match event {
            RunEvent::End(reason) => {
                // This fails if the main loop has ended already.
                let _ = inputs.send(ScreenEvent::Ended(reason.clone()));
            }
            event => {
                state.lock().event(event.clone());
                // If the channel is full, the main loop has another reason to wake up.
                let _ = inputs.try_send(ScreenEvent::Changed);
            }
        }
        Ok(())
    }
}

/// Starts the thread that reads keys and changes of the size.
pub fn listen(inputs: SyncSender<ScreenEvent>, helpers: HelperCpu) -> Result<()> {
    let listen = move || {
        let mut helper = helpers.thread();
        loop {
            let read = event::read();
            helper.count();
            let (input, last) = match read {
                Ok(event) => (ScreenEvent::Terminal(event), false),
                Err(error) => (ScreenEvent::InputClosed(error), true),
            };
            if inputs.send(input).is_err() || last {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".into()).spawn(listen).context("the thread for keys cannot be started")?;
    Ok(())
}

/// Shows the state until the user quits.
///
/// The calling thread counts as one of `helpers`. Drawing changes takes a part of `budget`, a share of one CPU.
/// `ended` returns a text that says how the run ended, which is shown until the user quits. `None` ends the screen.
pub fn run(
    screen: &mut Screen,
    state: &Shared,
    inputs: &Receiver<ScreenEvent>,
    helpers: &HelperCpu,
    budget: f64,
    mut ended: impl FnMut(&EndReason) -> Option<String>,
) -> Result<()> {
    let mut pace = DrawClock::new(budget);
    let mut helper = helpers.thread();
    // The number of notices so far, and when the last one is removed.
    let (mut notices, mut gone) = (0, None);
    // Whether the screen must be drawn, and whether at once.
    let (mut stale, mut urgent) = (true, true);
    loop {
        if !screen.is_active() {
            bail!("the screen ended because of a bug; the message is above");
        }
        {
            let mut app = state.lock();
            if app.notices != notices {
                (notices, gone) = (app.notices, Some(Instant::now() + NOTICE));
                (stale, urgent) = (true, true);
            } else if gone.is_some_and(|gone| Instant::now() >= gone) {
                (app.notice, gone) = (None, None);
                (stale, urgent) = (true, true);
            }
        }
        if stale && (urgent || pace.left(Instant::now()).is_zero()) {
            let (start, cpu) = (Instant::now(), monitor_cpu_time());
            screen.draw(|size| {
                let mut app = state.lock();
                app.size = (size.width, size.height);
                app
            })?;
            pace.drawn(start, monitor_cpu_time().saturating_sub(cpu));
            (stale, urgent) = (false, false);
        }
        helper.count();
        let wait = if stale { pace.left(Instant::now()) } else { IDLE };
        match inputs.recv_timeout(wait) {
            Ok(ScreenEvent::Changed) => stale = true,
            Ok(ScreenEvent::Ended(reason)) => {
                let Some(why) = ended(&reason) else { return Ok(()) };
                state.lock().ended = Some(why);
                (stale, urgent) = (true, true);
            }
            Ok(ScreenEvent::Terminal(Event::Key(key))) => {
                if state.lock().notice.take().is_some() {
                    (stale, urgent) = (true, true);
                }
                let Some(action) = action(key) else { continue };
                let size = screen.size()?;
                let outcome = {
                    let mut app = state.lock();
                    app.size = (size.width, size.height);
                    app.act(action)
                };
                match outcome {
                    Outcome::Stay => {}
                    Outcome::Quit => return Ok(()),
                    Outcome::Suspend => screen.suspend()?,
                    Outcome::Redraw => screen.invalidate()?,
                }
                (stale, urgent) = (true, true);
            }
            Ok(ScreenEvent::Terminal(Event::Resize(..))) => (stale, urgent) = (true, true),
            Ok(ScreenEvent::Terminal(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(ScreenEvent::Continued) => {
                screen.invalidate()?;
                (stale, urgent) = (true, true);
            }
            Ok(ScreenEvent::Quit) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(ScreenEvent::InputClosed(error)) => return Err(error).context("no keys can be read from the terminal"),
        }
    }
}

/// Limits how often the screen is drawn.
struct DrawClock {
    /// The share of one CPU for drawing changes of the state.
    share: f64,
    /// When changes may be drawn again.
    next: Option<Instant>,
}

impl DrawClock {
    fn new(budget: f64) -> Self {
        Self { share: budget * DRAWING, next: None }
    }

    /// Takes in that a drawing, which began at `start`, took `cpu`. The time until the next pays for it, and for those
    /// before it that were not waited for.
    fn drawn(&mut self, start: Instant, cpu: Duration) {
        let gap = Duration::from_secs_f64((cpu.as_secs_f64() / self.share).min(60.0)).max(REDRAW);
        let unpaid = self.left(start).min(LONGEST_DEBT.saturating_sub(gap));
        self.next = Some(start + unpaid + gap);
    }

    /// The time from `now` until changes may be drawn.
    fn left(&self, now: Instant) -> Duration {
        self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const BUDGET: f64 = 0.01;

    #[test]
    fn drawing_changes_takes_its_part_of_the_budget_however_long_a_drawing_takes() {
        for cpu in [MS / 10, MS, MS * 8, MS * 50] {
            let start = Instant::now();
            let (mut pace, mut now, mut drawings) = (DrawClock::new(BUDGET), start, 0);
            while now < start + Duration::from_secs(100) {
                now += pace.left(now);
                pace.drawn(now, cpu);
                drawings += 1;
            }
            let share = (cpu * drawings).as_secs_f64() / (now + pace.left(now) - start).as_secs_f64();
            assert!(share <= BUDGET * DRAWING + 1e-9, "{cpu:?}: {share}");
        }
    }

    #[test]
    fn cheap_drawings_come_no_sooner_than_they_can_be_seen() {
        let (mut pace, now) = (DrawClock::new(BUDGET), Instant::now());
        assert_eq!(pace.left(now), Duration::ZERO);
        pace.drawn(now, MS / 100);
        assert_eq!(pace.left(now), REDRAW);
    }

    #[test]
    fn changes_wait_for_what_keys_have_drawn_but_not_for_long() {
        let (mut pace, now) = (DrawClock::new(BUDGET), Instant::now());
        pace.drawn(now, MS);
        let once = pace.left(now);
        pace.drawn(now, MS);
        assert_eq!(pace.left(now), once * 2);
        (0..100).for_each(|_| pace.drawn(now, MS));
        assert_eq!(pace.left(now), LONGEST_DEBT);
    }
}

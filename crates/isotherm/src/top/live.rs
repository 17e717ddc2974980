//! The loop of the live screen: findings, keys and signals in, drawings out.
//!
//! Findings are taken in on a thread that never touches the terminal, so that the monitor never waits for a
//! terminal that is slow or stopped (Ctrl-S). The screen is drawn when there is news, and so seldom that it
//! takes no more than a twentieth of a CPU.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{self, Event};

use super::app::{App, Outcome};
use super::keys::action;
use super::screen::Screen;
use crate::session::{Control, Finding};
use crate::steering::{self, Word};
use crate::watch::Watching;

/// Findings drawn at most this often; keys at once.
const REDRAW: Duration = Duration::from_millis(150);

/// How soon the loop notices that another thread has died of a bug.
const IDLE: Duration = Duration::from_secs(1);

/// How long a notice stays, if no key takes it away before.
const NOTICE: Duration = Duration::from_secs(10);

/// Findings that may wait to be taken in, which takes well under a millisecond each.
const BACKLOG: usize = 64;

/// What the loop waits for.
pub enum News {
    Finding,
    /// The monitor has ended, well or not.
    Ended(Result<()>),
    Event(Event),
    /// A signal asks for the end.
    Quit,
    /// The job goes on after a stop.
    Continued,
    /// There are no keys any more.
    Deaf(std::io::Error),
}

/// The state, as both threads have it.
pub struct Shared(Mutex<App>);

impl Shared {
    pub fn new(app: App) -> Arc<Self> {
        Arc::new(Self(Mutex::new(app)))
    }

    pub fn lock(&self) -> MutexGuard<'_, App> {
        // A panic in between ends the program anyway; until then, any state can be drawn.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way for news to the loop.
pub fn news() -> (SyncSender<News>, Receiver<News>) {
    sync_channel(256)
}

/// Starts the monitor, and the thread that takes in what it finds.
pub fn start(
    session: Watching,
    schemes: Option<steering::Ready>,
    control: Control,
    state: Arc<Shared>,
    news: SyncSender<News>,
) -> Result<JoinHandle<()>> {
    let (sender, findings) = sync_channel::<Finding>(BACKLOG);
    let schemes = schemes.map(|schemes| {
        let (speaker, words) = channel();
        let listener = hear(words, Arc::clone(&state), news.clone())?;
        let steering = schemes.start(session.roster(), control.clone(), speaker, true)?;
        anyhow::Ok((steering, listener))
    });
    let schemes = schemes.transpose()?;
    let monitor = session.start(sender, control)?;
    let collect = move || {
        for finding in findings {
            if let Some((steering, _)) = &schemes {
                steering.offer(finding.snapshot.clone());
            }
            state.lock().take(finding);
            // When the loop does not keep up, it has news enough.
            let _ = news.try_send(News::Finding);
        }
        let watched = monitor.join().unwrap_or_else(|_| bail!("the monitor's thread died of a bug in isotherm"));
        let acted = schemes.map_or(Ok(()), |(steering, listener)| {
            let acted = steering.end();
            // Nothing that the schemes have said is lost.
            let _ = listener.join();
            acted
        });
        // Schemes that cannot go on stop the monitor, not the other way round.
        let _ = news.send(News::Ended(acted.and(watched)));
    };
    thread::Builder::new().name("collector".into()).spawn(collect).context("the collector's thread cannot be started")
}

/// Takes in what the schemes say, until they have ended.
fn hear(words: Receiver<Word>, state: Arc<Shared>, news: SyncSender<News>) -> Result<JoinHandle<()>> {
    let hear = move || {
        for word in words {
            state.lock().hear(word);
            let _ = news.try_send(News::Finding);
        }
    };
    thread::Builder::new().name("words".into()).spawn(hear).context("the words' thread cannot be started")
}

/// Reads keys and changes of size from here on.
pub fn listen(news: SyncSender<News>) -> Result<()> {
    let listen = move || {
        loop {
            let (news_item, last) = match event::read() {
                Ok(event) => (News::Event(event), false),
                Err(error) => (News::Deaf(error), true),
            };
            if news.send(news_item).is_err() || last {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".into()).spawn(listen).context("the keys' thread cannot be started")?;
    Ok(())
}

/// Shows the state until someone quits; says what the monitor came to, if it ended by itself.
///
/// `ended` is asked how the end came about; if it does not know what to say of it, the screen ends, too.
pub fn run(
    screen: &mut Screen,
    state: &Shared,
    news: &Receiver<News>,
    mut ended: impl FnMut(&Result<()>) -> Option<String>,
) -> Result<Option<Result<()>>> {
    let mut watched = None;
    let mut pace = Pace::default();
    // How many notices there were, and when the last one is to go.
    let (mut notices, mut gone) = (0, None);
    // Something has changed, and whether that is to be seen at once.
    let (mut stale, mut urgent) = (true, true);
    loop {
        if !screen.is_active() {
            bail!("the screen has ended because of the bug told above");
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
        if stale && (urgent || pace.is_due()) {
            let drawing = Instant::now();
            screen.draw(|size| {
                let mut app = state.lock();
                app.size = (size.width, size.height);
                app
            })?;
            pace.drawn(drawing);
            (stale, urgent) = (false, false);
        }
        let wait = if stale { pace.left() } else { IDLE };
        match news.recv_timeout(wait) {
            Ok(News::Finding) => stale = true,
            Ok(News::Ended(result)) => {
                let Some(why) = ended(&result) else { return Ok(Some(result)) };
                state.lock().ended = Some(why);
                watched = Some(result);
                (stale, urgent) = (true, true);
            }
            Ok(News::Event(Event::Key(key))) => {
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
                    Outcome::Quit => return Ok(watched),
                    Outcome::Suspend => screen.suspend()?,
                    Outcome::Redraw => screen.invalidate()?,
                }
                (stale, urgent) = (true, true);
            }
            Ok(News::Event(Event::Resize(..))) => (stale, urgent) = (true, true),
            Ok(News::Event(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(News::Continued) => {
                screen.invalidate()?;
                (stale, urgent) = (true, true);
            }
            Ok(News::Quit) | Err(RecvTimeoutError::Disconnected) => return Ok(watched),
            Ok(News::Deaf(error)) => return Err(error).context("no keys can be read from the terminal"),
        }
    }
}

/// How often the screen may be drawn.
#[derive(Default)]
struct Pace {
    next: Option<Instant>,
}

impl Pace {
    fn drawn(&mut self, start: Instant) {
        let took = start.elapsed();
        self.next = Some(start + REDRAW.max(took * 20));
    }

    fn left(&self) -> Duration {
        self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now()))
    }

    fn is_due(&self) -> bool {
        self.left().is_zero()
    }
}

//! The live screen on the events of a running daemon.

use std::process::ExitCode;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context, Result, bail};
use isotherm_agent::api::encoded;
use isotherm_agent::view::{GroupStatus, State};
use isotherm_agent::{Client, ClientError};
use isotherm_core::{Pace, chain};
use isotherm_record::{Needs, NotAfforded, StreamReader};
use isotherm_run::{EndReason, Event, HelperCpu, Missed, Notice, Severity};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use signal_hook::consts::SIGCONT;

use super::app::{App, Appearance, RunInfo};
use super::live::{self, ScreenEvent, Shared};
use super::screen::Screen;
use crate::cli::Top;
use crate::command::{self, ENDING};
use crate::terminal::terminal;

/// How often the state of the group is asked for: what its events do not tell.
const EVERY: Duration = Duration::from_secs(2);

/// The share of one CPU of which drawing takes a part.
const BUDGET: f64 = 0.01;

/// Shows a group of the daemon until the user quits.
pub fn run(options: &Top, name: &str) -> Result<ExitCode> {
    let group = Group { options, name };
    let status = group.status()?;
    match status.state {
        State::Watching => {}
        State::Paused => bail!("the group {name} is paused; `isotherm ctl resume {name}` watches it again"),
        State::Ended => bail!("the processes of the group {name} have ended; `isotherm ctl resume {name}` tries again"),
        State::Failed => bail!("the daemon cannot watch the group {name}: {}", status.why.unwrap_or_default()),
    }
    let terminal = terminal();
    let appearance = Appearance { colour: terminal.colour, unicode: terminal.unicode };
    let state = Shared::new(App::new(info(&status), appearance));
    let (sender, inputs) = live::inputs();
    let signalled = sender.clone();
    command::on_signals(ENDING.into_iter().chain([SIGCONT]), move |origin| {
        let _ = match origin.signal {
            SIGCONT => signalled.try_send(ScreenEvent::Continued),
            _ => signalled.send(ScreenEvent::Quit).map_err(Into::into),
        };
    })?;
    let mut screen = Screen::take()?;
    let helpers = HelperCpu::default();
    live::listen(sender.clone(), helpers.clone())?;
    let end = Arc::new(Mutex::new(String::new()));
    group.spawn_follower(Arc::clone(&state), sender.clone(), Arc::clone(&end))?;
    group.spawn_asker(Arc::clone(&state), sender, &status)?;
    let shown = live::run(&mut screen, &state, &inputs, &helpers, BUDGET, |_| {
        Some(end.lock().unwrap_or_else(PoisonError::into_inner).clone())
    });
    drop(screen);
    match shown {
        // The terminal has hung up, which is the same as quitting.
        Err(error) if error.chain().any(super::is_hang_up) => Ok(ExitCode::SUCCESS),
        shown => shown.map(|()| ExitCode::SUCCESS),
    }
}

/// What the screen says of the run.
fn info(status: &GroupStatus) -> RunInfo {
    let attributes = status.attributes.as_ref();
    RunInfo {
        probe: status.probe.clone().unwrap_or_default(),
        coarse: status.probe.as_deref() == Some("refs"),
        sampled: status.pace.as_ref().is_none_or(|pace| pace.sampling_interval_ns.is_some()),
        aggregation: Duration::from_nanos(attributes.map_or(0, |attributes| attributes.aggregation_ns)),
        max_regions: attributes.map_or(0, |attributes| attributes.max_regions as usize),
        output: None,
    }
}

/// A group of a daemon.
struct Group<'a> {
    options: &'a Top,
    name: &'a str,
}

impl Group<'_> {
    fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.options.socket)?)
    }

    fn path(&self) -> String {
        format!("/v1/groups/{}", encoded(self.name))
    }

    fn status(&self) -> Result<GroupStatus> {
        let client = self.client()?;
        match ask(&client, &self.path()) {
            Err(error) if is_unknown(&error) => {
                let groups: Vec<GroupStatus> = ask(&client, "/v1/groups")?;
                let known: Vec<&str> = groups.iter().map(|group| &*group.name).collect();
                match &known[..] {
                    [] => bail!("the daemon has no groups; `isotherm ctl add FILE` adds one"),
                    known => bail!("the daemon has no group {:?}; it has {}", self.name, known.join(", ")),
                }
            }
            status => status,
        }
    }

    /// Starts the thread that takes in the events. At their end, `end` has the reason.
    fn spawn_follower(
        &self,
        state: Arc<Shared>,
        inputs: SyncSender<ScreenEvent>,
        end: Arc<Mutex<String>>,
    ) -> Result<()> {
        let (client, path) = (self.client()?, format!("{}/recording", self.path()));
        spawn("events", move || {
            let mut reader = StreamReader::new(Needs { allocations: false, ..Needs::ALL });
            let mut failed = None;
            let followed = client.stream(&path, |bytes| match reader.take(bytes) {
                Ok(events) => {
                    let mut app = state.lock();
                    events.into_iter().filter_map(live_event).for_each(|event| app.event(event));
                    drop(app);
                    // If the channel is full, the main loop has another reason to wake up.
                    !matches!(inputs.try_send(ScreenEvent::Changed), Err(error) if is_closed(&error))
                }
                Err(error) => {
                    failed = Some(chain(&error));
                    false
                }
            });
            let why = match (followed, failed) {
                (_, Some(why)) => format!("the events of the daemon cannot be read: {why}"),
                (Ok(()) | Err(ClientError::Cut(_)), None) => "the daemon ended, or watches the group no more".into(),
                (Err(error), None) => chain(&error),
            };
            *end.lock().unwrap_or_else(PoisonError::into_inner) = why;
            let _ = inputs.send(ScreenEvent::Ended(EndReason::Stopped));
        })
    }

    /// Starts the thread that asks for what the events do not tell.
    fn spawn_asker(&self, state: Arc<Shared>, inputs: SyncSender<ScreenEvent>, first: &GroupStatus) -> Result<()> {
        let (client, path) = (self.client()?, self.path());
        let mut noticed = first.notices.last().map_or(0, |notice| notice.unix_ns);
        spawn("state", move || {
            let mut schemes = SchemesInForce::default();
            loop {
                // Without an answer, the events have ended, too.
                let Ok(status) = ask::<GroupStatus>(&client, &path) else { return };
                let new: Vec<_> = status.notices.iter().filter(|notice| notice.unix_ns > noticed).collect();
                noticed = new.last().map_or(noticed, |notice| notice.unix_ns);
                let mut app = state.lock();
                schemes.put(&mut app, &status);
                put_in_force(&mut app, &status);
                for notice in new {
                    let severity = if notice.warning { Severity::Warning } else { Severity::Info };
                    app.event(Event::Notice(Notice::new(severity, &notice.text)));
                }
                drop(app);
                if matches!(inputs.try_send(ScreenEvent::Changed), Err(error) if is_closed(&error)) {
                    return;
                }
                thread::sleep(EVERY);
            }
        })
    }
}

/// Puts what is in force on the screen: the attributes, and the intervals that the run has settled on.
fn put_in_force(app: &mut App, status: &GroupStatus) {
    if let Some(attributes) = &status.attributes {
        app.run.aggregation = Duration::from_nanos(attributes.aggregation_ns);
        app.run.max_regions = attributes.max_regions as usize;
    }
    if let Some(pace) = &status.pace {
        let pace = Pace {
            survey_interval: pace.survey_interval_ns.map(Duration::from_nanos),
            sampling_interval: pace.sampling_interval_ns.map(Duration::from_nanos),
            cpu: pace.cpu,
            is_limited: pace.limited,
        };
        app.event(Event::Pace { pace, not_afforded: NotAfforded::default() });
    }
}

/// The schemes in force, as the configuration of the group has them.
#[derive(Default)]
struct SchemesInForce(Vec<String>);

impl SchemesInForce {
    /// Puts them on the screen when they have changed.
    fn put(&mut self, app: &mut App, status: &GroupStatus) {
        let about: Vec<String> = status.schemes.iter().map(|scheme| scheme.about.clone()).collect();
        if self.0 == about {
            return;
        }
        let settings = &status.settings;
        let text = match (&settings.schemes, &settings.scheme_file) {
            (Some(Value::String(text)), _) => Some(text.clone()),
            (Some(schemes), _) => Some(json!({ "schemes": schemes }).to_string()),
            // Who may ask the daemon may be refused the file.
            (None, Some(path)) => isotherm_scheme::read_text(path).ok(),
            (None, None) => None,
        };
        let schemes = text.map_or(Ok(Vec::new()), |text| isotherm_scheme::parse("schemes", &text));
        app.event(Event::Schemes(schemes.unwrap_or_default().into()));
        self.0 = about;
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started: io::Result<_> = thread::Builder::new().name(name.into()).spawn(work);
    started.map(drop).with_context(|| format!("the thread for {name} cannot be started"))
}

fn is_closed<T>(error: &std::sync::mpsc::TrySendError<T>) -> bool {
    matches!(error, std::sync::mpsc::TrySendError::Disconnected(_))
}

fn ask<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T> {
    Ok(serde_json::from_slice(&client.ask("GET", path, None)?)?)
}

fn is_unknown(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::Refused(problem)) if problem.status == 404)
}

/// An event of a recording as that of a run.
fn live_event(event: isotherm_record::Event) -> Option<Event> {
    use isotherm_record::Event as Recorded;
    Some(match event {
        Recorded::Snapshot(record) => Event::Snapshot(Arc::new(record)),
        Recorded::Panel(panel) => Event::Panel(Arc::new(panel)),
        Recorded::Survey(record) => Event::Survey(Arc::new(record)),
        Recorded::Activity(activity) => Event::Activity(Arc::new(activity)),
        Recorded::Mark(mark) => Event::Mark(mark),
        Recorded::Missed(missed) => Event::Missed(Missed { counts: vec![missed], ..Missed::default() }),
        Recorded::Allocations(_) => return None,
    })
}

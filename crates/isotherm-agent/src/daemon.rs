//! The daemon: its configuration, its groups, its clock, and its end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_kernel::{Containers, monitor_cpu_time, return_freed_memory, unix_ns};
use isotherm_report::Selection;
use isotherm_report::right_size::WINDOW;
use isotherm_scheme::Diagnostics;
use sd_notify::NotifyState;
use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::advice::{Advice, advise};
use crate::api::Problem;
use crate::config::{Config, PATH, Rights};
use crate::fleet::FleetWriter;
use crate::groups::Groups;
use crate::guard::Token;
use crate::history::HistoryError;
use crate::overview::Overviews;
use crate::serving::{Mean, Serving};
use crate::sockets::{SocketError, Sockets};
use crate::streams::Streams;
use crate::view::{self, GroupStatus, Health, NoticeView, State};
use crate::watched::Watched;
use crate::{cri, history, idle_files, journal, metrics, server};

/// How often the clock ticks.
const TICK: Duration = Duration::from_secs(1);

/// How often metrics are taken, and written to a file.
const METRICS: Duration = Duration::from_secs(5);
const TEXTFILE: Duration = Duration::from_secs(15);

/// How often trends get a point.
const TREND: Duration = Duration::from_secs(10);

/// How often groups that failed are looked at.
const RETRY: Duration = Duration::from_secs(5);

/// How often groups are made for large cgroups.
const CGROUPS: Duration = Duration::from_secs(5);

/// How often the history is brought in order, files of idle memory are written, and freed memory is returned.
const MAINTAIN: Duration = Duration::from_secs(60);

/// How often right sizes are computed again, and how far the history goes back that they are computed from.
const RIGHT_SIZES: Duration = Duration::from_secs(600);
const SIZED_BY: Duration = Duration::from_secs(7 * 24 * 3600);

/// The most requests that are worked on at once.
const WORKERS: usize = 4;

/// Why the daemon does not run.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The configuration is wrong.
    #[error("{0}")]
    Config(Diagnostics),
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Something that it needs of the system is not available.
    #[error("{what}")]
    System {
        /// What.
        what: String,
        /// The error.
        source: std::io::Error,
    },
}

/// A running daemon.
pub struct Daemon {
    /// The groups.
    pub groups: Groups,
    /// What is known of all groups, for those who follow it.
    pub overviews: Overviews,
    /// The streams that clients follow.
    pub streams: Streams,
    /// The CPU time of all that is not the watching of groups.
    pub serving: Arc<Serving>,
    /// The file of the configuration. `None` for the embedded one.
    file: Option<PathBuf>,
    config: Mutex<Arc<Config>>,
    metrics: Mutex<Arc<str>>,
    /// The names of the containers of the machine.
    containers: Mutex<Containers>,
    /// Writes the history to the dataset of a fleet.
    pub fleet: FleetWriter,
    /// What the history of all groups has, and what failed when it was last brought in order.
    kept: Mutex<(u64, Vec<String>)>,
    /// When it started, since the Unix epoch.
    pub started_unix_ns: u64,
}

/// Reads the configuration at `path`, or at the usual place, or the embedded one.
///
/// # Errors
/// If it is wrong, `path` names no file, or a group acts without the right to.
pub fn read_config(path: Option<&Path>, rights: Rights) -> Result<(Config, Option<PathBuf>), DaemonError> {
    let path = path.map(Path::to_owned).or_else(|| Some(PathBuf::from(PATH)).filter(|path| path.exists()));
    Ok((Config::read(path.as_deref(), rights).map_err(DaemonError::Config)?, path))
}

/// Runs the daemon until SIGTERM or SIGINT.
///
/// # Errors
/// If the configuration is wrong, or the control socket cannot be opened.
pub fn run(path: Option<&Path>, rights: Rights) -> Result<(), DaemonError> {
    let (config, file) = read_config(path, rights)?;
    let system = |what: &str| {
        let what = what.to_owned();
        move |source| DaemonError::System { what, source }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(WORKERS)
        .thread_name("control")
        .build()
        .map_err(system("the control thread cannot be started"))?;
    let sockets = {
        let _inside = runtime.enter();
        Sockets::open(&config.settings)?
    };
    let daemon = Arc::new(Daemon::new(config, file, rights));
    let config = daemon.config();
    let (wakes, signals) = mpsc::channel(8);
    runtime
        .block_on(async {
            handle(SignalKind::hangup(), Wake::Reload, &wakes)?;
            handle(SignalKind::terminate(), Wake::End, &wakes)?;
            handle(SignalKind::interrupt(), Wake::End, &wakes)
        })
        .map_err(system("signals cannot be handled"))?;
    let shown = sockets.shown();
    for listener in sockets.metrics {
        runtime.spawn(server::serve_metrics(listener, Arc::clone(&daemon)));
    }
    for listener in sockets.control {
        runtime.spawn(server::serve(listener, Arc::clone(&daemon)));
    }
    if let Some(listener) = sockets.page {
        let token = config.settings.page.token_file.as_deref().map(Token::read).transpose();
        let token = token.map_err(system("the token of the page cannot be had"))?;
        runtime.spawn(server::serve_page(listener, token, Arc::clone(&daemon)));
    }
    runtime.spawn(cri::follow(Arc::clone(&daemon)));
    // A daemon that was killed may have left some, whatever this one does.
    isotherm_run::restore_limits().iter().for_each(journal::tell);
    daemon.groups.configure(&config);
    daemon.groups.restore();
    daemon.take_metrics();
    notify(&[NotifyState::Ready]);
    let groups = match config.groups.len() {
        0 => "no group in the configuration (add one with `isotherm ctl add FILE`)".into(),
        1 => "1 group".into(),
        groups => format!("{groups} groups"),
    };
    journal::info(&format!("{groups}; the control socket is {shown}"));
    Clock::new(Arc::clone(&daemon)).run(&runtime, signals);
    notify(&[NotifyState::Stopping]);
    daemon.groups.end();
    sockets.own.as_deref().into_iter().for_each(server::remove);
    runtime.shutdown_timeout(TICK);
    Ok(())
}

/// What wakes the main thread.
#[derive(Clone, Copy)]
enum Wake {
    Reload,
    End,
}

fn handle(kind: SignalKind, wake: Wake, wakes: &mpsc::Sender<Wake>) -> std::io::Result<()> {
    let (mut signals, wakes) = (signal(kind)?, wakes.clone());
    tokio::spawn(async move { while signals.recv().await.is_some() && wakes.send(wake).await.is_ok() {} });
    Ok(())
}

/// Tells systemd. Without it, nobody listens.
fn notify(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(false, state);
}

impl Daemon {
    fn new(config: Config, file: Option<PathBuf>, rights: Rights) -> Self {
        let history = config.settings.history.directory.as_ref().map(|directory| directory.join("history"));
        Self {
            groups: Groups::new(config.settings.budget(), history, rights),
            overviews: Overviews::default(),
            streams: Streams::default(),
            serving: Arc::default(),
            file,
            config: Mutex::new(Arc::new(config)),
            metrics: Mutex::new("".into()),
            containers: Mutex::new(Containers::new("/".as_ref())),
            fleet: FleetWriter::default(),
            kept: Mutex::default(),
            started_unix_ns: unix_ns(),
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&lock(&self.config))
    }

    /// Reads the configuration again and puts it in force. If it is wrong, the one in force stays.
    ///
    /// # Errors
    /// What is wrong.
    pub fn reload(&self) -> Result<(), Diagnostics> {
        let config = Arc::new(Config::read(self.file.as_deref(), self.groups.rights())?);
        let before = std::mem::replace(&mut *lock(&self.config), Arc::clone(&config));
        let fixed = |of: &Config| {
            let settings = &of.settings;
            let page = (settings.page.listen.clone(), settings.page.token_file.clone());
            (settings.socket.clone(), settings.metrics.listen.clone(), page, settings.history.directory.clone())
        };
        if fixed(&before) != fixed(&config) {
            journal::warning("another socket, metrics or page address, token or history directory needs a restart");
        }
        if before.settings.fleet != config.settings.fleet {
            self.fleet.hurry();
        }
        self.groups.configure(&config);
        journal::info("the configuration is in force");
        Ok(())
    }

    /// The metrics, as they were taken last.
    pub fn metrics(&self) -> Arc<str> {
        Arc::clone(&lock(&self.metrics))
    }

    /// The names of the containers of the machine.
    pub fn containers(&self) -> MutexGuard<'_, Containers> {
        lock(&self.containers)
    }

    /// Whether it does what it was told.
    pub fn health(&self) -> Health {
        let mut problems = lock(&self.kept).1.clone();
        for (name, group) in self.groups.all() {
            if let (State::Failed, why) = group.state() {
                problems.push(format!("the group {name} is not watched: {}", why.unwrap_or_default()));
            }
            problems.extend(group.hub.history_failure().map(|why| format!("no history of {name} is kept: {why}")));
        }
        problems.extend(self.fleet.state().failure.map(|why| format!("the history is not in the dataset: {why}")));
        Health { ok: problems.is_empty(), problems }
    }

    /// How many bytes the history of all groups has.
    pub fn kept_bytes(&self) -> u64 {
        lock(&self.kept).0
    }

    /// The directory of the history of a group.
    ///
    /// # Errors
    /// If no history is kept.
    pub fn history_of(&self, group: &str) -> Result<PathBuf, Problem> {
        let none = || Problem::new(404, "no history is kept; set history.directory in the configuration");
        Ok(self.groups.history().ok_or_else(none)?.join(group))
    }

    /// How much memory each cgroup of a group should have. Small ones are left out unless there is one only.
    ///
    /// # Errors
    /// If there is no such group, no history is kept, or it cannot be read.
    pub fn advice(&self, group: &str) -> Result<Vec<Advice>, Problem> {
        let watched = self.groups.get(group)?;
        let now = unix_ns() / 1_000_000;
        let kept = history::open(&self.history_of(group)?, now.saturating_sub(SIZED_BY.as_millis() as u64), now);
        let kept = match kept {
            Err(HistoryError::Nothing) => {
                let withheld = Some("there is no history yet".into());
                return Ok(vec![Advice { group: group.into(), withheld, ..Advice::default() }]);
            }
            kept => kept?,
        };
        let selection = Selection { time: Some(kept.time), ..Selection::default() };
        // Names of containers are looked up by a reader of its own, since this takes long.
        let containers = Containers::new("/".as_ref());
        let mut all = advise("/".as_ref(), &kept.recordings, &selection, WINDOW, &containers)?;
        if all.len() > 1 {
            let least = watched.group().settings.cgroups_above.0;
            all.retain(|advice| advice.now.current_bytes.is_none_or(|current| current >= least));
        }
        all.iter_mut().for_each(|advice| advice.group = group.into());
        Ok(all)
    }

    /// The advice on all groups, except those whose cgroups are groups of their own.
    ///
    /// # Errors
    /// As [`advice`](Self::advice).
    pub fn advice_on_all(&self) -> Result<Vec<Advice>, Problem> {
        let mut all = Vec::new();
        for (name, watched) in self.groups.all() {
            if watched.group().settings.each_cgroup_above.is_none() {
                all.extend(self.advice(&name)?);
            }
        }
        Ok(all)
    }

    /// Computes the right sizes of groups that ask for that, or only those that are not known yet.
    fn right_size(&self, only_unknown: bool) {
        for (name, watched) in self.groups.all() {
            if watched.group().settings.right_size && !(only_unknown && watched.is_sized()) {
                let advice = self.advice(&name).map_err(|problem| problem.detail);
                watched.size(advice);
            }
        }
    }

    /// Where a recording of this name is made.
    ///
    /// # Errors
    /// If it is no name of a file, or there is no directory for recordings.
    pub fn recording(&self, name: &str) -> Result<PathBuf, Problem> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(is_allowed) {
            return Err(Problem::new(
                422,
                format!("{name:?} is no name of a recording; use letters, digits, - _ and ."),
            ));
        }
        let none = || Problem::new(409, "there is no directory for recordings; set history.directory");
        let directory = self.groups.history().and_then(|history| history.parent()).ok_or_else(none)?;
        let directory = directory.join("recordings");
        let made = std::fs::DirBuilder::new().recursive(true).create(&directory);
        made.map_err(|error| Problem::new(500, format!("{}: {error}", directory.display())))?;
        Ok(directory.join(format!("{name}.rec")))
    }

    fn take_metrics(&self) {
        *lock(&self.metrics) = metrics::take(self).into();
    }

    fn write_textfile(&self) {
        let Some(path) = &self.config().settings.metrics.textfile else { return };
        if let Err(why) = metrics::write_textfile(path, &self.metrics()) {
            journal::warning(&why);
        }
    }

    fn write_idle_files(&self) {
        let Some(directory) = &self.config().settings.metrics.idle_page_stats else { return };
        if let Err(why) = idle_files::write(self, directory) {
            journal::warning(&why);
        }
    }

    fn maintain_history(&self) {
        let Some(directory) = self.groups.history() else { return };
        let settings = self.config().settings.history.clone();
        let kept = history::maintain(directory, &settings, unix_ns() / 1_000_000);
        kept.1.iter().for_each(|why| journal::warning(&format!("the history: {why}")));
        *lock(&self.kept) = kept;
    }
}

impl Watched {
    /// What there is to say of the group.
    pub fn status(&self, name: &str) -> GroupStatus {
        let (state, why) = self.state();
        let known = self.hub.known();
        GroupStatus {
            name: name.into(),
            state,
            why,
            probe: known.header.as_ref().map(|header| header.probe.clone()),
            processes: known.processes(),
            memory: known.survey.as_ref().map(|record| view::Memory::new(&record.survey.sums())),
            in_use: known.panel.as_deref().and_then(view::InUse::new),
            attributes: known.attributes.map(Into::into),
            pace: known.pace.map(Into::into),
            schemes: view::schemes(&known),
            fed_goals: self.fed_goals(),
            limits: self.limits(),
            out_bytes: self.out_bytes(),
            recordings: self.hub.recording_names(),
            notices: self.notices().iter().map(|(time, notice)| NoticeView::new(*time, notice)).collect(),
            settings: self.group().settings,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one assignment, so a panic of another thread does not spoil it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The work that comes again and again.
struct Clock {
    daemon: Arc<Daemon>,
    /// The CPU time of the control thread so far, and the share of a CPU that serving takes.
    cpu: Duration,
    mean: Mean,
    /// How often systemd is told that all is well.
    watchdog: Option<Duration>,
    began: Instant,
    ticks: u64,
}

impl Clock {
    fn new(daemon: Arc<Daemon>) -> Self {
        let mut watchdog = 0;
        let is_watched = sd_notify::watchdog_enabled(false, &mut watchdog);
        let watchdog = is_watched.then(|| Duration::from_micros(watchdog) / 2);
        let (began, mean) = (Instant::now(), Mean::new(Instant::now(), daemon.serving.cpu()));
        Self { daemon, cpu: monitor_cpu_time(), mean, watchdog, began, ticks: 0 }
    }

    /// Works until the end.
    fn run(mut self, runtime: &Runtime, mut wakes: mpsc::Receiver<Wake>) {
        loop {
            let wake = runtime.block_on(async { tokio::time::timeout(TICK, wakes.recv()).await });
            match wake {
                Ok(Some(Wake::Reload)) => self.reload(),
                Ok(Some(Wake::End) | None) => return,
                Err(_) => self.tick(runtime),
            }
        }
    }

    fn reload(&self) {
        let now = NotifyState::monotonic_usec_now().ok();
        notify(&[Some(NotifyState::Reloading), now].into_iter().flatten().collect::<Vec<_>>());
        if let Err(diagnostics) = self.daemon.reload() {
            journal::warning(&format!("the configuration is wrong, and the one in force stays: {diagnostics}"));
        }
        notify(&[NotifyState::Ready]);
    }

    fn tick(&mut self, runtime: &Runtime) {
        let before = self.ticks;
        self.ticks = self.began.elapsed().as_secs();
        let is_due = |every: Duration| self.ticks / every.as_secs().max(1) != before / every.as_secs().max(1);
        if self.watchdog.is_some_and(is_due) {
            notify(&[NotifyState::Watchdog]);
        }
        if is_due(TREND) {
            self.daemon.overviews.remember(&self.daemon);
        }
        self.daemon.overviews.tell(&self.daemon);
        FleetWriter::tick(&self.daemon);
        if is_due(RETRY) {
            self.daemon.groups.retry();
        }
        if is_due(METRICS) {
            self.daemon.take_metrics();
        }
        if is_due(TEXTFILE) {
            self.daemon.write_textfile();
        }
        if is_due(CGROUPS) {
            self.daemon.groups.follow_cgroups(&self.daemon.containers());
        }
        if is_due(MAINTAIN) {
            // Containers are renamed rarely.
            self.daemon.containers().forget();
            let daemon = Arc::clone(&self.daemon);
            let all = is_due(RIGHT_SIZES);
            runtime.spawn_blocking(move || {
                daemon.serving.counted(|| {
                    daemon.write_idle_files();
                    daemon.maintain_history();
                    daemon.right_size(!all);
                    return_freed_memory();
                });
            });
        }
        // What workers take is counted by them.
        let now = monitor_cpu_time();
        let serving = &self.daemon.serving;
        serving.add(now.saturating_sub(std::mem::replace(&mut self.cpu, now)));
        let share = self.mean.take(Instant::now(), serving.cpu());
        self.daemon.groups.allowance().keep_back(share);
        self.daemon.overviews.set_serving(share);
    }
}

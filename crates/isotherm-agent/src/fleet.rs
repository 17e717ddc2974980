//! Writes the history of all groups into the dataset of a fleet, each quarter of an hour.
//!
//! It reads the history as any reader does, on a thread of its own with the least priority, whose CPU time is a part of
//! the budget. So it delays neither rounds nor the history, whatever the dataset does.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isotherm_core::chain;
use isotherm_fleet::{Dataset, Names, Source, Written};
use isotherm_kernel::scheduling::set_nice;
use isotherm_kernel::{Containers, unix_ns};

use crate::daemon::Daemon;
use crate::{history, journal};

/// A quarter of an hour, in seconds.
const QUARTER: i64 = 900;

/// How long after a quarter it is written at the earliest: it is settled by then.
const SETTLED: i64 = 130;

/// Over how many seconds the daemons of many hosts are spread.
const SPREAD: i64 = 240;

/// The least priority.
const NICE: i32 = 19;

/// What the history of all groups has by the minute.
///
/// # Errors
/// If its directory cannot be read.
pub fn history_sources(directory: &Path) -> io::Result<Vec<Source>> {
    let groups = history::history_by_minute(directory)?;
    Ok(groups.into_iter().map(|(group, paths)| Source { group, paths }).collect())
}

/// What cgroups are called by the runtimes of containers on this machine.
pub fn container_names() -> impl Fn(&str) -> Names {
    let containers = Containers::new("/".as_ref());
    move |cgroup| {
        containers.names_in(cgroup).map_or_else(Names::default, |names| Names {
            container: Some(names.container.into()),
            pod: names.pod.map(Arc::from),
            namespace: names.namespace.map(Arc::from),
        })
    }
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct FleetState {
    /// Why nothing was written last. `None` if all was.
    pub failure: Option<String>,
    /// Rows that were written since the daemon started.
    pub rows: u64,
    /// When all was written last, in seconds since the Unix epoch. 0 if it never was.
    pub written_at: i64,
    /// When it is written next, in seconds since the Unix epoch.
    due: i64,
    is_writing: bool,
}

/// Writes to a dataset, if the configuration names one.
#[derive(Debug, Default)]
pub struct FleetWriter {
    state: Mutex<FleetState>,
}

impl FleetWriter {
    /// What was written.
    pub fn state(&self) -> FleetState {
        self.lock().clone()
    }

    /// Writes soon, since the configuration is another one.
    pub fn hurry(&self) {
        self.lock().due = 0;
    }

    /// Begins to write, if it is time.
    pub fn tick(daemon: &Arc<Daemon>) {
        let now = int(unix_ns() / 1_000_000_000);
        let config = daemon.config();
        let (Some(to), Some(history)) = (&config.settings.fleet.to, daemon.groups.history()) else { return };
        {
            let mut state = daemon.fleet.lock();
            // The clock may have been set back.
            if state.is_writing || (now < state.due && state.due - now < 2 * QUARTER) {
                return;
            }
            let spread = int(daemon.started_unix_ns / 1_000_000) % SPREAD;
            state.due = next(now, spread);
            state.is_writing = true;
        }
        let mut done = Done { daemon: Arc::clone(daemon), to: to.clone(), result: Err("writing has not ended".into()) };
        let history = history.to_owned();
        let thread = std::thread::Builder::new().name("fleet".into());
        // If no thread can be started, or it panics, that is told as any failure.
        let _ = thread.spawn(move || done.write(&history, now));
    }

    fn lock(&self) -> MutexGuard<'_, FleetState> {
        // Each change leaves it whole, so a panic of another thread does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn int(number: u64) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// When the quarter that is not over yet is written.
fn next(now: i64, spread: i64) -> i64 {
    let due = now.div_euclid(QUARTER) * QUARTER + SETTLED + spread;
    if due > now { due } else { due + QUARTER }
}

fn write(to: &Path, history: &Path, now: i64) -> Result<Written, String> {
    // If this fails, it takes as much of a CPU as other threads of the daemon.
    let _ = set_nice(NICE);
    let sources = match history_sources(history) {
        // No group has been watched yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Written::default()),
        sources => sources.map_err(|error| format!("{}: {error}", history.display()))?,
    };
    let written =
        Dataset::at(to).and_then(|dataset| isotherm_fleet::write(&dataset, &sources, &container_names(), now));
    written.map_err(|error| chain(&error))
}

/// Notes the result when a call has ended.
struct Done {
    daemon: Arc<Daemon>,
    to: PathBuf,
    result: Result<Written, String>,
}

impl Done {
    fn write(&mut self, history: &Path, now: i64) {
        (self.result, _) = self.daemon.serving.counted(|| write(&self.to, history, now));
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        let (failure, rows) = match std::mem::replace(&mut self.result, Ok(Written::default())) {
            Ok(written) => (written.problems.into_iter().next(), written.rows),
            Err(why) => (Some(why), 0),
        };
        let mut state = self.daemon.fleet.lock();
        state.is_writing = false;
        state.rows += rows;
        let before = std::mem::replace(&mut state.failure, failure.clone());
        if failure.is_none() {
            state.written_at = int(unix_ns() / 1_000_000_000);
        }
        drop(state);
        let to = self.to.display();
        match (before, failure) {
            (None, Some(why)) => journal::warning(&format!(
                "the history is not all in {to}: {why}; it is tried again each quarter of an hour"
            )),
            (Some(_), None) => journal::info(&format!("the history is in {to} again")),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_written_when_it_is_settled_and_not_by_all_hosts_at_once() {
        assert_eq!(next(9_000, 0), 9_000 + SETTLED);
        assert_eq!(next(9_000 + SETTLED, 0), 9_900 + SETTLED);
        assert_eq!(next(9_899, 100), 9_900 + SETTLED + 100);
        assert_eq!(next(9_000 + SETTLED, 100), 9_000 + SETTLED + 100);
    }
}

//! A daemon that is killed again and again: what it has kept stays readable, and its target whole.

use std::io;
use std::path::Path;
use std::time::Duration;

use isotherm_record::Recording;

use super::served::Served;
use crate::target::Start;

/// What came of it.
#[derive(Debug, Default)]
pub struct Killed {
    /// Files of the history.
    pub files: usize,
    /// Snapshots in all of them.
    pub snapshots: u64,
    /// What is wrong.
    pub wrong: Vec<String>,
}

/// Kills a daemon so often, each time a little later after it has a snapshot.
///
/// # Errors
/// If the harness itself fails, or the daemon does not start again.
pub fn kills(isotherm: &Path, start: &Start, times: u32) -> io::Result<Killed> {
    let mut target = start.target()?;
    let mut served = Served::start(isotherm, &format!("{{pid: [{}]}}", target.pid()))?;
    for nth in 0..times {
        // From 0 to 2 s, in no order. What is a second old is in the file.
        std::thread::sleep(Duration::from_millis(u64::from(nth * 737 % 2000)));
        served.kill()?;
    }
    let mut killed = Killed::default();
    if let Err(error) = target.check() {
        killed.wrong.push(format!("the target is not whole: {error}"));
    }
    for path in served.history()? {
        killed.files += 1;
        let read = Recording::open(&path)
            .and_then(|recording| recording.snapshots().try_fold(0, |count, snapshot| snapshot.map(|_| count + 1)));
        match read {
            Ok(snapshots) => killed.snapshots += snapshots,
            Err(error) => killed.wrong.push(format!("{}: {error}", path.display())),
        }
    }
    let report = served.ask("/v1/groups/a/reports/wss");
    if report.as_ref().is_none_or(|(status, _)| *status != 200) {
        let report = report.map(|(status, body)| format!("{status}: {}", String::from_utf8_lossy(&body)));
        killed.wrong.push(format!("there is no report on the history: {}", report.unwrap_or_default()));
    }
    Ok(killed)
}

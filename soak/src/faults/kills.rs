//! A command is killed at each call of a kind, and what it leaves behind is judged.

use std::fs;
use std::io;

use isotherm_record::{RecordError, Recording};
use nix::sys::signal::Signal;

use super::sweep::{run, run_again};
use super::{Case, Effect, Extent, Fault, Finding, Kind, Room};

/// Kills a command at its calls of these kinds, and runs it once more after each kill. Returns the findings, and the
/// number of kills.
///
/// # Errors
/// If the harness itself fails.
pub fn kills(room: &Room, case: &Case, kinds: &[Kind], extent: Extent) -> io::Result<(Vec<Finding>, u64)> {
    let (mut findings, mut killed) = (vec![], 0);
    let mut target = if case.live { Some(room.target.target()?) } else { None };
    for &kind in kinds {
        let mut nth = 1;
        loop {
            let fault = Fault { kind, nth, effect: Effect::Kill };
            let outcome = run(room, case, target.as_ref(), Some(fault))?;
            let Some(at) = outcome.traced.failed else { break };
            killed += 1;
            let mut wrong = vec![];
            if let Some(waits) = outcome.traced.hung {
                wrong.push(format!("a process is left: {waits}"));
            } else if outcome.traced.end != Err(Signal::SIGKILL) {
                wrong.push(format!("it ended with {:?} and not by the kill", outcome.traced.end));
            }
            wrong.extend(outcome.files);
            wrong.extend(unreadable(room, case));
            // The next command removes what the killed one has left, and succeeds.
            let next = run_again(room, case, target.as_ref(), None)?;
            if next.traced.end != Ok(case.status) {
                wrong.push(format!("the next command ends with {:?}: {}", next.traced.end, next.err));
            }
            let left: Vec<_> = room.names()?.into_iter().filter(|name| name.contains(".isotherm-")).collect();
            if !left.is_empty() {
                wrong.push(format!("the next command leaves {left:?}"));
            }
            if let Some(Err(harm)) = target.as_mut().map(crate::target::Target::check) {
                wrong.push(format!("the target is harmed: {harm}"));
                target = Some(room.target.target()?);
            }
            if !wrong.is_empty() {
                let (call, fault) = (case.arguments.join(" "), format!("killed at {kind:?} {nth}: {at}"));
                findings.push(Finding { call, fault, wrong: wrong.join("; ") });
            }
            nth = extent.next(nth);
        }
    }
    Ok((findings, killed))
}

/// Why the recording under the output's name cannot be read, if there is one and it cannot. What was there before is no
/// recording.
fn unreadable(room: &Room, case: &Case) -> Option<String> {
    let path = room.path().join(case.output.filter(|_| case.keeps)?);
    if fs::read(&path).is_ok_and(|bytes| bytes == super::sweep::PREVIOUS) {
        return None;
    }
    let read = || -> Result<usize, RecordError> {
        let recording = Recording::open(&path)?;
        let rows = recording.snapshots().collect::<Result<Vec<_>, _>>()?;
        Ok(rows.len())
    };
    match read() {
        Ok(1..) => None,
        Ok(0) => Some("the recording has no snapshot".into()),
        Err(error) => Some(format!("the recording cannot be read: {error}")),
    }
}

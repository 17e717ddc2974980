//! A daemon that watches processes that come and go: what it uses does not grow.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::served::Served;
use crate::churn::{Ended, Fifths, LOOK, Used, grown};
use crate::target::{CHURN, Start};

/// How many threads of the daemon read its history for requests and for its own clock at a time, at most.
const POOL: u64 = 4;

/// The kernel keeps so much of the name of a program (`proc_pid_comm(5)`).
const LONGEST_COMM: usize = 15;

/// What came of it.
#[derive(Debug)]
pub struct Churned {
    /// The least that was used in the second fifth of the time, and in the last.
    pub used: [Option<Used>; 2],
    /// What is wrong.
    pub wrong: Vec<String>,
}

/// Watches the processes of a program for a time, with about 50 of them that begin and end each second. What else runs
/// on the machine does not count.
///
/// # Errors
/// If the harness itself fails.
pub fn churned(isotherm: &Path, start: &Start, time: Duration) -> io::Result<Churned> {
    let (program, arguments) = start.0.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut parent = Command::new(program);
    let parent = parent.args(arguments).env(CHURN, "1").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut parent = Ended(parent);
    let name = Path::new(program).file_name().and_then(OsStr::to_str).ok_or(io::ErrorKind::InvalidInput)?;
    let served = Served::start(isotherm, &format!("{{name: ['^{}']}}", name.get(..LONGEST_COMM).unwrap_or(name)))?;
    let mut fifths = Fifths::begin(time);
    let mut wrong = vec![];
    loop {
        match fifths.look(served.pid()) {
            Ok(true) => std::thread::sleep(LOOK),
            Ok(false) => break,
            Err(_) => {
                wrong.push(format!("the daemon ended before its time: {}", served.log()));
                break;
            }
        }
    }
    drop(parent.0.stdin.take());
    if !parent.0.wait()?.success() {
        wrong.push("the parent of the targets failed".into());
    }
    let used = fifths.compared();
    wrong.extend(grown(used, POOL));
    Ok(Churned { used, wrong })
}

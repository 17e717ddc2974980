//! Processes come and go while isotherm watches them: what it uses does not grow.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_record::{Ending, Recording};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::target::{CHURN, ROUNDS, Start};

/// How many children there are at a time.
const CHILDREN: usize = 12;

/// The time from one look at isotherm to the next.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// The files that are open for each target: two pidfds, its directory in /proc, its pagemap.
const FILES: u64 = 4;

/// What memory may grow by, in KiB: the allocator's rest.
const SLACK_KIB: u64 = 8 << 10;

/// What isotherm uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Resident memory in KiB.
    pub rss_kib: u64,
    /// Open file descriptors.
    pub files: u64,
    /// Threads.
    pub threads: u64,
}

impl Used {
    /// What a process uses.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        // One that has ended and that nobody has waited for has no memory.
        if !status.contains("VmRSS:") {
            return Err(io::ErrorKind::NotFound.into());
        }
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            value.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
        };
        let files = fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64;
        Ok(Self { rss_kib: field("VmRSS:"), files, threads: field("Threads:") })
    }

    fn least(self, other: Self) -> Self {
        Self {
            rss_kib: self.rss_kib.min(other.rss_kib),
            files: self.files.min(other.files),
            threads: self.threads.min(other.threads),
        }
    }
}

/// The least that is used in each fifth of a time. What is not given back grows it. Processes that have just ended, and
/// that isotherm has not looked at since, do not: on a busy machine there are many.
pub(crate) struct Fifths {
    begun: Instant,
    time: Duration,
    least: [Option<Used>; 5],
}

impl Fifths {
    pub(crate) fn begin(time: Duration) -> Self {
        Self { begun: Instant::now(), time, least: [None; 5] }
    }

    /// Looks at a process. Returns false when the time is over.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn look(&mut self, pid: u32) -> io::Result<bool> {
        let fifth = (self.begun.elapsed().as_secs_f64() / self.time.as_secs_f64() * 5.0) as usize;
        let Some(least) = self.least.get_mut(fifth) else {
            return Ok(false);
        };
        let now = Used::of(pid)?;
        *least = Some(least.map_or(now, |least| least.least(now)));
        Ok(true)
    }

    /// What was used in the second fifth, and in the last.
    pub(crate) fn compared(&self) -> [Option<Used>; 2] {
        [self.least[1], self.least[4]]
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Churned {
    /// The least that was used in the second fifth of the time, and in the last.
    pub used: [Option<Used>; 2],
    /// How many targets the recording has.
    pub targets: usize,
    /// What is wrong.
    pub wrong: Vec<String>,
}

/// Is the parent whose children come and go, in a process with [`CHURN`] in its environment. It ends with its input.
///
/// # Errors
/// If a child cannot be started.
pub fn is_parent() -> io::Result<()> {
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut vec![]);
        let _ = sender.send(());
    });
    let mut children: Vec<Child> = vec![];
    for nth in 0_u64.. {
        // From 5 to 100 rounds of about 5 ms each.
        let rounds = 5 + nth * 37 % 96;
        let mut child = Command::new(std::env::current_exe()?);
        child.args(std::env::args_os().skip(1)).env(ROUNDS, rounds.to_string()).env_remove(CHURN);
        children.push(child.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        while children.len() >= CHILDREN {
            children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if ended.recv_timeout(Duration::from_millis(2)).is_ok() {
                for child in &mut children {
                    child.wait()?;
                }
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Records processes that come and go for a time, and looks at what isotherm uses.
///
/// # Errors
/// If the harness itself fails.
pub fn churn(isotherm: &Path, start: &Start, probe: &str, time: Duration) -> io::Result<Churned> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("churn.rec");
    let (program, arguments) = start.0.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut parent = Command::new(program);
    let parent = parent.args(arguments).env(CHURN, "1").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut parent = Ended(parent);
    let mut recorder = Command::new(isotherm);
    recorder.args(["record", "-q", "--children", "--probe", probe, "--sample", "20ms", "--aggr", "200ms", "--pid"]);
    recorder.arg(parent.0.id().to_string()).arg("-o").arg(&path).stdin(Stdio::null());
    let mut recorder = Ended(recorder.spawn()?);
    let pid = recorder.0.id();

    let mut fifths = Fifths::begin(time);
    while recorder.0.try_wait()?.is_none() && fifths.look(pid)? {
        std::thread::sleep(LOOK);
    }
    let mut wrong = vec![];
    if recorder.0.try_wait()?.is_some() {
        wrong.push("the recorder ended before its time".into());
    }
    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
    recorder.0.wait()?;
    drop(parent.0.stdin.take());
    if !parent.0.wait()?.success() {
        wrong.push("the parent of the targets failed".into());
    }
    let used = fifths.compared();
    wrong.extend(grown(used, 0));
    let targets = match targets(&path) {
        Ok((Ending::Whole, targets)) => targets,
        Ok((ending, targets)) => {
            wrong.push(format!("the recording ends with {ending:?}"));
            targets
        }
        Err(error) => {
            wrong.push(format!("the recording cannot be read: {error}"));
            0
        }
    };
    Ok(Churned { used, targets, wrong })
}

/// What has grown. There may be `spare` more threads: those of a pool, which begin and end as they are needed.
pub(crate) fn grown(used: [Option<Used>; 2], spare: u64) -> Vec<String> {
    let [Some(before), Some(after)] = used else {
        return vec!["there was no look at isotherm in the second fifth of the time, or in the last".into()];
    };
    let mut grown = vec![];
    if after.rss_kib > before.rss_kib + before.rss_kib / 5 + SLACK_KIB {
        grown.push(format!("memory grew from {} to {} KiB", before.rss_kib, after.rss_kib));
    }
    // All children may be watched now, and none before.
    if after.files > before.files + before.files / 5 + FILES * CHILDREN as u64 {
        grown.push(format!("{} files were open, and then {}", before.files, after.files));
    }
    if after.threads > before.threads + spare {
        grown.push(format!("there were {} threads, and then {}", before.threads, after.threads));
    }
    grown
}

/// How a recording ends, and the number of its targets.
fn targets(path: &Path) -> Result<(Ending, usize), isotherm_record::RecordError> {
    let recording = Recording::open(path)?;
    let mut targets = std::collections::HashSet::new();
    for snapshot in recording.snapshots() {
        targets.extend(snapshot?.snapshot.targets.iter().map(|target| target.id));
    }
    Ok((recording.ending(), targets.len()))
}

/// A process that is killed when this is dropped.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_found() {
        let before = Used { rss_kib: 20 << 10, files: 60, threads: 4 };
        let grown = |after, spare| super::grown([Some(before), Some(after)], spare);
        assert_eq!(grown(before, 0), [""; 0]);
        assert_eq!(grown(Used { rss_kib: 40 << 10, ..before }, 0).len(), 1);
        assert_eq!(grown(Used { files: 121, ..before }, 0).len(), 1);
        assert_eq!(grown(Used { threads: 5, ..before }, 0).len(), 1);
        assert_eq!(grown(Used { threads: 5, ..before }, 1), [""; 0], "a pool may have as many");
        assert_eq!(super::grown([Some(before), None], 0).len(), 1, "it ended too early to tell");
        assert_eq!(grown(Used { threads: 6, ..before }, 1).len(), 1);
    }
}

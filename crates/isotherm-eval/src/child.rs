//! A process that the evaluation starts: its output, its end, and what it took.

use std::cell::Cell;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::EvalError;

/// How much of what a process writes is kept: the end.
const KEPT: usize = 64 << 10;

/// How long output is waited for after the end of a process. A process of another group may hold it open.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(1);

/// A running process, the leader of a group of its own. The group is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: u32,
    ended: Receiver<Ended>,
    output: Arc<Mutex<Vec<u8>>>,
    output_ended: Receiver<()>,
    /// Whether its group was killed. The number of a group may be given to another one later.
    is_killed: Cell<bool>,
}

/// The end of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) at: Instant,
    pub(crate) status: ExitStatus,
    pub(crate) usage: Usage,
}

/// What all processes took that this one has started and that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) major_faults: u64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Self::default() };
        let time =
            |time: TimeVal| Duration::new(time.tv_sec().unsigned_abs(), (time.tv_usec().unsigned_abs() * 1000) as u32);
        let cpu = time(usage.user_time()) + time(usage.system_time());
        Self { cpu, major_faults: usage.major_page_faults().unsigned_abs() }
    }

    /// What came after `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        let cpu = self.cpu.saturating_sub(before.cpu);
        Self { cpu, major_faults: self.major_faults.saturating_sub(before.major_faults) }
    }
}

impl Child {
    /// Starts a command without input. `what` names it in messages.
    pub(crate) fn start(mut command: Command, what: &str) -> Result<Self, EvalError> {
        let failed = || EvalError::system(format!("{what} cannot be started"));
        let (mut reader, writer) = std::io::pipe().map_err(failed())?;
        let errors = writer.try_clone().map_err(failed())?;
        command.stdin(Stdio::null()).stdout(writer).stderr(errors).process_group(0);
        let mut child = command.spawn().map_err(failed())?;
        // The ends of the pipe that it holds.
        drop(command);
        let pid = child.id();
        let (end, ended) = channel();
        thread::spawn(move || {
            if let Ok(status) = child.wait() {
                let _ = end.send(Ended { at: Instant::now(), status, usage: Usage::now() });
            }
        });
        let output = Arc::new(Mutex::new(Vec::new()));
        let (end, output_ended) = channel();
        let kept = Arc::clone(&output);
        thread::spawn(move || {
            let mut chunk = vec![0; 1 << 14];
            while let Ok(read @ 1..) = reader.read(&mut chunk) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&chunk[..read]);
                let surplus = kept.len().saturating_sub(KEPT);
                kept.drain(..surplus);
            }
            let _ = end.send(());
        });
        Ok(Self { pid, ended, output, output_ended, is_killed: Cell::new(false) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Its end, if that comes within `time`. An error if nothing is known of it.
    pub(crate) fn wait(&self, time: Duration) -> Result<Option<Ended>, EvalError> {
        match self.ended.recv_timeout(time) {
            Ok(ended) => Ok(Some(ended)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(EvalError::Failed("a process cannot be waited for".into())),
        }
    }

    /// Asks it to end, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        if let Some(pid) = self.leader() {
            let _ = kill_process(pid, Signal::INT);
        }
    }

    /// Kills what is left of its group.
    pub(crate) fn kill_group(&self) {
        if let Some(pid) = self.leader().filter(|_| !self.is_killed.replace(true)) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// The end of what it has written.
    pub(crate) fn output(&self) -> String {
        let _ = self.output_ended.recv_timeout(OUTPUT_PATIENCE);
        String::from_utf8_lossy(&self.output.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    fn leader(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.pid).ok()?)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill_group();
    }
}

/// The last lines of what a process has written, for a message.
pub(crate) fn last_lines(output: &str) -> String {
    const LINES: usize = 5;
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("; ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Child::start(command, "sh").unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_end_of_the_output_is_kept_and_the_status_is_known() {
        let child = shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo bad >&2; exit 3");
        let ended = child.wait(LONG).unwrap().unwrap();
        assert_eq!(ended.status.code(), Some(3));
        let output = child.output();
        assert!(output.len() <= KEPT && output.ends_with("line 19999\nbad\n"), "{}", output.len());
        assert_eq!(last_lines("a\nb\n\nc\nd\ne\nf\n"), "b; c; d; e; f");
    }

    #[test]
    fn what_a_command_leaves_behind_is_killed_with_its_group() {
        let child = shell("sleep 1000 & echo $!");
        child.wait(LONG).unwrap().unwrap();
        child.kill_group();
        let left: i32 = child.output().trim().parse().unwrap();
        let start = Instant::now();
        // A zombie stays until its new parent reaps it.
        let is_alive = || {
            let state = isotherm_kernel::stat_field(std::path::Path::new("/proc"), left.unsigned_abs(), 3);
            state.is_some_and(|state| state != "Z")
        };
        while is_alive() && start.elapsed() < LONG {
            thread::yield_now();
        }
        assert!(!is_alive());
    }

    #[test]
    fn a_command_that_does_not_exist_is_an_error() {
        let error = Child::start(Command::new("/no/such/program"), "the program").unwrap_err();
        assert!(error.to_string().contains("the program cannot be started"));
    }
}

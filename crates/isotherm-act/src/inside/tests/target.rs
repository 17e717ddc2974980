//! The processes in which the tests act. Each is this test binary, started again to run one of the
//! [roles](super::roles) on its main thread.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use isotherm_core::{AddrRange, TargetId};
use isotherm_kernel::Process;
use rustix::process::{Pid, Signal, kill_process};

/// The environment variable with the process ID of the test and the role of the target.
pub const ROLE: &str = "ISOTHERM_TEST_INSIDE";
/// The prefix of an answer. The output of the test harness does not have it.
pub const ANSWER: &str = "@ ";
/// The size of the memory that a target maps, in bytes.
pub const SIZE: usize = 8 << 20;

/// A process in which the tests act.
pub struct Target {
    child: Child,
    /// The standard input of the process. `None` after [`end`](Self::end).
    input: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// The identity of the process.
    pub id: TargetId,
    /// Memory of the process, mapped and written to.
    pub memory: AddrRange,
}

impl Target {
    /// Starts a process with this role.
    pub fn start(role: &str) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), role)
    }

    /// Starts a process with this role by a command that ends with exec.
    pub fn start_by(mut command: Command, role: &str) -> Self {
        let mut child = command
            .env(ROLE, format!("{} {role}", std::process::id()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let memory = AddrRange::new(0, 1).unwrap();
        let id = TargetId::PhysicalMemory;
        let mut target = Self { child, input, answers, id, memory };
        let start: u64 = target.answer().parse().unwrap();
        target.id = Process::open(target.pid()).unwrap().id();
        target.memory = AddrRange::new(start, start + SIZE as u64).unwrap();
        target
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the next answer of the process.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.answers.read_line(&mut line).unwrap(), 0, "the target ended: {:?}", self.child.wait());
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.trim().to_owned();
            }
        }
    }

    /// Writes a line to the input of the process. This does nothing if the process has ended.
    pub fn send(&mut self, line: &str) {
        let _ = writeln!(self.input.as_mut().unwrap(), "{line}");
    }

    /// Closes the input of the process and waits for its end. Returns its last answer.
    pub fn end(&mut self) -> Counts {
        drop(self.input.take());
        let answer = self.answer();
        assert!(self.child.wait().unwrap().success());
        Counts(answer)
    }

    /// Kills the process and waits until it has ended.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A field of `/proc/PID/status`.
    pub fn status(&self, field: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default().trim().to_owned()
    }

    /// The flags of its memory, as in `/proc/PID/smaps`.
    ///
    /// # Panics
    /// Panics if the memory consists of several mappings.
    pub fn flags(&self) -> Vec<String> {
        self.smaps("VmFlags:").split_whitespace().map(str::to_owned).collect()
    }

    /// The value of this field of `/proc/PID/smaps` for its memory, in KiB.
    pub fn kib(&self, field: &str) -> u64 {
        self.smaps(field).trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn smaps(&self, field: &str) -> String {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", self.pid())).unwrap();
        let mut within = false;
        for line in smaps.lines() {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            if let Some((start, end)) = range
                && let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
            {
                within = start <= self.memory.start() && self.memory.end() <= end;
            } else if let Some(value) = line.strip_prefix(field).filter(|_| within) {
                return value.to_owned();
            }
        }
        panic!("the memory of the target consists of several mappings: {smaps}")
    }

    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags().iter().any(|have| have == flag)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last answer of a target: counts, each with a name.
#[derive(Debug)]
pub struct Counts(String);

impl Counts {
    pub fn of(&self, name: &str) -> u64 {
        let found = self.0.split(' ').find_map(|count| count.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
        found.unwrap_or_else(|| panic!("{name} in {self:?}"))
    }
}

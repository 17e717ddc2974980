//! Targets: this very test binary, started again to run nothing but what [`play`](super::play) has for it, on its main
//! thread.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use isotherm_core::{AddrRange, TargetId};
use isotherm_kernel::Process;
use rustix::process::{Pid, Signal, kill_process};

/// Set in the environment of a target: what it does.
pub const ROLE: &str = "ISOTHERM_TEST_INSIDE";
pub const ANSWER: &str = "@ ";
/// How much memory a target maps.
pub const SIZE: usize = 8 << 20;

/// A process to act in.
pub struct Target {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Its identity.
    pub id: TargetId,
    /// Memory of it, mapped and written to.
    pub memory: AddrRange,
}

impl Target {
    /// Starts a process that does this.
    pub fn start(role: &str) -> Self {
        Self::of(Command::new(std::env::current_exe().unwrap()), role)
    }

    /// Starts it by way of a command that ends in exec.
    pub fn of(mut command: Command, role: &str) -> Self {
        let mut child = command
            .env(ROLE, format!("{} {role}", std::process::id()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let memory = AddrRange::new(0, 1).unwrap();
        let id = TargetId::PhysicalMemory;
        let mut target = Self { child, orders, answers, id, memory };
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

    /// Its next answer.
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

    /// Writes a line to it, if it is still there.
    pub fn tell(&mut self, line: &str) {
        let _ = writeln!(self.orders.as_mut().unwrap(), "{line}");
    }

    /// Ends its input, on which it gives its last answer: what it has counted, by name.
    pub fn end(&mut self) -> Counts {
        drop(self.orders.take());
        let answer = self.answer();
        assert!(self.child.wait().unwrap().success());
        Counts(answer)
    }

    /// Kills it and waits until it has ended.
    pub fn end_at_once(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A field of `/proc/PID/status`.
    pub fn status(&self, field: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default().trim().to_owned()
    }

    /// The flags of its memory, as in `/proc/PID/smaps`, if all of it has the same.
    pub fn flags(&self) -> Vec<String> {
        self.smaps("VmFlags:").split_whitespace().map(str::to_owned).collect()
    }

    /// So much of its memory, in KiB, as this field of `/proc/PID/smaps` says.
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
        panic!("its memory is in several mappings: {smaps}")
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

/// What a target has counted.
#[derive(Debug)]
pub struct Counts(String);

impl Counts {
    pub fn of(&self, name: &str) -> u64 {
        let found = self.0.split(' ').find_map(|count| count.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
        found.unwrap_or_else(|| panic!("{name} in {self:?}"))
    }
}

//! Runs a command under ptrace(2), and lets one of its system calls fail.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{Effect, Fault, Kind};

/// A program, its arguments and what else belongs to its start.
#[derive(Debug)]
pub struct Run<'a> {
    /// The program.
    pub program: &'a OsStr,
    /// Its arguments.
    pub arguments: &'a [String],
    /// Whether its standard input is a terminal, which becomes its own.
    pub terminal: bool,
    /// The call that fails. `None` counts only.
    pub fault: Option<Fault>,
    /// The process is killed after this time.
    pub limit: Duration,
}

/// What a run came to.
#[derive(Debug)]
pub struct Traced {
    /// The exit status, or the signal that ended it.
    pub end: Result<i32, Signal>,
    /// What its threads, and those of a process that it forked, waited for when they were killed because they had not
    /// ended in time.
    pub hung: Option<String>,
    /// The number of calls of each kind.
    pub calls: BTreeMap<Kind, u64>,
    /// The call that failed, with the file that it was about. `None` if there were fewer calls.
    pub failed: Option<String>,
}

/// Whether calls can be made to fail here. An error is the reason to skip a test.
///
/// # Errors
/// On another architecture than x86-64, whose registers the tracer knows.
pub fn available() -> Result<(), &'static str> {
    if cfg!(target_arch = "x86_64") { Ok(()) } else { Err("faults are injected on x86-64 only") }
}

impl Run<'_> {
    /// Runs it. `prepare` sets the directory, the environment and the streams.
    ///
    /// The calls before `main`, which are those of the dynamic loader and of Rust's runtime, neither count nor fail.
    ///
    /// # Errors
    /// If it cannot be started or traced.
    pub fn run(&self, prepare: impl FnOnce(&mut Command) + Send) -> io::Result<Traced> {
        // Only the thread that traces may wait, and it waits for all children of its own.
        thread::scope(|scope| {
            let traced = scope.spawn(|| self.trace(prepare)).join();
            traced.unwrap_or_else(|_| Err(io::Error::other("the tracer panicked")))
        })
    }

    fn trace(&self, prepare: impl FnOnce(&mut Command)) -> io::Result<Traced> {
        // The shell stops until it is traced, and becomes the program then.
        let mut command = Command::new(if self.terminal { "setsid" } else { "sh" });
        if self.terminal {
            command.args(["--ctty", "sh"]);
        }
        command.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).arg(self.program).args(self.arguments);
        prepare(&mut command);
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        waitpid(pid, Some(WaitPidFlag::WUNTRACED))?;
        ptrace::seize(pid, options())?;
        kill(pid, Signal::SIGCONT)?;
        let (ended, end) = channel::<()>();
        let mut tracer = Tracer::new(pid, self.fault);
        let traced = Arc::clone(&tracer.traced);
        thread::scope(|scope| {
            let watchdog = scope.spawn(move || {
                let late = end.recv_timeout(self.limit) == Err(RecvTimeoutError::Timeout);
                let traced = traced.lock().unwrap_or_else(PoisonError::into_inner);
                let hung = late.then(|| traced.iter().map(waits_for).collect());
                // Each thread stands for its process.
                for &thread in traced.iter().filter(|_| late) {
                    let _ = kill(thread, Signal::SIGKILL);
                }
                hung
            });
            let end = tracer.follow();
            drop(ended);
            let hung = watchdog.join().unwrap_or_default();
            Ok(Traced { end: end?, hung, calls: tracer.calls, failed: tracer.failed })
        })
    }
}

fn options() -> Options {
    Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEEXIT
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_EXITKILL
}

struct Tracer {
    /// The process. While its helper runs, which may want to trace it, it is not traced.
    pid: Pid,
    /// The threads of the process that are let go at their next stop.
    leaving: BTreeSet<Pid>,
    /// The helper, while it waits until they are let go.
    helper: Option<Pid>,
    fault: Option<Fault>,
    /// Whether `main` runs, and not the loader or the runtime before it.
    counts: bool,
    calls: BTreeMap<Kind, u64>,
    failed: Option<String>,
    /// The threads that are traced.
    traced: Arc<Mutex<BTreeSet<Pid>>>,
    /// The threads that are within a call, and whether that call is to fail.
    within: HashMap<Pid, bool>,
}

impl Tracer {
    fn new(pid: Pid, fault: Option<Fault>) -> Self {
        let (calls, within) = (BTreeMap::new(), HashMap::new());
        let traced = Arc::new(Mutex::new(BTreeSet::from([pid])));
        let leaving = BTreeSet::new();
        Self { pid, leaving, helper: None, fault, counts: false, calls, failed: None, traced, within }
    }

    fn traced(&self) -> MutexGuard<'_, BTreeSet<Pid>> {
        self.traced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the process and its helpers to their end. What executes another program is let go.
    fn follow(&mut self) -> io::Result<Result<i32, Signal>> {
        let mut end = None;
        loop {
            let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
            let status = match waitpid(None::<Pid>, Some(flags)) {
                Err(Errno::ECHILD) => return end.ok_or_else(|| Errno::ECHILD.into()),
                status => status?,
            };
            let (thread, signal) = match status {
                WaitStatus::Exited(thread, status) => {
                    self.ended(thread)?;
                    end = end.or((thread == self.pid).then_some(Ok(status)));
                    continue;
                }
                WaitStatus::Signaled(thread, signal, _) => {
                    self.ended(thread)?;
                    end = end.or((thread == self.pid).then_some(Err(signal)));
                    continue;
                }
                WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_EXEC) if is_helper(thread) => {
                    self.release_for(thread)?;
                    continue;
                }
                WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_EXEC) if thread != self.pid => {
                    self.traced().remove(&thread);
                    settle(ptrace::detach(thread, None))?;
                    continue;
                }
                WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_EXIT) if !self.is_of_process(thread) => {
                    self.take_back()?;
                    (thread, None)
                }
                WaitStatus::PtraceSyscall(thread) => {
                    settle(self.call(thread))?;
                    (thread, None)
                }
                WaitStatus::PtraceEvent(thread, _, _) => (thread, None),
                WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
                _ => continue,
            };
            if self.leaving.remove(&thread) && !self.within.get(&thread).is_some_and(|fails| *fails) {
                self.within.remove(&thread);
                settle(ptrace::detach(thread, signal))?;
                self.start_helper()?;
                continue;
            }
            self.traced().insert(thread);
            settle(ptrace::syscall(thread, signal))?;
        }
    }

    /// Whether a thread is one of the process, and not of what it has forked.
    fn is_of_process(&self, thread: Pid) -> bool {
        Path::new(&format!("/proc/{}/task/{thread}", self.pid)).exists()
    }

    fn threads(&self) -> Vec<Pid> {
        let names = std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        names.filter_map(|name| Some(Pid::from_raw(name.file_name().to_str()?.parse().ok()?))).collect()
    }

    /// A thread or a process has ended.
    fn ended(&mut self, thread: Pid) -> nix::Result<()> {
        self.traced().remove(&thread);
        self.leaving.remove(&thread);
        self.start_helper()
    }

    /// Lets the process go, because its helper may trace it. The helper, which is at its beginning, waits for that.
    fn release_for(&mut self, helper: Pid) -> nix::Result<()> {
        for thread in self.threads() {
            self.leaving.insert(thread);
            settle(ptrace::interrupt(thread))?;
        }
        self.helper = Some(helper);
        self.start_helper()
    }

    /// Starts the helper, if there is one that waits and the process was let go.
    fn start_helper(&mut self) -> nix::Result<()> {
        match self.helper.take_if(|_| self.leaving.is_empty()) {
            Some(helper) => settle(ptrace::syscall(helper, None)),
            None => Ok(()),
        }
    }

    /// Traces the process again.
    fn take_back(&mut self) -> nix::Result<()> {
        for thread in self.threads() {
            self.leaving.remove(&thread);
            match ptrace::seize(thread, options()) {
                Ok(()) => settle(ptrace::interrupt(thread))?,
                // It is still traced, or it ends.
                Err(Errno::EPERM | Errno::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A thread begins a call or ends it.
    #[cfg(target_arch = "x86_64")]
    fn call(&mut self, thread: Pid) -> nix::Result<()> {
        let mut registers = ptrace::getregs(thread)?;
        if let Some(fails) = self.within.remove(&thread) {
            if let (true, Some(Fault { effect: Effect::Error(error), .. })) = (fails, self.fault) {
                registers.rax = (-i64::from(error as i32)).cast_unsigned();
                ptrace::setregs(thread, registers)?;
            }
            return Ok(());
        }
        let number = registers.orig_rax.cast_signed();
        // The last call of Rust's runtime before `main` gives the main thread a stack for signals.
        self.counts |= number == libc::SYS_sigaltstack && registers.rdi != 0;
        let mut fails = false;
        if let (true, Some(kind)) = (self.counts, Kind::of(number)) {
            let nth = self.calls.entry(kind).or_default();
            *nth += 1;
            fails = self.fault.is_some_and(|fault| (fault.kind, fault.nth) == (kind, *nth));
        }
        if fails {
            self.failed = Some(describe(thread, &registers));
            if self.fault.is_some_and(|fault| fault.effect == Effect::Kill) {
                return kill(self.pid, Signal::SIGKILL);
            }
            // No call has this number, so that the kernel executes none.
            registers.orig_rax = u64::MAX;
            ptrace::setregs(thread, registers)?;
        }
        self.within.insert(thread, fails);
        Ok(())
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn call(&mut self, _: Pid) -> nix::Result<()> {
        let _ = (&self.fault, &self.counts, &self.calls, &self.failed, &self.within);
        Err(Errno::ENOSYS)
    }
}

/// Whether a process executes the program that makes calls inside targets.
fn is_helper(process: Pid) -> bool {
    let program = std::fs::read_link(format!("/proc/{process}/exe"));
    program.is_ok_and(|program| program.to_string_lossy().starts_with("/memfd:isotherm-inside"))
}

/// A thread, its state and what it waits for in the kernel.
fn waits_for(thread: &Pid) -> String {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{thread}/{name}")).unwrap_or_default();
    let state =
        read("status").lines().find_map(|line| line.strip_prefix("State:").map(|state| state.trim().to_owned()));
    let (name, call) = (read("comm"), read("syscall"));
    // Only root sees where in the kernel it is.
    let stack = read("stack");
    let stack: Vec<&str> = stack.lines().filter_map(|line| line.split_whitespace().nth(1)).take(6).collect();
    let state = state.unwrap_or_default();
    format!("{thread} {} is {state} in {} ({}); ", name.trim(), call.trim(), stack.join(" < "))
}

/// A thread that was killed meanwhile is no error.
fn settle(result: nix::Result<()>) -> nix::Result<()> {
    match result {
        Err(Errno::ESRCH) => Ok(()),
        result => result,
    }
}

/// The call that a thread is about to make, in words.
#[cfg(target_arch = "x86_64")]
fn describe(thread: Pid, registers: &libc::user_regs_struct) -> String {
    let file = || {
        let path = std::fs::read_link(format!("/proc/{thread}/fd/{}", registers.rdi));
        path.map_or_else(|_| "?".into(), |path| path.display().to_string())
    };
    match registers.orig_rax.cast_signed() {
        libc::SYS_open => format!("open {}", text(thread, registers.rdi)),
        libc::SYS_openat | libc::SYS_openat2 => format!("open {}", text(thread, registers.rsi)),
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_preadv => format!("read {}", file()),
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_pwritev => format!("write {}", file()),
        libc::SYS_mmap => format!("mmap of {} bytes", registers.rsi),
        libc::SYS_ptrace => format!("ptrace request {:#x}", registers.rdi),
        libc::SYS_bpf => format!("bpf command {}", registers.rdi),
        libc::SYS_madvise | libc::SYS_process_madvise => "madvise".into(),
        _ => "clone".into(),
    }
}

/// A text in the memory of a thread, up to its end or 256 bytes.
#[cfg(target_arch = "x86_64")]
fn text(thread: Pid, address: u64) -> String {
    let words = (0..32).map_while(|word| ptrace::read(thread, (address + 8 * word) as ptrace::AddressType).ok());
    let bytes = words.flat_map(i64::to_ne_bytes).take_while(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

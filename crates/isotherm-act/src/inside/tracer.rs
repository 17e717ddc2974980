//! One thread of another process is stopped, makes a few system calls, and goes on as if nothing had happened.
//!
//! This runs in the helper, a fork of a process that may have threads: nothing here allocates or takes a lock.
//!
//! In the order in which things happen: the thread is seized and interrupted; its registers are read and, in a frame on
//! its
//! stack, written down; it is given those of a call; it is run into the call and out of it; the next call follows; its
//! own
//! registers are given back, and it is let go. If a signal comes in between, its own registers are given back first,
//! the signal
//! is delivered as it would have been, and all begins again. If the tracer vanishes at any point, the frame leads the
//! thread back ([`frame`](super::frame)).

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::{Errno, pread, pwrite};

use super::frame::{self, EINTR, ERESTART_RESTARTBLOCK, ERESTARTNOHAND, ERESTARTNOINTR, ERESTARTSYS};
use super::gadget::{CALL, RESTORERS};
use super::message::{Refused, Reply, Request};
use super::ptrace::{Registers, Tracee, VECTOR_ROOM, Waited};
use super::status::why_not;
use super::step::{Step, pass};

/// The code segment of 64-bit programs.
const CODE_64: u64 = 0x33;
/// The direction flag and the trap flag.
const DIRECTION_AND_TRAP: u64 = 1 << 10 | 1 << 8;
const PTRACE_EVENT_STOP: i32 = 128;

/// A system call takes no longer than this; then it is looked whether the thread was kept from making it.
const LONGEST_CALL: Duration = Duration::from_secs(10);
/// After that, for so long.
const LAST_CHANCE: Duration = Duration::from_secs(1);
/// So long after a signal or a bad moment, the thread is interrupted again.
const PAUSE: Duration = Duration::from_micros(200);

/// Why the thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It was interrupted.
    Interrupted,
    /// This signal is about to be delivered.
    Signal(i32),
    /// It enters or leaves a system call.
    Call,
    /// Its process was stopped by a signal.
    Group,
}

/// How an attempt ended that did not fail: the thread is stopped, with its own registers.
enum Attempt {
    Done,
    /// To be begun again; this signal is to be delivered.
    Again(i32, Refused),
}

/// How all ends that does not end well.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The thread runs with its own registers, or is about to be stopped with these by whoever stops it.
    LetGo(Refused, i32),
    /// It is still held, and only the end of this process lets go of it.
    Held(Refused),
}

use End::{Held, LetGo};

/// The files of a process that is acted in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a> {
    /// `/proc/PID/mem`, of the address space that the request was made for.
    pub memory: BorrowedFd<'a>,
    /// `/proc/PID/status`.
    pub status: BorrowedFd<'a>,
}

/// Makes the calls of `request`, as many as it comes to.
pub(super) fn make_calls(
    request: &Request,
    files: Files<'_>,
    vector: &mut [u8; VECTOR_ROOM],
    reply: &mut Reply,
) -> Result<(), End> {
    let tracee = Tracee(request.pid as i32);
    if let Some(why) = why_not(files.status) {
        return Err(LetGo(why, 0));
    }
    tracee.seize().map_err(|errno| match errno {
        Errno::SRCH => LetGo(Refused::Gone, errno.raw_os_error()),
        errno => LetGo(Refused::NotPermitted, errno.raw_os_error()),
    })?;
    pass(request, Step::Seized);
    let mut tracer = Tracer { tracee, request, files, vector, reply, stopped_at: None };
    tracer.interrupt()?;
    let result = tracer.run();
    if let Some(since) = tracer.stopped_at {
        tracer.reply.stopped += since.elapsed().as_nanos() as u64;
    }
    result
}

struct Tracer<'a> {
    tracee: Tracee,
    request: &'a Request,
    files: Files<'a>,
    vector: &'a mut [u8; VECTOR_ROOM],
    reply: &'a mut Reply,
    stopped_at: Option<Instant>,
}

impl Tracer<'_> {
    fn run(&mut self) -> Result<(), End> {
        let began = Instant::now();
        let patience = Duration::from_nanos(self.request.patience);
        loop {
            // At first it may take as long as it takes to leave what cannot be interrupted.
            match self.wait(patience.saturating_sub(began.elapsed()).max(PAUSE * 50))? {
                Some(Stop::Interrupted) => {}
                Some(Stop::Signal(signal)) => {
                    self.go_on(signal)?;
                    continue;
                }
                Some(Stop::Group) => return self.let_go(0, Some(Refused::Stopped)),
                Some(Stop::Call) => {
                    self.go_on(0)?;
                    continue;
                }
                None => return Err(Held(Refused::Unresponsive)),
            }
            match self.attempt()? {
                Attempt::Done => return self.let_go(0, None),
                Attempt::Again(signal, why) if began.elapsed() >= patience => {
                    return self.let_go(signal, Some(why));
                }
                Attempt::Again(signal, _) => {
                    self.go_on(signal)?;
                    std::thread::sleep(PAUSE);
                    self.interrupt()?;
                }
            }
        }
    }

    /// The thread is stopped, with its own registers.
    fn attempt(&mut self) -> Result<Attempt, End> {
        pass(self.request, Step::Interrupted);
        let own = self.tracee.registers().map_err(|e| self.failed(e))?;
        if own.cs != CODE_64 {
            return self.refuse(Refused::Compatibility);
        }
        // It is this process now that traces and has stopped it.
        if let Some(why) = why_not(self.files.status).filter(|why| !matches!(why, Refused::Traced | Refused::Stopped)) {
            return self.refuse(why);
        }
        if !self.code_is_there() {
            return self.refuse(Refused::Exec);
        }
        if matches!(own.rax as i64, ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK)
            && frame::is_in_call(&own)
            && !self.reads(own.rip.wrapping_sub(2), &CALL[..2])
        {
            // A system call of 32 bits, made by a program of 64.
            return self.refuse(Refused::Compatibility);
        }
        if self.tracee.has_shadow_stack() {
            return self.refuse(Refused::ShadowStack);
        }
        if self.is_in_sequence(&own) {
            return Ok(Attempt::Again(0, Refused::Sequence));
        }
        let mut back = own;
        if begins_again(&own) {
            back.rax = ERESTARTNOHAND as u64;
        }
        let size = self.tracee.vector_registers(self.vector).map_err(|e| self.failed(e))?;
        let stack = self.request.stack_start.saturating_add(frame::room(size))..self.request.stack_end;
        if !stack.contains(&own.rsp) {
            return Ok(Attempt::Again(0, Refused::OtherStack));
        }
        let blocked = self.tracee.blocked_signals().map_err(|e| self.failed(e))?;
        let laid = self
            .vector
            .get_mut(..size + 4)
            .and_then(|image| Some((frame::lay(&back, blocked, image, self.request.restorer)?, image.len())));
        let Some((frame, length)) = laid else {
            return self.refuse(Refused::Failed);
        };
        if !self.writes(frame.at, &frame.context) || !self.writes(frame.vector_at, &self.vector[..length]) {
            return self.refuse(Refused::Exec);
        }
        pass(self.request, Step::FrameLaid);
        self.call_all(&back, frame.at)
    }

    /// From the first change of registers until they are given back.
    fn call_all(&mut self, back: &Registers, stack: u64) -> Result<Attempt, End> {
        let began = Instant::now();
        let longest = Duration::from_nanos(self.request.longest_stop);
        while let Some(range) = self.request.ranges[..self.request.count as usize].get(self.reply.done as usize) {
            let mut call = *back;
            call.rip = self.request.call;
            call.rsp = stack;
            call.rax = self.request.number;
            [call.rdi, call.rsi] = *range;
            call.rdx = self.request.third;
            // Not on the way out of a system call: nothing is begun again.
            call.orig_rax = u64::MAX;
            call.eflags &= !DIRECTION_AND_TRAP;
            self.tracee.set_registers(&call).map_err(|e| self.failed(e))?;
            pass(self.request, Step::Changed);
            for (step, before) in [(Step::Entered, true), (Step::Left, false)] {
                self.tracee.go_to_call().map_err(|e| self.failed(e))?;
                let stop = match self.wait(LONGEST_CALL)? {
                    None => {
                        // Frozen before it made the call, or the call takes very long.
                        self.interrupt()?;
                        self.wait(LAST_CHANCE)?
                    }
                    stop => stop,
                };
                match stop {
                    Some(Stop::Call) => pass(self.request, step),
                    // It has not come to the call yet, or has just left it and nothing is lost: its result is.
                    Some(stop) => return self.disturbed(stop, back),
                    // The frame leads it back, whenever it runs on.
                    None => return Err(Held(Refused::Unresponsive)),
                }
                if before {
                    continue;
                }
                let after = self.tracee.registers().map_err(|e| self.failed(e))?;
                self.reply.results[self.reply.done as usize] = after.rax as i64;
                self.reply.done += 1;
            }
            if began.elapsed() >= longest {
                break;
            }
        }
        self.tracee.set_registers(back).map_err(|e| self.failed(e))?;
        pass(self.request, Step::GivenBack);
        Ok(Attempt::Done)
    }

    /// Something came before the call: the thread gets its own registers back, and then what came.
    fn disturbed(&mut self, stop: Stop, back: &Registers) -> Result<Attempt, End> {
        let of_the_call = match stop {
            Stop::Signal(signal) => {
                // Signals of faults that a process sends have codes of 0 and below.
                matches!(
                    signal,
                    libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP | libc::SIGSYS
                ) && self.tracee.signal_code().is_ok_and(|code| code > 0)
            }
            _ => false,
        };
        self.tracee.set_registers(back).map_err(|e| self.failed(e))?;
        pass(self.request, Step::Disturbed);
        match stop {
            _ if of_the_call => self.refuse(Refused::Failed),
            Stop::Group => self.refuse(Refused::Stopped),
            Stop::Signal(signal) => Ok(Attempt::Again(signal, Refused::Signals)),
            Stop::Interrupted | Stop::Call => Ok(Attempt::Again(0, Refused::Signals)),
        }
    }

    fn interrupt(&mut self) -> Result<(), End> {
        self.tracee.interrupt().map_err(|e| self.failed(e))
    }

    fn go_on(&mut self, signal: i32) -> Result<(), End> {
        self.note_running();
        self.tracee.go_on(signal).map_err(|e| self.failed(e))
    }

    /// The thread is stopped, with its own registers.
    fn let_go(&mut self, signal: i32, why: Option<Refused>) -> Result<(), End> {
        self.tracee.detach(signal).map_err(|e| self.failed(e))?;
        self.note_running();
        why.map_or(Ok(()), |why| Err(LetGo(why, 0)))
    }

    /// Lets go, and says why.
    fn refuse(&mut self, why: Refused) -> Result<Attempt, End> {
        self.let_go(0, None)?;
        Err(LetGo(why, 0))
    }

    fn note_running(&mut self) {
        if let Some(since) = self.stopped_at.take() {
            self.reply.stopped += since.elapsed().as_nanos() as u64;
        }
    }

    /// A request to the kernel fails because the thread was killed; then it is waited for, so that its parent learns of
    /// that.
    fn failed(&self, errno: Errno) -> End {
        if errno != Errno::SRCH {
            return Held(Refused::Failed);
        }
        let began = Instant::now();
        while began.elapsed() < LAST_CHANCE {
            match self.tracee.wait() {
                Waited::Gone => return LetGo(Refused::Gone, errno.raw_os_error()),
                _ => std::thread::sleep(PAUSE),
            }
        }
        Held(Refused::Gone)
    }

    /// Waits until the thread stops, for so long.
    fn wait(&mut self, longest: Duration) -> Result<Option<Stop>, End> {
        let began = Instant::now();
        let mut looks = 0;
        loop {
            match self.tracee.wait() {
                Waited::Gone => return Err(LetGo(Refused::Gone, libc::ESRCH)),
                Waited::Stopped(status) => {
                    self.stopped_at.get_or_insert_with(Instant::now);
                    return Ok(Some(why_stopped(status)));
                }
                Waited::Nothing if began.elapsed() >= longest => return Ok(None),
                // What it does takes microseconds, if nothing else keeps the processor busy.
                Waited::Nothing if looks < 50 => std::thread::yield_now(),
                Waited::Nothing if looks < 250 => std::thread::sleep(Duration::from_micros(20)),
                Waited::Nothing => std::thread::sleep(Duration::from_millis(1)),
            }
            looks += 1;
        }
    }

    /// Whether the code is where it was found, in this address space: not if exec was called since.
    fn code_is_there(&self) -> bool {
        let restorer = RESTORERS.get(self.request.restorer_kind as usize);
        self.reads(self.request.call, CALL) && restorer.is_some_and(|code| self.reads(self.request.restorer, code))
    }

    /// Whether the thread is inside a restartable sequence: other registers would keep the kernel from restarting it.
    fn is_in_sequence(&self, own: &Registers) -> bool {
        let Ok(configuration) = self.tracee.restartable_sequences() else {
            // Before Linux 5.13: in a system call it is in none.
            return !frame::is_in_call(own);
        };
        if configuration.pointer == 0 {
            return false;
        }
        // `rseq_cs` of `struct rseq`, then `start_ip` and `post_commit_offset` of `struct rseq_cs`; see `linux/rseq.h`.
        let Some([sequence]) = self.words(configuration.pointer + 8) else {
            return true;
        };
        sequence != 0
            && self.words(sequence.wrapping_add(8)).is_none_or(|[start, length]| own.rip.wrapping_sub(start) < length)
    }

    fn words<const N: usize>(&self, at: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        for (word, i) in words.iter_mut().zip(0..) {
            let mut bytes = [0; 8];
            (pread(self.files.memory, &mut bytes, at + i * 8) == Ok(8)).then_some(())?;
            *word = u64::from_ne_bytes(bytes);
        }
        Some(words)
    }

    fn reads(&self, at: u64, expected: &[u8]) -> bool {
        let mut room = [0; 16];
        let bytes = &mut room[..expected.len().min(16)];
        let told = pread(self.files.memory, &mut *bytes, at);
        told == Ok(expected.len()) && bytes == expected
    }

    fn writes(&self, at: u64, bytes: &[u8]) -> bool {
        pwrite(self.files.memory, bytes, at) == Ok(bytes.len())
    }
}

fn why_stopped(status: i32) -> Stop {
    let signal = libc::WSTOPSIG(status);
    match (status >> 16, signal) {
        (PTRACE_EVENT_STOP, libc::SIGTRAP) => Stop::Interrupted,
        (PTRACE_EVENT_STOP, _) => Stop::Group,
        (0, signal) if signal == libc::SIGTRAP | 0x80 => Stop::Call,
        (0, signal) => Stop::Signal(signal),
        // No other events are asked for.
        _ => Stop::Call,
    }
}

/// Whether the thread was in a system call that ends with `EINTR` when a thread is stopped, though without a limit of
/// time,
/// so that it may begin again: unless a signal handler is run, nobody can tell.
///
/// `signal(7)`, "Interruption of system calls and library functions by stop signals", lists them.
fn begins_again(own: &Registers) -> bool {
    if own.rax as i64 != EINTR || !frame::is_in_call(own) {
        return false;
    }
    match i64::from(own.orig_rax as i32) {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => own.r10 as i32 == -1,
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => own.r10 == 0,
        libc::SYS_semop => true,
        libc::SYS_rt_sigtimedwait => own.rdx == 0,
        libc::SYS_io_getevents => own.r8 == 0,
        _ => false,
    }
}

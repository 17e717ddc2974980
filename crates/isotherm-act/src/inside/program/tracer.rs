//! The tracer: stops one thread of another process, makes system calls in it, and lets it continue.
//!
//! 1. The tracer seizes the thread and interrupts it.
//! 2. It reads the registers and writes them to a frame on the stack of the thread.
//! 3. It sets the registers for a call, and runs the thread to the entry and to the exit of the call. This is repeated
//!    for each call.
//! 4. It restores the original registers and detaches the thread.
//!
//! If a signal arrives before a call, the tracer restores the original registers, delivers the signal, and begins again
//! with an interrupt. If the tracer dies at any point, the frame restores the registers ([`frame`](super::frame)).

use core::time::Duration;

use super::code::{CALL, RESTORERS};
use super::frame::{self, EINTR, ERESTART_RESTARTBLOCK, ERESTARTNOHAND, ERESTARTNOINTR, ERESTARTSYS};
use super::message::{Refused, Reply, Request};
use super::ptrace::{Registers, Tracee, VECTOR_BUFFER, Waited};
use super::status::why_not;
use super::step::{Step, completed};
use super::sys::{Errno, Instant, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP, pread, pwrite, sleep, yield_now};

/// The code segment of 64-bit programs.
const CODE_64: u64 = 0x33;
/// The direction flag and the trap flag.
const DIRECTION_AND_TRAP: u64 = 1 << 10 | 1 << 8;
const PTRACE_EVENT_STOP: i32 = 128;

// The numbers of system calls, `asm/unistd_64.h`.
const SYS_EPOLL_WAIT: i64 = 232;
const SYS_EPOLL_PWAIT: i64 = 281;
const SYS_EPOLL_PWAIT2: i64 = 441;
const SYS_SEMTIMEDOP: i64 = 220;
const SYS_SEMOP: i64 = 65;
const SYS_RT_SIGTIMEDWAIT: i64 = 128;
const SYS_IO_GETEVENTS: i64 = 208;

/// The maximum time between the entry and the exit of a system call. After it, the thread is interrupted.
const CALL_TIMEOUT: Duration = Duration::from_millis(400);
/// The maximum time to wait after that interrupt, and for the end of a killed thread.
const FINAL_TIMEOUT: Duration = Duration::from_millis(100);
/// The time between two attempts.
const PAUSE: Duration = Duration::from_micros(200);

/// Why the thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The tracer interrupted it.
    Interrupted,
    /// This signal is about to be delivered.
    Signal(i32),
    /// It enters or leaves a system call.
    Call,
    /// A signal stopped the whole process.
    Group,
}

/// The result of an attempt that did not fail. The thread is stopped and has its original registers.
enum Attempt {
    /// The calls were made.
    Done,
    /// The attempt must be repeated, for this reason. The signal must be delivered first, unless it is 0.
    Again(i32, Refused),
}

/// Why no further call is made, and the state of the thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// The thread is not traced and has its original registers. The number is the error number, or 0.
    Detached(Refused, i32),
    /// The thread is still traced. Only the end of this process detaches it.
    Attached(Refused),
}

use Failure::{Attached, Detached};

/// The files of the process in which calls are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files {
    /// `/proc/PID/mem` of the address space that the request is for.
    pub memory: i32,
    /// `/proc/PID/status`.
    pub status: i32,
}

/// Makes the calls of `request` until [`Request::max_stop`] is reached. `reply` has the results of the calls that were
/// made.
///
/// # Errors
/// Says why no further call was made.
pub(super) fn make_calls(
    request: &Request,
    files: Files,
    vector: &mut [u8; VECTOR_BUFFER],
    reply: &mut Reply,
) -> Result<(), Failure> {
    let tracee = Tracee(request.pid as i32);
    if let Some(why) = why_not(files.status) {
        return Err(Detached(why, 0));
    }
    tracee.seize().map_err(|errno| match errno {
        Errno::SRCH => Detached(Refused::Gone, errno.0),
        // The kernel says the same of a process that has ended, or is traced, since the look at its status.
        errno => Detached(why_not(files.status).unwrap_or(Refused::NotPermitted), errno.0),
    })?;
    completed(request, Step::Seized);
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
    files: Files,
    vector: &'a mut [u8; VECTOR_BUFFER],
    reply: &'a mut Reply,
    stopped_at: Option<Instant>,
}

impl Tracer<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let timeout = Duration::from_nanos(self.request.state_timeout);
        loop {
            // A thread in an uninterruptible state stops only when it leaves this state.
            match self.wait(timeout.saturating_sub(began.elapsed()).max(PAUSE * 50))? {
                Some(Stop::Interrupted) => {}
                Some(Stop::Signal(signal)) => {
                    self.resume(signal)?;
                    continue;
                }
                Some(Stop::Group) => return self.detach(0, Some(Refused::Stopped)),
                Some(Stop::Call) => {
                    self.resume(0)?;
                    continue;
                }
                None => return Err(Attached(Refused::Unresponsive)),
            }
            match self.attempt()? {
                Attempt::Done => return self.detach(0, None),
                Attempt::Again(signal, why) if began.elapsed() >= timeout => {
                    return self.detach(signal, Some(why));
                }
                Attempt::Again(signal, _) => {
                    self.resume(signal)?;
                    sleep(PAUSE);
                    self.interrupt()?;
                }
            }
        }
    }

    /// Makes the calls once. The thread must be stopped and have its original registers.
    fn attempt(&mut self) -> Result<Attempt, Failure> {
        completed(self.request, Step::Interrupted);
        let own = self.tracee.registers().map_err(|e| self.failed(e))?;
        if own.cs != CODE_64 {
            return self.refuse(Refused::Compatibility);
        }
        // The status shows a tracer and a stop: those of this process.
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
            // A 64-bit program made a 32-bit system call.
            return self.refuse(Refused::Compatibility);
        }
        if self.tracee.has_shadow_stack() {
            return self.refuse(Refused::ShadowStack);
        }
        if self.is_in_sequence(&own) {
            return Ok(Attempt::Again(0, Refused::Sequence));
        }
        let mut restored = own;
        if is_restartable(&own) {
            restored.rax = ERESTARTNOHAND as u64;
        }
        let size = self.tracee.vector_registers(self.vector).map_err(|e| self.failed(e))?;
        let stack = self.request.stack_start.saturating_add(frame::max_size(size))..self.request.stack_end;
        if !stack.contains(&own.rsp) {
            return Ok(Attempt::Again(0, Refused::OtherStack));
        }
        let blocked = self.tracee.blocked_signals().map_err(|e| self.failed(e))?;
        let built = self
            .vector
            .get_mut(..size + 4)
            .and_then(|image| Some((frame::build(&restored, blocked, image, self.request.restorer)?, image.len())));
        let Some((frame, length)) = built else {
            return self.refuse(Refused::Failed);
        };
        if !self.writes(frame.at, &frame.context) || !self.writes(frame.vector_at, &self.vector[..length]) {
            return self.refuse(Refused::Exec);
        }
        completed(self.request, Step::FrameWritten);
        self.call_all(&restored, frame.at)
    }

    /// Makes the calls on `stack`, and then sets the registers to `restored`.
    fn call_all(&mut self, restored: &Registers, stack: u64) -> Result<Attempt, Failure> {
        let began = Instant::now();
        let max_stop = Duration::from_nanos(self.request.max_stop);
        // A thread enters the call as soon as it runs. A frozen thread does not run.
        let entry_timeout = Duration::from_nanos(self.request.state_timeout);
        while let Some(range) = self.request.ranges[..self.request.count as usize].get(self.reply.done as usize) {
            let mut call = *restored;
            call.rip = self.request.call;
            call.rsp = stack;
            call.rax = self.request.number;
            [call.rdi, call.rsi] = *range;
            call.rdx = self.request.third;
            // No system call is in progress, so that the kernel does not restart one.
            call.orig_rax = u64::MAX;
            call.eflags &= !DIRECTION_AND_TRAP;
            self.tracee.set_registers(&call).map_err(|e| self.failed(e))?;
            completed(self.request, Step::RegistersSet);
            for (step, timeout) in [(Step::Entered, entry_timeout), (Step::Left, CALL_TIMEOUT)] {
                self.tracee.resume_to_call().map_err(|e| self.failed(e))?;
                let (stop, why) = match self.wait(timeout)? {
                    None => {
                        self.interrupt()?;
                        (self.wait(FINAL_TIMEOUT)?, Refused::Unresponsive)
                    }
                    stop => (stop, Refused::Signals),
                };
                match stop {
                    Some(Stop::Call) => completed(self.request, step),
                    // The thread has not reached the call, or has just left it. In the latter case only the result is
                    // lost, and the call is repeated.
                    Some(stop) => return self.disturbed(stop, why, restored),
                    // The frame restores the registers as soon as the thread continues.
                    None => return Err(Attached(Refused::Unresponsive)),
                }
                if matches!(step, Step::Entered) {
                    continue;
                }
                let after = self.tracee.registers().map_err(|e| self.failed(e))?;
                self.reply.results[self.reply.done as usize] = after.rax as i64;
                self.reply.done += 1;
            }
            if began.elapsed() >= max_stop {
                break;
            }
        }
        self.tracee.set_registers(restored).map_err(|e| self.failed(e))?;
        completed(self.request, Step::Restored);
        Ok(Attempt::Done)
    }

    /// Restores the registers after a stop that is not the entry or exit of the call. If the attempt can be repeated,
    /// `why` is the reason.
    fn disturbed(&mut self, stop: Stop, why: Refused, restored: &Registers) -> Result<Attempt, Failure> {
        // Whether the call itself caused a fault.
        let is_fault = match stop {
            Stop::Signal(signal) => {
                // If a process sent such a signal, its code is 0 or negative.
                matches!(signal, SIGSEGV | SIGBUS | SIGILL | SIGFPE | SIGTRAP | SIGSYS)
                    && self.tracee.signal_code().is_ok_and(|code| code > 0)
            }
            _ => false,
        };
        self.tracee.set_registers(restored).map_err(|e| self.failed(e))?;
        completed(self.request, Step::RestoredEarly);
        match stop {
            _ if is_fault => self.refuse(Refused::Failed),
            Stop::Group => self.refuse(Refused::Stopped),
            Stop::Signal(signal) => Ok(Attempt::Again(signal, why)),
            Stop::Interrupted | Stop::Call => Ok(Attempt::Again(0, why)),
        }
    }

    fn interrupt(&mut self) -> Result<(), Failure> {
        self.tracee.interrupt().map_err(|e| self.failed(e))
    }

    /// Continues the thread and delivers `signal`, or none if it is 0.
    fn resume(&mut self, signal: i32) -> Result<(), Failure> {
        self.note_running();
        self.tracee.resume(signal).map_err(|e| self.failed(e))
    }

    /// Detaches the thread, which must be stopped and have its original registers. Fails with `why` if there is one.
    fn detach(&mut self, signal: i32, why: Option<Refused>) -> Result<(), Failure> {
        self.tracee.detach(signal).map_err(|e| self.failed(e))?;
        self.note_running();
        why.map_or(Ok(()), |why| Err(Detached(why, 0)))
    }

    /// Detaches the thread and fails with `why`.
    fn refuse(&mut self, why: Refused) -> Result<Attempt, Failure> {
        self.detach(0, None)?;
        Err(Detached(why, 0))
    }

    /// Adds the time of the stop that ends now.
    fn note_running(&mut self) {
        if let Some(since) = self.stopped_at.take() {
            self.reply.stopped += since.elapsed().as_nanos() as u64;
        }
    }

    /// The failure after a request of ptrace(2) failed. `ESRCH` means that the thread was killed. Then the tracer must
    /// wait for its end, because its parent is notified only after that.
    fn failed(&self, errno: Errno) -> Failure {
        if errno != Errno::SRCH {
            return Attached(Refused::Failed);
        }
        let began = Instant::now();
        while began.elapsed() < FINAL_TIMEOUT {
            match self.tracee.wait() {
                Waited::Gone => return Detached(Refused::Gone, errno.0),
                _ => sleep(PAUSE),
            }
        }
        Attached(Refused::Gone)
    }

    /// Waits until the thread stops. Returns `None` if it does not stop in `timeout`.
    fn wait(&mut self, timeout: Duration) -> Result<Option<Stop>, Failure> {
        let began = Instant::now();
        let mut polls = 0;
        loop {
            match self.tracee.wait() {
                Waited::Gone => return Err(Detached(Refused::Gone, Errno::SRCH.0)),
                Waited::Stopped(status) => {
                    if self.stopped_at.is_none() {
                        self.stopped_at = Some(Instant::now());
                        self.reply.stops += 1;
                    }
                    return Ok(Some(why_stopped(status)));
                }
                Waited::Nothing if began.elapsed() >= timeout => return Ok(None),
                // Most stops follow within microseconds, unless the CPU is busy.
                Waited::Nothing if polls < 50 => yield_now(),
                Waited::Nothing if polls < 250 => sleep(Duration::from_micros(20)),
                Waited::Nothing => sleep(Duration::from_millis(1)),
            }
            polls += 1;
        }
    }

    /// Whether the instruction sequences are still at their addresses. After an exec of the process, they are not.
    fn code_is_there(&self) -> bool {
        let restorer = RESTORERS.get(self.request.restorer_kind as usize);
        self.reads(self.request.call, CALL) && restorer.is_some_and(|code| self.reads(self.request.restorer, code))
    }

    /// Whether the thread is inside a restartable sequence. With changed registers, the kernel would not restart it.
    fn is_in_sequence(&self, own: &Registers) -> bool {
        let Ok(configuration) = self.tracee.restartable_sequences() else {
            // Linux before 5.13 does not say. A thread in a system call is in no such sequence.
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

    /// Reads `N` numbers of 64 bits at address `at` of the process. Returns `None` if they cannot be read.
    fn words<const N: usize>(&self, at: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        for (word, i) in words.iter_mut().zip(0..) {
            let mut bytes = [0; 8];
            (pread(self.files.memory, &mut bytes, at + i * 8) == Ok(8)).then_some(())?;
            *word = u64::from_ne_bytes(bytes);
        }
        Some(words)
    }

    /// Whether the process has these bytes, at most 16, at address `at`.
    fn reads(&self, at: u64, expected: &[u8]) -> bool {
        let mut buffer = [0; 16];
        let bytes = &mut buffer[..expected.len().min(16)];
        let length = pread(self.files.memory, &mut *bytes, at);
        length == Ok(expected.len()) && bytes == expected
    }

    /// Writes the bytes at address `at` of the process. Returns whether that succeeded.
    fn writes(&self, at: u64, bytes: &[u8]) -> bool {
        pwrite(self.files.memory, bytes, at) == Ok(bytes.len())
    }
}

fn why_stopped(status: i32) -> Stop {
    let signal = status >> 8 & 0xff;
    match (status >> 16, signal) {
        (PTRACE_EVENT_STOP, SIGTRAP) => Stop::Interrupted,
        (PTRACE_EVENT_STOP, _) => Stop::Group,
        (0, signal) if signal == SIGTRAP | 0x80 => Stop::Call,
        (0, signal) => Stop::Signal(signal),
        // No other events are enabled.
        _ => Stop::Call,
    }
}

/// Whether the stop ended a system call with `EINTR` although the call can be restarted. This holds for calls without a
/// timeout: unless a signal handler runs, the program notices no difference.
///
/// `signal(7)`, "Interruption of system calls and library functions by stop signals", lists these calls.
fn is_restartable(own: &Registers) -> bool {
    if own.rax as i64 != EINTR || !frame::is_in_call(own) {
        return false;
    }
    match i64::from(own.orig_rax as i32) {
        SYS_EPOLL_WAIT | SYS_EPOLL_PWAIT => own.r10 as i32 == -1,
        SYS_EPOLL_PWAIT2 | SYS_SEMTIMEDOP => own.r10 == 0,
        SYS_SEMOP => true,
        SYS_RT_SIGTIMEDWAIT => own.rdx == 0,
        SYS_IO_GETEVENTS => own.r8 == 0,
        _ => false,
    }
}

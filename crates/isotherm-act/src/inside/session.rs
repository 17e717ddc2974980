//! isotherm's side of acting from inside: the prepared processes and the helper.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use isotherm_core::AddrRange;
use rustix::io::Errno;

use super::helper::Helper;
use super::message::{CALLS, Plain, Refused, Reply, Request};
use super::prepared::Prepared;
use super::{InsideCall, InsideError};

/// The maximum time to wait for a state in which the thread can make calls.
const STATE_TIMEOUT: Duration = Duration::from_millis(200);
/// No further call begins in a stop that has lasted this long. The remaining calls are made in another stop.
const MAX_STOP: Duration = Duration::from_millis(5);
/// A helper that does not reply in this time has failed, and is killed. Its own watchdog is shorter.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes system calls inside other processes. This works on x86-64 only.
#[derive(Debug, Default)]
pub struct Inside {
    helper: Option<Helper>,
    prepared: HashMap<u32, Prepared>,
    stops: u64,
    stopped: Duration,
    longest_stop: Duration,
    /// Takes the place of [`MAX_STOP`].
    #[cfg(test)]
    pub(super) max_stop: Option<Duration>,
    /// How the helper fails, and at which step.
    #[cfg(test)]
    pub(super) fault: Option<(super::program::step::Fault, super::program::step::Step)>,
}

impl Inside {
    /// A value without a helper. The helper is started when it is needed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `call` on each of `ranges` inside process `pid`, and appends the result of each call to `results`. A range
    /// must be page-aligned and at most [`InsideCall::max_bytes`] long. The process is stopped during the calls.
    ///
    /// The caller must hold a pidfd of the process, so that no other process gets its ID.
    ///
    /// # Errors
    /// Says why no further call was made. `results` has the results of the calls that were made before.
    pub fn make(
        &mut self,
        pid: u32,
        call: InsideCall,
        ranges: &[AddrRange],
        results: &mut Vec<Result<(), Errno>>,
    ) -> Result<(), InsideError> {
        let (number, third) = match call {
            InsideCall::HugePage => (libc::SYS_madvise, libc::MADV_HUGEPAGE),
            InsideCall::NoHugePage => (libc::SYS_madvise, libc::MADV_NOHUGEPAGE),
            InsideCall::MLock => (libc::SYS_mlock2, libc::MLOCK_ONFAULT as libc::c_int),
            InsideCall::MUnlock => (libc::SYS_munlock, 0),
        };
        let mut rest = ranges;
        let mut renewed = false;
        while !rest.is_empty() {
            let mut request = Request::zero();
            let count = rest.len().min(CALLS);
            request.pid = pid.into();
            request.number = number.cast_unsigned();
            request.third = third as u64;
            request.count = count as u64;
            for (arguments, range) in request.ranges.iter_mut().zip(rest) {
                *arguments = [range.start(), range.size()];
            }
            #[cfg(test)]
            if let Some((fault, at)) = self.fault {
                (request.fault, request.fault_at) = (fault as u64, at as u64);
            }
            let reply = self.request(pid, &mut request)?;
            let done = usize::try_from(reply.done).unwrap_or(count).min(count);
            results.extend(reply.results[..done].iter().map(|result| match i32::try_from(-result) {
                Ok(errno @ 1..) => Err(Errno::from_raw_os_error(errno)),
                _ => Ok(()),
            }));
            rest = &rest[done..];
            match self.refusal(pid, &reply) {
                // The process called exec, so it is prepared again, once.
                Some(InsideError::Exec(_)) if !renewed => renewed = true,
                Some(error) => return Err(error),
                None => {}
            }
        }
        Ok(())
    }

    /// How many times targets were stopped. A stop that is not disturbed makes one call at least and 64 at most.
    pub fn stops(&self) -> u64 {
        self.stops
    }

    /// The total time for which targets were stopped.
    pub fn stopped(&self) -> Duration {
        self.stopped
    }

    /// The longest time for which a target was stopped at a stretch, or in several attempts at the same calls.
    pub fn longest_stop(&self) -> Duration {
        self.longest_stop
    }

    /// The process ID of the helper. `None` if no helper is running.
    pub fn helper(&self) -> Option<u32> {
        self.helper.as_ref().map(|helper| helper.pid().as_raw_nonzero().get().cast_unsigned())
    }

    /// Forgets the processes for which `keep` returns false. Files of the other processes stay open.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.prepared.retain(|pid, _| keep(*pid));
    }

    fn request(&mut self, pid: u32, request: &mut Request) -> Result<Reply, InsideError> {
        let prepared = match self.prepared.entry(pid) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(Prepared::new(pid)?),
        };
        request.call = prepared.gadgets.call;
        request.restorer = prepared.gadgets.restorer;
        request.restorer_kind = prepared.gadgets.restorer_kind.into();
        (request.stack_start, request.stack_end) = (prepared.stack.start(), prepared.stack.end());
        request.state_timeout = STATE_TIMEOUT.as_nanos() as u64;
        request.max_stop = MAX_STOP.as_nanos() as u64;
        #[cfg(test)]
        if let Some(max_stop) = self.max_stop {
            request.max_stop = max_stop.as_nanos() as u64;
        }
        let helper = match &mut self.helper {
            Some(helper) => helper,
            helper => helper.insert(Helper::start().map_err(InsideError::Helper)?),
        };
        let reply = helper.request(request, prepared.files(), REPLY_TIMEOUT);
        if reply.is_none_or(|reply| reply.ends != 0) {
            self.helper = None;
        }
        let reply = reply.ok_or(InsideError::HelperGone(pid))?;
        self.stops += reply.stops;
        let stopped = Duration::from_nanos(reply.stopped);
        self.stopped += stopped;
        self.longest_stop = self.longest_stop.max(stopped);
        Ok(reply)
    }

    fn refusal(&mut self, pid: u32, reply: &Reply) -> Option<InsideError> {
        let refused = Refused::of(reply.refused)?;
        if matches!(refused, Refused::Exec | Refused::Gone) {
            self.prepared.remove(&pid);
        }
        Some(match refused {
            Refused::Gone => InsideError::Gone(pid),
            Refused::NotPermitted => {
                let source = io::Error::from_raw_os_error(i32::try_from(reply.errno).unwrap_or_default());
                InsideError::NotPermitted { pid, source }
            }
            Refused::Traced => InsideError::Traced(pid),
            Refused::Stopped => InsideError::Stopped(pid),
            Refused::MainThreadEnded => InsideError::MainThreadEnded(pid),
            Refused::Unresponsive => InsideError::Unresponsive(pid),
            Refused::Seccomp => InsideError::Seccomp(pid),
            Refused::Compatibility => InsideError::NotX64(pid),
            Refused::ShadowStack => InsideError::ShadowStack(pid),
            Refused::OtherStack => InsideError::OtherStack(pid),
            Refused::Sequence | Refused::Signals => InsideError::Busy(pid),
            Refused::Exec => InsideError::Exec(pid),
            Refused::Failed => InsideError::Failed(pid),
        })
    }
}

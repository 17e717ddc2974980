//! What isotherm has of it: processes that are prepared, and the helper.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use isotherm_core::AddrRange;
use rustix::io::Errno;

use super::helper::Helper;
use super::message::{CALLS, Plain, Refused, Reply, Request};
use super::prepared::Prepared;
use super::{InsideCall, InsideError};

/// For so long a thread may be at places where it can make no call.
const PATIENCE: Duration = Duration::from_millis(200);
/// After so long, the target goes on, whatever is left to be done, before it is stopped again.
const LONGEST_STOP: Duration = Duration::from_millis(5);
/// The helper answers in this time, or something is wrong with it.
const LONGEST_ANSWER: Duration = Duration::from_secs(60);

/// Makes system calls inside other processes.
#[derive(Debug, Default)]
pub struct Inside {
    helper: Option<Helper>,
    prepared: HashMap<u32, Prepared>,
    stopped: Duration,
    /// At which step the helper dies.
    #[cfg(test)]
    pub(super) die_at: u64,
}

impl Inside {
    /// Nothing is started before it is needed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `call` on each of `ranges` in the process, and appends to `results` what each said.
    ///
    /// The caller holds the process (by a pidfd), so that its ID stays its own.
    ///
    /// # Errors
    /// Why no call was made any more; `results` has those that were.
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
            InsideCall::MLock => (libc::SYS_mlock, 0),
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
            {
                request.die_at = self.die_at;
            }
            let reply = self.ask(pid, &mut request)?;
            let done = usize::try_from(reply.done).unwrap_or(count).min(count);
            results.extend(reply.results[..done].iter().map(|result| match i32::try_from(-result) {
                Ok(errno @ 1..) => Err(Errno::from_raw_os_error(errno)),
                _ => Ok(()),
            }));
            rest = &rest[done..];
            match self.refusal(pid, &reply) {
                // What was known of it is of another program.
                Some(InsideError::Exec(_)) if !renewed => renewed = true,
                Some(error) => return Err(error),
                None => {}
            }
        }
        Ok(())
    }

    /// What it has cost targets so far: for how long they stood still.
    pub fn stopped(&self) -> Duration {
        self.stopped
    }

    /// The process that does the tracing, once there is one.
    pub fn helper(&self) -> Option<u32> {
        self.helper.as_ref().map(|helper| helper.pid().as_raw_nonzero().get().cast_unsigned())
    }

    /// Forgets what was prepared for all processes but these.
    pub fn retain(&mut self, lives: impl Fn(u32) -> bool) {
        self.prepared.retain(|pid, _| lives(*pid));
    }

    fn ask(&mut self, pid: u32, request: &mut Request) -> Result<Reply, InsideError> {
        let prepared = match self.prepared.entry(pid) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(Prepared::new(pid)?),
        };
        request.call = prepared.gadgets.call;
        request.restorer = prepared.gadgets.restorer;
        request.restorer_kind = prepared.gadgets.restorer_kind.into();
        (request.stack_start, request.stack_end) = (prepared.stack.start(), prepared.stack.end());
        request.patience = PATIENCE.as_nanos() as u64;
        request.longest_stop = LONGEST_STOP.as_nanos() as u64;
        let helper = match &mut self.helper {
            Some(helper) => helper,
            none => none.insert(Helper::start().map_err(|errno| InsideError::Helper(errno.into()))?),
        };
        let reply = helper.ask(request, prepared.files(), LONGEST_ANSWER);
        if reply.is_none_or(|reply| reply.ends != 0) {
            self.helper = None;
        }
        let reply = reply.ok_or(InsideError::HelperGone(pid))?;
        self.stopped += Duration::from_nanos(reply.stopped);
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

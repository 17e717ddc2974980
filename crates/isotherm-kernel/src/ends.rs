//! Notices which of many processes have ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::Pidfd;

/// A set of processes. It takes the same time to find out that none has ended, however many there are (`epoll(7)`).
///
/// The descriptor is opened for the first process.
#[derive(Debug, Default)]
pub(crate) struct Ends(OnceLock<OwnedFd>);

impl Ends {
    /// A descriptor that is readable while a process of the set has ended. `None` if the set has had no process yet.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.get().map(AsFd::as_fd)
    }

    /// The IDs of at most `most` processes of the set that have ended.
    ///
    /// # Errors
    /// Those of epoll_wait(2).
    pub(crate) fn ended(&self, most: usize) -> Result<Vec<u32>, Errno> {
        let Some(descriptor) = self.descriptor() else { return Ok(Vec::new()) };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(most.max(1));
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(descriptor, spare_capacity(&mut events), Some(&now))?;
        Ok(events.iter().map(|event| event.data.u64() as u32).collect())
    }
}

/// A process in a set. It leaves the set when the value is dropped.
#[derive(Debug)]
pub(crate) struct InEnds {
    ends: Arc<Ends>,
    process: Pidfd,
}

impl InEnds {
    /// Adds the process with the ID `pid`, which `process` refers to, to a set.
    ///
    /// # Errors
    /// Those of epoll_create(2) and epoll_ctl(2): `EEXIST` if it is in the set.
    pub(crate) fn new(ends: &Arc<Ends>, pid: u32, process: Pidfd) -> Result<Self, Errno> {
        let descriptor = match ends.0.get() {
            Some(descriptor) => descriptor,
            None => {
                let new = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                ends.0.get_or_init(|| new)
            }
        };
        epoll::add(descriptor, &process, epoll::EventData::new_u64(pid.into()), epoll::EventFlags::IN)?;
        Ok(Self { ends: Arc::clone(ends), process })
    }
}

impl Drop for InEnds {
    fn drop(&mut self) {
        if let Some(descriptor) = self.ends.descriptor() {
            let _ = epoll::delete(descriptor, &self.process);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn process() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn processes_that_have_ended_are_told_until_they_leave() {
        let ends = Arc::new(Ends::default());
        assert!(ends.ended(3).unwrap().is_empty());
        let mut processes = [process(), process(), process()];
        let pids = processes.each_ref().map(Child::id);
        let mut inside = pids.map(|pid| Some(InEnds::new(&ends, pid, Pidfd::open(pid).unwrap()).unwrap()));
        assert!(ends.ended(3).unwrap().is_empty());
        for process in &mut processes[..2] {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        for _ in 0..2 {
            let mut ended = ends.ended(3).unwrap();
            ended.sort_by_key(|pid| pids.iter().position(|other| other == pid));
            assert_eq!(ended, pids[..2]);
        }
        inside[0] = None;
        assert_eq!(ends.ended(3).unwrap(), [pids[1]]);
        inside[1] = None;
        assert!(ends.ended(3).unwrap().is_empty());
        processes[2].kill().unwrap();
        processes[2].wait().unwrap();
    }
}

//! How the calling thread is scheduled, and which memory stays in memory.

use std::io;
use std::marker::PhantomData;

use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

/// The highest number of a processor, plus one, that a thread can be bound to.
pub const MOST_CPUS: usize = CpuSet::MAX_CPU;

/// Gives the calling thread this nice value, −20 to 19. Threads that it starts later inherit it.
///
/// # Errors
/// The error of `setpriority(2)`: without CAP_SYS_NICE, a thread cannot lower its nice value.
pub fn set_nice(nice: i32) -> io::Result<()> {
    Ok(setpriority_process(Some(this_thread()), nice)?)
}

/// The nice value of the calling thread.
///
/// # Errors
/// The error of `getpriority(2)`.
pub fn nice() -> io::Result<i32> {
    Ok(getpriority_process(Some(this_thread()))?)
}

/// The nice value of a thread that must not wait for a processor.
pub const URGENT: i32 = -10;

/// While this lives, the calling thread has the nice value [`URGENT`], where that is allowed and lowers it.
#[derive(Debug)]
pub struct Urgent {
    before: Option<i32>,
    /// It belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl Urgent {
    /// Lowers the nice value of the calling thread.
    #[must_use]
    pub fn begin() -> Self {
        let before = nice().ok().filter(|&nice| nice > URGENT && set_nice(URGENT).is_ok());
        Self { before, _thread: PhantomData }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Raising the value needs no privilege.
            let _ = set_nice(before);
        }
    }
}

/// Binds the calling thread to processors, which are below [`MOST_CPUS`].
///
/// # Errors
/// The error of `sched_setaffinity(2)`: EINVAL if none of the processors is online and allowed.
pub fn bind(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < MOST_CPUS).for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(Some(this_thread()), &set)?)
}

/// Keeps all memory of this process in memory that it has touched, and that it will touch, so that a thread that
/// measures never waits for its own pages.
///
/// # Errors
/// The error of `mlockall(2)`: the limit on locked memory (RLIMIT_MEMLOCK) is too low.
pub fn lock_memory() -> io::Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

/// The calling thread. The kernel takes the ID of a thread where a process is meant.
fn this_thread() -> Pid {
    gettid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_changes_its_own_nice_value_only() {
        let before = nice().unwrap();
        let inner = std::thread::spawn(|| {
            // Raising the value needs no privilege.
            let raised = (nice().unwrap() + 1).min(19);
            set_nice(raised).map(|()| (raised, nice().unwrap()))
        });
        let (wanted, got) = inner.join().unwrap().unwrap();
        assert_eq!((got, nice().unwrap()), (wanted, before));
    }

    #[test]
    fn an_urgent_thread_has_its_own_nice_value_again_afterwards() {
        let before = nice().unwrap();
        let urgent = Urgent::begin();
        let during = nice().unwrap();
        drop(urgent);
        assert_eq!(nice().unwrap(), before);
        // Without the privilege, nothing changes.
        assert!(during == before.min(URGENT) || during == before, "{during}, and {before} before");
    }

    #[test]
    fn a_thread_is_bound_to_processors_that_exist() {
        let bound = std::thread::spawn(|| (bind(&[MOST_CPUS - 1]).is_err(), bind(&[MOST_CPUS]).is_err()));
        assert_eq!(bound.join().unwrap(), (true, true));
    }
}

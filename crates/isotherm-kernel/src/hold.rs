//! Measures for how long the kernel holds the memory map of a target for calls of this process.
//!
//! While the kernel walks the page tables of a process for another one, it holds the lock of the process's memory map:
//! `mmap(2)`, `munmap(2)` and some page faults of the process wait. Each call that does so goes through [`held`].

use std::cell::RefCell;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::scheduling::{Urgent, pause};

/// One call holds the memory map of a target for no longer than this where the kernel allows to split it, unless an
/// option allows more.
pub const LONGEST_HOLD: Duration = Duration::from_millis(2);

/// For how long calls held memory maps of targets. A call takes at least as long as it holds the map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The longest call.
    pub longest: Duration,
    /// All calls together.
    pub sum: Duration,
}

/// The holds of the threads of a run.
#[derive(Clone, Debug, Default)]
pub struct HoldAccount(Arc<Nanoseconds>);

#[derive(Debug, Default)]
struct Nanoseconds {
    longest: AtomicU64,
    sum: AtomicU64,
}

thread_local! {
    /// The account that the holds of this thread are charged to.
    static ACCOUNT: RefCell<Option<HoldAccount>> = const { RefCell::new(None) };
}

impl HoldAccount {
    /// Charges what the calling thread holds from now on to this account, and to no other.
    pub fn charge_this_thread(&self) {
        ACCOUNT.with_borrow_mut(|account| *account = Some(self.clone()));
    }

    /// The holds since the last call.
    pub fn take(&self) -> Holds {
        let take = |part: &AtomicU64| Duration::from_nanos(part.swap(0, Ordering::Relaxed));
        Holds { longest: take(&self.0.longest), sum: take(&self.0.sum) }
    }

    fn note(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.longest.fetch_max(nanoseconds, Ordering::Relaxed);
        self.0.sum.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

/// Makes a call that holds the memory map of a target, and returns how long it took. The thread is [`Urgent`]
/// meanwhile, so that the target does not wait for a processor as well. Afterwards it may [`pause`].
pub fn held<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let urgent = Urgent::begin();
    let began = Instant::now();
    let result = call();
    let took = began.elapsed();
    drop(urgent);
    pause();
    ACCOUNT.with_borrow(|account| account.iter().for_each(|account| account.note(took)));
    (result, took)
}

/// A file for which the kernel holds the memory map of a process at each read.
#[derive(Debug)]
pub struct HeldFile<F>(pub F);

impl<F: Read> Read for HeldFile<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        held(|| self.0.read(buffer)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_charged_to_the_account_of_their_thread_once() {
        let (account, other) = (HoldAccount::default(), HoldAccount::default());
        account.charge_this_thread();
        let ((), first) = held(|| std::hint::black_box(()));
        let (second, took) = held(|| HeldFile(&b"abc"[..]).read(&mut [0; 8]));
        assert_eq!(second.unwrap_or(0), 3);
        let found = account.take();
        // The inner call counts by itself, within the outer one.
        assert!(found.longest >= took.max(first) && found.sum >= first + took, "{found:?}");
        assert_eq!((account.take(), other.take()), (Holds::default(), Holds::default()));
    }
}

//! The speed limit, the progress and the stop signal of a scan.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use isotherm_kernel::{Stop, Waiter, Woken, monitor_cpu_time};

use super::ScanError;

/// A shorter wait than this is added to the next one.
const SHORTEST: Duration = Duration::from_millis(2);

/// A limit on the speed of a scan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// The memory that is visited in a second, in bytes.
    Bytes(u64),
    /// The share of one CPU that the scan uses while it runs, above 0 and up to 1.
    Cpu(f64),
    /// The share of one CPU, above 0 and up to 1, over any ten seconds. A scan that takes less than half of the CPU
    /// time that ten seconds allow is not slowed down.
    Budget(f64),
}

/// For so many seconds, a budget that was not used is saved.
const SAVED: f64 = 5.0;

/// Limits the speed of a scan, reports its progress, and stops it.
pub struct ScanPacer {
    rate: Option<Rate>,
    waiter: Waiter,
    progress: Box<dyn FnMut(u64, u64)>,
    began: Instant,
    began_cpu: Duration,
    account: CpuAccount,
    done: u64,
    total: u64,
}

impl std::fmt::Debug for ScanPacer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanPacer").field("rate", &self.rate).field("done", &self.done).finish_non_exhaustive()
    }
}

impl ScanPacer {
    /// A pacer that limits the speed to `rate`, if it is given, and ends the scan when `stop` is requested. `progress`
    /// is called with the bytes that have been visited and the bytes in all.
    pub fn new(rate: Option<Rate>, stop: Stop, progress: impl FnMut(u64, u64) + 'static) -> Self {
        let waiter = Waiter::new(isotherm_kernel::ProcessTable::default(), stop);
        let began_cpu = monitor_cpu_time();
        Self {
            rate,
            waiter,
            progress: Box::new(progress),
            began: Instant::now(),
            began_cpu,
            account: CpuAccount::default(),
            done: 0,
            total: 0,
        }
    }

    /// The same pacer, which continues with an account of [`Rate::Budget`].
    #[must_use]
    pub fn with_account(self, account: CpuAccount) -> Self {
        Self { account, ..self }
    }

    /// Begins a scan of `total` bytes.
    pub(super) fn begin(&mut self, total: u64) {
        (self.began, self.began_cpu, self.done, self.total) = (Instant::now(), monitor_cpu_time(), 0, total);
        if let Some(Rate::Budget(share)) = self.rate {
            // The account begins with the first scan.
            self.account.wait(share);
        }
    }

    /// Records that `bytes` more bytes were visited, and waits if the scan is too fast.
    pub(super) fn step(&mut self, bytes: u64) -> Result<(), ScanError> {
        self.done += bytes;
        (self.progress)(self.done, self.total.max(self.done));
        let needed = match self.rate {
            None => Duration::ZERO,
            Some(Rate::Bytes(a_second)) => seconds(self.done as f64 / a_second.max(1) as f64),
            Some(Rate::Cpu(share)) => {
                seconds((monitor_cpu_time() - self.began_cpu).as_secs_f64() / share.clamp(1e-6, 1.0))
            }
            Some(Rate::Budget(share)) => self.began.elapsed() + self.account.wait(share.clamp(1e-6, 1.0)),
        };
        let due = if needed > self.began.elapsed() + SHORTEST { self.began + needed } else { Instant::now() };
        match self.waiter.until(due).map_err(ScanError::Wait)? {
            Woken::Stopped => Err(ScanError::Interrupted),
            Woken::Due | Woken::TargetEnded => Ok(()),
        }
    }
}

/// The CPU time that is left of a budget. Clones are the same account, so that several scans share it.
#[derive(Clone, Debug, Default)]
pub struct CpuAccount {
    /// The time and the CPU time of the last look, and the CPU time that was left, in seconds.
    last: Rc<Cell<Option<(Instant, Duration, f64)>>>,
}

impl CpuAccount {
    /// How long to wait until what was spent is saved again, with this share of a CPU.
    fn wait(&self, share: f64) -> Duration {
        let (now, cpu) = (Instant::now(), monitor_cpu_time());
        let most = SAVED * share;
        let (before, cpu_before, left) = self.last.get().unwrap_or((now, cpu, most));
        let saved = (left + share * (now - before).as_secs_f64()).min(most);
        let left = saved - cpu.saturating_sub(cpu_before).as_secs_f64();
        self.last.set(Some((now, cpu, left)));
        seconds(-left / share)
    }
}

/// A duration of `seconds`, at most a year.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 365.0 * 86400.0))
}

//! The CPU time of waking up on this machine.

use std::thread::sleep;
use std::time::{Duration, Instant};

use isotherm_kernel::monitor_cpu_time;

/// How long to measure.
const TIME: Duration = Duration::from_secs(1);

/// CPU time, in per cent of one CPU, of a thread that wakes up every `interval` and does nothing.
///
/// On an idle processor most of this is the time to leave the idle state, which takes long in a virtual machine. A
/// monitor pays it for each round in which it reads pages.
pub fn percent(interval: Duration) -> f64 {
    let began = Instant::now();
    let cpu = monitor_cpu_time();
    let mut due = began;
    while began.elapsed() < TIME {
        due += interval;
        sleep(due.saturating_duration_since(Instant::now()));
    }
    (monitor_cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64() * 100.0
}

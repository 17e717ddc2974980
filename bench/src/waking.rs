//! What it costs here to wake up, whatever is done then.

use std::thread::sleep;
use std::time::{Duration, Instant};

use isotherm_kernel::monitor_cpu_time;

/// For so long the thread wakes up again and again.
const LONG: Duration = Duration::from_secs(1);

/// CPU time, in per cent of one CPU, of a thread that wakes up every `interval` and does nothing.
///
/// On a processor that is idle otherwise, most of this is the way out of idleness, which a virtual machine makes long. A monitor
/// pays it for each round in which it has something to look at.
pub fn percent(interval: Duration) -> f64 {
    let began = Instant::now();
    let cpu = monitor_cpu_time();
    let mut due = began;
    while began.elapsed() < LONG {
        due += interval;
        sleep(due.saturating_duration_since(Instant::now()));
    }
    (monitor_cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64() * 100.0
}

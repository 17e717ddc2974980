//! Facts about this machine, and the CPU time of the monitor.

use std::time::Duration;

use rustix::system::{sysinfo, uname};
use rustix::time::{ClockId, clock_gettime};

/// The machine that isotherm runs on.
#[derive(Clone, Debug)]
pub struct Host {
    /// The host name.
    pub name: String,
    /// The kernel's release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// The processor's architecture, such as `x86_64`.
    pub architecture: String,
    /// The number of processors that this process may run on.
    pub cpus: u32,
    /// The size of the usable memory, in bytes.
    pub memory_bytes: u64,
}

impl Host {
    /// Reads the facts from the kernel.
    pub fn read() -> Self {
        let names = uname();
        let info = sysinfo();
        Self {
            name: names.nodename().to_string_lossy().into(),
            kernel: names.release().to_string_lossy().into(),
            architecture: names.machine().to_string_lossy().into(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory_bytes: info.totalram * u64::from(info.mem_unit),
        }
    }
}

/// The CPU time that the calling thread has used so far, in user space and in the kernel.
pub fn monitor_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock starts at zero, so `tv_sec` is not negative; `tv_nsec` is below 10⁹.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

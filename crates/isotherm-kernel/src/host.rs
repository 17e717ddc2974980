//! Facts about this machine, and the CPU time of the monitor.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, Mac};
use rustix::system::{sysinfo, uname};
use rustix::time::{ClockId, clock_gettime};
use sha2::Sha256;

/// The machine that isotherm runs on.
#[derive(Clone, Debug)]
pub struct Host {
    /// An identifier of the machine that stays the same from boot to boot: 32 hexadecimal digits. Empty if the
    /// machine has none.
    ///
    /// The ID in `/etc/machine-id` is confidential. This one is made from it by the scheme of
    /// `sd_id128_get_machine_app_specific`
    /// (machine-id(5)), and does not reveal it.
    pub id: String,
    /// The identifier of the boot, such as `7a9bbc25-4b5e-4b36-9ee1-ee2f1a1b6a3f`. Empty if the kernel does not tell
    /// it.
    pub boot_id: String,
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
    /// Asks the kernel, and reads the identifiers of the machine and of the boot.
    pub fn read() -> Self {
        let names = uname();
        let info = sysinfo();
        let root = Path::new("/");
        Self {
            id: machine_id(root).unwrap_or_default(),
            boot_id: boot_id(root).unwrap_or_default(),
            name: names.nodename().to_string_lossy().into(),
            kernel: names.release().to_string_lossy().into(),
            architecture: names.machine().to_string_lossy().into(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory_bytes: info.totalram * u64::from(info.mem_unit),
        }
    }
}

/// The application ID of isotherm: a random number that never changes.
const APPLICATION: u128 = 0x5f4d_9a31_c7e2_4b06_8d15_e03a_96b2_7c48;

/// The identifier of the machine whose file system is at `root`, for isotherm alone.
fn machine_id(root: &Path) -> Option<String> {
    let machine = std::fs::read_to_string(root.join("etc/machine-id")).ok()?;
    let machine = hexadecimal(machine.trim())?;
    Some(format!("{:032x}", application_specific(machine, APPLICATION)?))
}

/// The identifier of the boot, in the file system at `root`.
fn boot_id(root: &Path) -> Option<String> {
    let id = std::fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).ok()?;
    let id = id.trim();
    hexadecimal(&id.replace('-', ""))?;
    Some(id.to_owned())
}

/// The number that 32 hexadecimal digits mean. An identifier of zero is not valid.
fn hexadecimal(text: &str) -> Option<u128> {
    let valid = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|&id| valid && id != 0)
}

/// The identifier of a machine for one application, by systemd's scheme: the HMAC-SHA256 of the application's ID with
/// the machine's ID as the key, cut to 128 bits and marked as a random UUID (RFC 9562, version 4).
fn application_specific(machine: u128, application: u128) -> Option<u128> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&machine.to_be_bytes()).ok()?;
    mac.update(&application.to_be_bytes());
    let code = mac.finalize().into_bytes();
    let id = u128::from_be_bytes(*code.first_chunk()?);
    let (version, variant) = ((0xf_u128 << 76, 4_u128 << 76), (3_u128 << 62, 2_u128 << 62));
    Some(id & !version.0 & !variant.0 | version.1 | variant.1)
}

/// The time by the system's clock, in nanoseconds since the Unix epoch; 0 if the clock is before it.
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// The CPU time that the calling thread has taken so far, in user space and in the kernel.
pub fn monitor_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock starts at zero, so `tv_sec` is not negative; `tv_nsec` is below 10⁹.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The clock of the CPU time of a process: what all its threads have taken so far, in user space and in the kernel,
/// with the precision of the scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuClock(nix::time::ClockId);

impl CpuClock {
    /// The clock of the process with this ID. `None` if there is no such process.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        nix::time::ClockId::pid_cpu_clock_id(nix::unistd::Pid::from_raw(pid.cast_signed())).ok().map(Self)
    }

    /// The CPU time so far. `None` if the process has ended.
    pub(crate) fn now(self) -> Option<Duration> {
        Some(self.0.now().ok()?.into())
    }
}

/// The time since the boot of the machine, which the start of a process is counted from, too.
pub fn now_since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Whether this process is in another user namespace than the first one of the machine, where capabilities hold for
/// that namespace only (`user_namespaces(7)`). False if that is not known.
pub fn in_another_user_namespace() -> bool {
    // The kernel numbers the first one so (PROC_USER_INIT_INO).
    let first = "user:[4026531837]";
    std::fs::read_link("/proc/self/ns/user").is_ok_and(|namespace| namespace.as_os_str() != first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system whose file at `path` has this content.
    fn tree(path: &str, content: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
        root
    }

    #[test]
    fn the_machine_has_an_identifier_of_its_own_that_hides_the_one_of_systemd() {
        let root = tree("etc/machine-id", "d2f8b0a94c3e4f6ea1b27c5d8e9f0a31\n");
        assert_eq!(machine_id(root.path()).as_deref(), Some("3b326c17de5e449a957712e4916a4a94"));
    }

    #[test]
    fn a_machine_without_a_valid_identifier_has_none() {
        for content in ["", "uninitialized\n", "1234\n", "+123456789abcdef0123456789abcdef", &"0".repeat(32)] {
            assert_eq!(machine_id(tree("etc/machine-id", content).path()), None, "{content}");
        }
        assert_eq!(machine_id(tempfile::tempdir().unwrap().path()), None);
    }

    #[test]
    fn the_boot_has_the_identifier_of_the_kernel() {
        let path = "proc/sys/kernel/random/boot_id";
        let id = "7a9bbc25-4b5e-4b36-9ee1-ee2f1a1b6a3f";
        assert_eq!(boot_id(tree(path, &format!("{id}\n")).path()).as_deref(), Some(id));
        assert_eq!(boot_id(tree(path, "none\n").path()), None);
        assert_eq!(boot_id(tempfile::tempdir().unwrap().path()), None);
    }
}

//! What `/proc/PID/status` says against acting inside a process.

use std::os::fd::BorrowedFd;

use rustix::io::pread;

use super::message::Refused;

/// Why the process must not be touched, if so. Nothing is allocated.
pub(super) fn why_not(status: BorrowedFd<'_>) -> Option<Refused> {
    let mut room = [0; 4096];
    match pread(status, &mut room, 0) {
        Ok(told) => against(&room[..told]),
        Err(_) => Some(Refused::Gone),
    }
}

fn against(status: &[u8]) -> Option<Refused> {
    let field = |name: &[u8]| {
        let at = status.windows(name.len()).position(|window| window == name)? + name.len();
        status[at..].iter().copied().find(|byte| !byte.is_ascii_whitespace())
    };
    match field(b"\nState:") {
        Some(b'Z' | b'X') => Some(Refused::MainThreadEnded),
        _ if field(b"\nTracerPid:").is_some_and(|digit| digit != b'0') => Some(Refused::Traced),
        // It would make no call before it is continued.
        Some(b'T' | b't') => Some(Refused::Stopped),
        _ if field(b"\nSeccomp:").is_some_and(|digit| digit != b'0') => Some(Refused::Seccomp),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(state: &str, tracer: &str, seccomp: &str) -> Option<Refused> {
        // The name is the process's own choice.
        let name = "Name:\tSeccomp: 2 State: Z";
        let status = format!("{name}\nState:\t{state}\nTgid:\t7\nTracerPid:\t{tracer}\n{seccomp}Cpus_allowed:\tf\n");
        against(status.as_bytes())
    }

    #[test]
    fn only_a_process_that_runs_freely_is_touched() {
        assert_eq!(said("S (sleeping)", "0", "Seccomp:\t0\nSeccomp_filters:\t0\n"), None);
        assert_eq!(said("R (running)", "0", ""), None, "a kernel without seccomp");
        assert_eq!(said("S (sleeping)", "0", "Seccomp:\t2\nSeccomp_filters:\t1\n"), Some(Refused::Seccomp));
        assert_eq!(said("t (tracing stop)", "12", "Seccomp:\t0\n"), Some(Refused::Traced));
        assert_eq!(said("T (stopped)", "0", "Seccomp:\t0\n"), Some(Refused::Stopped));
        assert_eq!(said("Z (zombie)", "0", "Seccomp:\t0\n"), Some(Refused::MainThreadEnded));
    }
}

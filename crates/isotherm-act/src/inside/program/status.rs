//! Reads from `/proc/PID/status` whether a call inside the process is possible.

use super::message::Refused;
use super::sys::pread;

/// Why no call can be made inside the process; `None` if one can. `status` is the open file.
pub(super) fn why_not(status: i32) -> Option<Refused> {
    let mut buffer = [0; 4096];
    match pread(status, &mut buffer, 0) {
        Ok(length) => refusal_of(&buffer[..length]),
        Err(_) => Some(Refused::Gone),
    }
}

fn refusal_of(status: &[u8]) -> Option<Refused> {
    let field = |name: &[u8]| {
        let at = status.windows(name.len()).position(|window| window == name)? + name.len();
        status[at..].iter().copied().find(|byte| !byte.is_ascii_whitespace())
    };
    match field(b"\nState:") {
        Some(b'Z' | b'X') => Some(Refused::MainThreadEnded),
        _ if field(b"\nTracerPid:").is_some_and(|digit| digit != b'0') => Some(Refused::Traced),
        // A stopped process makes no call before it is continued.
        Some(b'T' | b't') => Some(Refused::Stopped),
        _ if field(b"\nSeccomp:").is_some_and(|digit| digit != b'0') => Some(Refused::Seccomp),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_for(state: &str, tracer: &str, seccomp: &str) -> Option<Refused> {
        // A process can choose its name.
        let name = "Name:\tSeccomp: 2 State: Z";
        let status = format!("{name}\nState:\t{state}\nTgid:\t7\nTracerPid:\t{tracer}\n{seccomp}Cpus_allowed:\tf\n");
        refusal_of(status.as_bytes())
    }

    #[test]
    fn calls_are_refused_in_a_process_that_is_traced_stopped_filtered_or_ended() {
        assert_eq!(refusal_for("S (sleeping)", "0", "Seccomp:\t0\nSeccomp_filters:\t0\n"), None);
        assert_eq!(refusal_for("R (running)", "0", ""), None, "a kernel without seccomp");
        assert_eq!(refusal_for("S (sleeping)", "0", "Seccomp:\t2\nSeccomp_filters:\t1\n"), Some(Refused::Seccomp));
        assert_eq!(refusal_for("t (tracing stop)", "12", "Seccomp:\t0\n"), Some(Refused::Traced));
        assert_eq!(refusal_for("T (stopped)", "0", "Seccomp:\t0\n"), Some(Refused::Stopped));
        assert_eq!(refusal_for("Z (zombie)", "0", "Seccomp:\t0\n"), Some(Refused::MainThreadEnded));
    }
}

//! Command lines, as reports show them: the name of the program comes first.

use std::borrow::Cow;

use isotherm_core::{TargetId, sanitise};

/// The path or the name by which a program was executed: the first word of its command line. Processes that change
/// their command line put a colon after the name, such as `postgres: checkpointer`; login shells begin with a hyphen.
pub(crate) fn executed(command: &str) -> &str {
    let first = command.split(' ').next().unwrap_or_default();
    let first = first.strip_suffix(':').unwrap_or(first);
    first.strip_prefix('-').filter(|rest| !rest.is_empty()).unwrap_or(first)
}

/// The name of the program of a command line: the last part of its path.
///
/// ```
/// assert_eq!(isotherm_report::program("/usr/lib/gcc/x86_64-linux-gnu/12/cc1 -O2 a.c -o a.s"), "cc1");
/// assert_eq!(isotherm_report::program("nginx: worker process"), "nginx");
/// ```
pub fn program(command: &str) -> &str {
    let executed = executed(command);
    executed.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(executed)
}

/// What stands for a target and all others of its program: its [`program`], or what it is if it is no process.
pub(crate) fn program_of(id: TargetId, command: &str) -> String {
    match program(command) {
        _ if id.pid().is_none() => id.to_string(),
        "" => NO_COMMAND.into(),
        name => name.into(),
    }
}

/// A process ID for people, with that in the PID namespace of the process if it is another one.
///
/// ```
/// assert_eq!(isotherm_report::shown_pid(1234, Some(7)), "1234 (inside: 7)");
/// ```
pub fn shown_pid(pid: u32, inner_pid: Option<u32>) -> String {
    inner_pid.map_or_else(|| pid.to_string(), |inner| format!("{pid} (inside: {inner})"))
}

/// What stands for an empty command line.
const NO_COMMAND: &str = "(no command)";

/// A command line for people: the name of the program without its directory, then the arguments. What is too long for
/// its place is cut at the end. Control characters are [escaped](sanitise).
///
/// ```
/// let shown = isotherm_report::shown_command("/usr/bin/redis-server 127.0.0.1:6379");
/// assert_eq!(shown, "redis-server 127.0.0.1:6379");
/// ```
pub fn shown_command(command: &str) -> Cow<'_, str> {
    let first = command.find(' ').unwrap_or(command.len());
    let directory = command[..first].trim_end_matches('/').rfind('/').map_or(0, |at| at + 1);
    match &command[directory..] {
        "" => NO_COMMAND.into(),
        shown => sanitise(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_the_last_part_of_the_path_in_the_first_word() {
        let programs = [
            ("make -j2", "make"),
            ("/usr/bin/make -C /a/b", "make"),
            ("./a.out", "a.out"),
            ("postgres: checkpointer ", "postgres"),
            ("-bash", "bash"),
            ("-", "-"),
            ("/", "/"),
            ("", ""),
        ];
        programs.into_iter().for_each(|(command, name)| assert_eq!(program(command), name));
    }

    #[test]
    fn a_shown_command_begins_with_the_program() {
        let shown = [
            ("/usr/lib/gcc/cc1 -o /tmp/a.s", "cc1 -o /tmp/a.s"),
            ("postgres: checkpointer ", "postgres: checkpointer "),
            ("nginx: master process /usr/sbin/nginx", "nginx: master process /usr/sbin/nginx"),
            ("/bin/\x1b[31m x", "\\x1b[31m x"),
            ("/", "/"),
            ("", "(no command)"),
        ];
        shown.into_iter().for_each(|(command, text)| assert_eq!(shown_command(command), text));
    }

    #[test]
    fn a_target_without_a_program_has_a_name() {
        let process = TargetId::process(7, std::time::Duration::ZERO);
        assert_eq!(program_of(process, "/usr/bin/make -j2"), "make");
        assert_eq!(program_of(process, ""), "(no command)");
        assert_eq!(program_of(TargetId::PhysicalMemory, "node"), TargetId::PhysicalMemory.to_string());
    }
}

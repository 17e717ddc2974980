//! Titles of targets: the program first, so that a title that is cut still names it.

use isotherm_core::TargetId;
use isotherm_record::TargetInfo;

use super::{Terminal, cut, width};
use crate::command::{shown_command, shown_pid};

/// The program without its directory, its arguments, and the process ID: `cc1 -quiet main.c, pid 1234`.
pub(crate) fn title(id: TargetId, info: &TargetInfo) -> String {
    title_in(id, info, usize::MAX, &Terminal::default())
}

/// The title in at most `columns`. The arguments are cut at their end.
pub(crate) fn title_in(id: TargetId, info: &TargetInfo, columns: usize, terminal: &Terminal) -> String {
    let pid = id.pid().map_or_else(String::new, |pid| format!(", pid {}", shown_pid(pid, info.inner_pid)));
    let room = columns.saturating_sub(width(&pid));
    // If there is no room for both, the process ID is left out.
    if room < 8 && columns < usize::MAX {
        return cut(&command(id, info), columns, terminal);
    }
    cut(&command(id, info), room, terminal) + &pid
}

/// The command line, without the directory of the program; what a target is that is no process.
fn command(id: TargetId, info: &TargetInfo) -> String {
    if id.pid().is_none() { id.to_string() } else { shown_command(info.command.trim()).into_owned() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(command: &str, columns: usize) -> String {
        let id = TargetId::process(1234, Duration::from_nanos(1));
        let info = TargetInfo { command: command.into(), ..TargetInfo::default() };
        title_in(id, &info, columns, &Terminal::default())
    }

    #[test]
    fn the_program_comes_first_and_arguments_are_cut_at_their_end() {
        let java = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java -Xmx1g -cp /opt/app/lib Main";
        assert_eq!(of(java, usize::MAX), "java -Xmx1g -cp /opt/app/lib Main, pid 1234");
        let cut = of(java, 24);
        assert!(cut.starts_with("java -Xmx") && cut.ends_with(", pid 1234") && width(&cut) <= 24, "{cut}");
        assert_eq!(of("postgres: user db 127.0.0.1/3 idle", 80), "postgres: user db 127.0.0.1/3 idle, pid 1234");
        assert!(of(java, 10).starts_with("java -"), "{}", of(java, 10));
    }

    #[test]
    fn a_command_line_without_a_program_is_shown_as_it_is() {
        assert_eq!(of("", 80), "(no command), pid 1234");
        assert_eq!(of("/", 80), "/, pid 1234");
        assert_eq!(of("a/ b", 80), "a/ b, pid 1234");
        assert_eq!(of("/x/\u{1b}[31mevil", 80), "\\x1b[31mevil, pid 1234");
    }

    #[test]
    fn a_process_of_another_pid_namespace_has_both_ids() {
        let info = TargetInfo { command: "a".into(), inner_pid: Some(7), ..TargetInfo::default() };
        assert_eq!(title(TargetId::process(1234, Duration::ZERO), &info), "a, pid 1234 (inside: 7)");
    }

    #[test]
    fn physical_memory_has_no_process_id() {
        let info = TargetInfo::default();
        assert_eq!(title(TargetId::PhysicalMemory, &info), TargetId::PhysicalMemory.to_string());
    }
}

//! The name of a process. The name and the command line of a process are bytes that it can choose itself.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use isotherm_core::{LONGEST_NAME, start_of, text_of};

use crate::hold::HeldFile;

/// The name of process `pid`, from `comm` below `root`, which stands for `/`. A name that is no UTF-8 is as [`text_of`]
/// has it.
///
/// # Errors
/// Those of open(2) and read(2): `NotFound` if there is no such process.
pub fn process_name(root: &Path, pid: u32) -> io::Result<String> {
    let name = fs::read(root.join(format!("proc/{pid}/comm")))?;
    // The kernel adds a line feed. Others belong to the name.
    Ok(text_of(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
}

/// The command line of process `pid`, with spaces between the arguments, from `cmdline` below `root`, which stands for
/// `/`. If it has none, its name; an empty text if neither can be read. Of a command line of more than 4,096 bytes, the
/// start and `…` are kept.
pub fn command_line(root: &Path, pid: u32) -> String {
    let mut bytes = start_of_command_line(root, pid);
    if bytes.is_empty() {
        // It is empty, too, if the main thread has ended and others go on.
        let id = memory_id(root, pid);
        if id != pid {
            bytes = start_of_command_line(root, id);
        }
    }
    let mut arguments = bytes.split(|byte| *byte == 0).filter(|argument| !argument.is_empty()).peekable();
    if arguments.peek().is_none() {
        return process_name(root, pid).unwrap_or_default();
    }
    let whole = bytes.len() <= LONGEST_NAME;
    let mut joined = arguments.collect::<Vec<_>>().join(&b' ');
    if !whole {
        // Longer than the limit, so that it is cut.
        joined.resize(LONGEST_NAME + 1, b' ');
    }
    start_of(&joined, LONGEST_NAME).into_owned()
}

/// Whether process `pid` has a command line below `root`. It has none while execve(2) is under way, or after its end.
pub fn has_arguments(root: &Path, pid: u32) -> bool {
    !start_of_command_line(root, pid).is_empty()
}

/// The first bytes of `cmdline`, one more than are kept. Empty if it cannot be read.
fn start_of_command_line(root: &Path, id: u32) -> Vec<u8> {
    let read = || {
        // With room for all of it, one read takes it.
        let mut bytes = Vec::with_capacity(LONGEST_NAME + 1);
        let file = HeldFile(File::open(root.join(format!("proc/{id}/cmdline")))?);
        file.take(LONGEST_NAME as u64 + 1).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    read().unwrap_or_default()
}

/// The ID below `proc` whose files show the memory of process `pid`: its own, or that of another thread if the main
/// thread has called `pthread_exit`. The files of the main thread are empty then (`proc_pid_task(5)`).
pub fn memory_id(root: &Path, pid: u32) -> u32 {
    let proc = root.join("proc");
    // The link is there as long as the main thread has memory (proc_pid_exe(5)). Reading it takes much less time.
    if fs::read_link(proc.join(pid.to_string()).join("exe")).is_ok() {
        return pid;
    }
    let state = |id| stat_field(&proc, id, STATE);
    if state(pid).as_deref() != Some("Z") {
        return pid;
    }
    let threads = fs::read_dir(root.join(format!("proc/{pid}/task"))).into_iter().flatten().flatten();
    let mut threads = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    threads.find(|thread| !matches!(state(*thread).as_deref(), Some("Z" | "X") | None)).unwrap_or(pid)
}

/// The number of the field of `stat` with the state of a thread, a letter.
const STATE: usize = 3;

/// A field of `stat` of the process or thread `id` below `proc`, by its number in `proc_pid_stat(5)`, from 3 on. `None`
/// if there is no such process or field.
pub fn stat_field(proc: &Path, id: u32, number: usize) -> Option<String> {
    let stat = fs::read(proc.join(id.to_string()).join("stat")).ok()?;
    // Field 2, the name in parentheses, may contain any byte.
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[name_ends + 1..]).ok()?;
    Some(fields.split_ascii_whitespace().nth(number.checked_sub(3)?)?.to_owned())
}

/// The values of fields of `status` of process `pid`, or `self`, below `proc`, by their names in `proc_pid_status(5)`.
/// `None` if there is no such process, or a field is missing.
pub(crate) fn status_fields<const N: usize>(
    proc: &Path,
    pid: impl std::fmt::Display,
    names: [&str; N],
) -> Option<[String; N]> {
    // The name of the process may contain any byte.
    let status = fs::read(proc.join(pid.to_string()).join("status")).ok()?;
    let mut found = [const { String::new() }; N];
    for (found, name) in found.iter_mut().zip(names) {
        let value = |line: &[u8]| line.strip_prefix(name.as_bytes())?.strip_prefix(b":").map(<[u8]>::to_vec);
        *found = String::from_utf8(status.split(|byte| *byte == b'\n').find_map(value)?).ok()?;
    }
    Some(found)
}

/// The values of one field: as [`status_fields`].
pub(crate) fn status_field(proc: &Path, pid: impl std::fmt::Display, name: &str) -> Option<String> {
    status_fields(proc, pid, [name]).map(|[field]| field)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::bytes_of;

    use super::*;

    fn made(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join("proc").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn names_and_command_lines_are_bytes() {
        let root = made(&[
            ("7/comm", b"\xff) Z\n\n"),
            ("7/stat", b"7 (\xff) Z\\n) S 1 7"),
            ("7/cmdline", b"/bin/\xfe\0\0a\x1b\n\0"),
            ("8/comm", b"kthreadd\n"),
            ("8/stat", b"8 (kthreadd) S 1 7"),
            ("8/cmdline", b""),
        ]);
        let of = |pid| bytes_of(&command_line(root.path(), pid)).into_owned();
        assert_eq!(bytes_of(&process_name(root.path(), 7).unwrap()).as_ref(), b"\xff) Z\n");
        assert_eq!(of(7), b"/bin/\xfe a\x1b\n");
        assert_eq!(of(8), b"kthreadd");
        assert_eq!(of(9), b"");
        process_name(root.path(), 9).unwrap_err();
    }

    #[test]
    fn a_long_command_line_is_cut() {
        let line = [b"/bin/x\0".as_slice(), &vec![b'y'; 1_700_000]].concat();
        let root = made(&[("7/stat", b"7 (x) S 1"), ("7/cmdline", &line), ("8/cmdline", &line[..LONGEST_NAME])]);
        let command = command_line(root.path(), 7);
        assert!(command.starts_with("/bin/x yy") && command.ends_with("y…"), "{command}");
        assert_eq!(command.len(), LONGEST_NAME + "…".len());
        let whole = command_line(root.path(), 8);
        assert!(whole.ends_with('y') && whole.len() == LONGEST_NAME);
    }

    #[test]
    fn the_memory_of_a_process_whose_main_thread_has_ended_is_that_of_another_thread() {
        let root = made(&[
            ("7/stat", b"7 (main) Z 1"),
            ("7/task/7/stat", b"7 (main) Z 1"),
            ("7/task/8/stat", b""),
            ("7/task/9/stat", b""),
            ("8/stat", b"8 (gone) X 1"),
            ("9/stat", b"9 (work) S 1"),
            ("12/stat", b"12 () Z ) R 1"),
            ("13/stat", b"13 (zombie) Z 1"),
            ("13/task/13/stat", b"13 (zombie) Z 1"),
        ]);
        assert_eq!([7, 12, 13, 14].map(|pid| memory_id(root.path(), pid)), [9, 12, 13, 14]);
    }
}

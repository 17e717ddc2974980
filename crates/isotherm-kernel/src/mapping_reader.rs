//! Reads the mappings of one process again and again.
//!
//! `/proc/PID/maps` contains all mappings as text, each with the path of its file. It takes less time to ask the kernel
//! for one mapping after another without its name (`PROCMAP_QUERY`, since Linux 6.11), and then for the names, once for
//! neighbouring mappings of the same program or library.
//!
//! If a process has many mappings of files with long paths, the names can have 100 MB, which takes the kernel a tenth
//! of a second and more. So later readings of a process whose text would be long ask only for the names of the
//! mappings that are new. They also ask for the names of some other mappings, in turns, because a file can be renamed.

use std::fs::File;
use std::io;
use std::sync::Arc;

use isotherm_core::{LONGEST_NAME, Mapping};
use rustix::io::Errno;

use crate::maps::{Entry, KERNEL_SPACE, MappingNames, NameRoom, Vma, read_entries};
use crate::procmap;
use crate::scheduling::UrgentTurns;

/// A text of more than about this many bytes is long.
const LONG: usize = 1 << 20;

/// The bytes of a line of the text without its name, about.
const LINE: usize = 60;

/// One part in this many of the known names is asked for in a reading.
const TURNS: usize = 64;

/// The name of a mapping whose path is so long that the kernel does not tell it.
const TOO_LONG: &str = "…";

/// Reads the mappings of a process, and remembers their names.
#[derive(Debug, Default)]
pub(crate) struct MappingReader {
    names: MappingNames,
    /// The mappings that were read last, of a process whose text is long. Otherwise none.
    known: Vec<Entry>,
    /// Which part of the known names is asked for next.
    turn: usize,
}

impl MappingReader {
    /// The mappings in `maps`, which is `/proc/PID/maps`, as [`read_mappings`](crate::read_mappings) has them. No
    /// mappings if the process has no memory any longer.
    ///
    /// # Errors
    /// That of read(2) or ioctl(2). `InvalidData` if a line is not as the kernel writes it.
    pub(crate) fn read(&mut self, maps: &File) -> io::Result<Arc<[Mapping]>> {
        let known = std::mem::take(&mut self.known);
        let entries = match self.ask(maps, &known) {
            Ok(Some(entries)) => entries,
            Ok(None) => read_entries(maps, &mut self.names)?,
            // The text is empty then.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Vec::new(),
            Err(error) => return Err(error),
        };
        let mappings = entries.iter().map(|entry| entry.clone().into_mapping()).collect();
        if entries.iter().map(|entry| entry.name.len() + LINE).sum::<usize>() > LONG {
            self.known = entries;
        }
        Ok(mappings)
    }

    /// Forgets the names that nobody else has.
    pub(crate) fn tidy(&mut self) {
        self.names.tidy();
    }

    /// Asks for the mappings, and for the names that are not among the known ones. `None` if the kernel does not answer
    /// such questions, or if none is known and one is too long to be asked for.
    fn ask(&mut self, maps: &File, known: &[Entry]) -> io::Result<Option<Vec<Entry>>> {
        self.turn = (self.turn + 1) % TURNS;
        let mut before = known.iter().peekable();
        let mut found: Vec<(Vma, Option<Arc<str>>)> = Vec::with_capacity(known.len());
        let mut asked = Vec::new();
        let mut at = 0;
        // The kernel holds the memory map, or the mapping, while it answers. It does not wait for a processor
        // meanwhile.
        let mut urgent = UrgentTurns::begin();
        loop {
            urgent.give_way();
            let vma = match procmap::next(maps, at) {
                Ok(vma) => vma,
                Err(Errno::NOENT) => break,
                Err(Errno::NOTTY) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            };
            // One that has grown downwards meanwhile, or has become one with the mapping before it.
            let Some(vma) = vma.rest_from(at).filter(|vma| vma.range.end() < KERNEL_SPACE) else { break };
            at = vma.range.end();
            while before.next_if(|entry| entry.vma.range.start() < vma.range.start()).is_some() {}
            let name = before.peek().filter(|entry| entry.vma == vma).map(|entry| Arc::clone(&entry.name));
            if name.is_none() || found.len() % TURNS == self.turn {
                asked.push(found.len());
            }
            found.push((vma, name));
        }
        drop(urgent);
        let mut room = NameRoom::default();
        let mut next_asked = asked.iter().peekable();
        for (nth, (_, name)) in found.iter().enumerate() {
            if next_asked.next_if_eq(&&nth).is_none()
                && let Some(name) = name
            {
                room.take(name.len());
            }
        }
        let mut buffer = vec![0; LONGEST_NAME];
        for nth in asked {
            // Otherwise the name before may be an old one.
            if known.is_empty()
                && let Some(same) = same_name(&found, nth)
            {
                room.take(same.len());
                found[nth].1 = Some(same);
                continue;
            }
            let (vma, name) = &mut found[nth];
            match procmap::name(maps, vma, &mut buffer) {
                Ok(Some(new)) => *name = Some(self.names.share(&room.cut(&new))),
                Ok(None) | Err(Errno::NOENT) => *name = None,
                // The text has the end of it.
                Err(Errno::NAMETOOLONG) if known.is_empty() => return Ok(None),
                Err(Errno::NAMETOOLONG) => *name = name.take().or_else(|| Some(self.names.share(TOO_LONG))),
                Err(errno) => return Err(errno.into()),
            }
        }
        // One without a name is gone.
        Ok(Some(found.into_iter().filter_map(|(vma, name)| Some(Entry { vma, name: name? })).collect()))
    }
}

/// The name of the mapping before this one, if both are private mappings of the same file. Shared anonymous memory is a
/// file, too, whose parts can have different names (`PR_SET_VMA_ANON_NAME`).
fn same_name(found: &[(Vma, Option<Arc<str>>)], nth: usize) -> Option<Arc<str>> {
    let (before, name) = found.get(nth.checked_sub(1)?)?;
    let (this, _) = found.get(nth)?;
    let of_a_file = |vma: &Vma| !vma.permissions.shared && vma.origin.file.inode != 0;
    name.clone().filter(|_| of_a_file(before) && of_a_file(this) && before.origin.file == this.origin.file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    use isotherm_testing::{installed_or_skip, or_skip};

    use super::*;

    /// A Python program that executes each line, and then answers.
    struct Python(Child, BufReader<std::process::ChildStdout>);

    impl Python {
        fn start() -> Result<Self, String> {
            let script = "
import ctypes, mmap, os, sys
kept = []
def more(count, path):
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 4096)
    # Neighbours have other permissions, so that the kernel does not join them.
    kept.extend(mmap.mmap(file, 4096, prot=mmap.PROT_READ | nth % 2 * mmap.PROT_WRITE) for nth in range(count))
for line in sys.stdin:
    exec(line)
    print('done', flush=True)";
            let mut command = Command::new("python3");
            command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().map_err(|error| format!("python3 cannot be run: {error}"))?;
            let answers = BufReader::new(child.stdout.take().unwrap());
            Ok(Self(child, answers))
        }

        fn does(&mut self, line: &str) {
            writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
            let mut answer = String::new();
            self.1.read_line(&mut answer).unwrap();
            assert_eq!(answer, "done\n");
        }

        fn maps(&self) -> File {
            File::open(format!("/proc/{}/maps", self.0.id())).unwrap()
        }
    }

    impl Drop for Python {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The directory with the longest path that a file can be opened in by its path, more or less.
    fn deep() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let mut path = directory.path().to_owned();
        while path.as_os_str().len() < 3_700 {
            path.push("d".repeat(200));
        }
        std::fs::create_dir_all(&path).unwrap();
        (directory, path)
    }

    /// Whether the kernel tells mappings without their names. An error is the reason to skip the test.
    fn kernel_answers() -> Result<(), String> {
        procmap::next(&File::open("/proc/self/maps").unwrap(), 0)
            .map(drop)
            .map_err(|errno| format!("{errno}: {errno:?}"))
    }

    /// What the text says.
    fn text(python: &Python) -> Vec<Mapping> {
        let read = read_entries(&python.maps(), &mut MappingNames::default()).unwrap();
        read.into_iter().map(Entry::into_mapping).collect()
    }

    #[test]
    fn mappings_with_long_names_are_as_the_text_has_them_when_they_come_go_and_change() {
        or_skip!(kernel_answers());
        let (_directory, deep) = deep();
        let mut python = installed_or_skip!(Python::start());
        // It has begun.
        python.does("pass");
        let mut reader = MappingReader::default();
        assert_eq!(reader.read(&python.maps()).unwrap()[..], text(&python));
        assert!(reader.known.is_empty(), "a short text is read each time");
        let file = |name: &str| format!("{:?}", deep.join(name));
        python.does(&format!("more(600, {})", file("a\\nb")));
        for line in [
            String::new(),
            format!("more(100, {})", file("other")),
            "kept[50:90] = []".into(),
            "heap = [bytes(100_000) for _ in range(100)]; anonymous = mmap.mmap(-1, 1 << 24)".into(),
            "os.unlink(b'never') if False else kept.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ))".into(),
            "ctypes.CDLL(None).munmap(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(anonymous))), 4096)"
                .into(),
        ] {
            python.does(&line);
            assert_eq!(reader.read(&python.maps()).unwrap()[..], text(&python), "{line}");
            assert!(!reader.known.is_empty());
        }
    }

    #[test]
    fn new_names_of_known_mappings_are_found_in_turns() {
        or_skip!(kernel_answers());
        let (_directory, deep) = deep();
        let mut python = installed_or_skip!(Python::start());
        let path = deep.join("old");
        python.does(&format!("more(600, {path:?})"));
        let mut reader = MappingReader::default();
        let named = |mappings: &[Mapping], end: &str| mappings.iter().filter(|one| one.name.ends_with(end)).count();
        assert_eq!(named(&reader.read(&python.maps()).unwrap(), "/old"), 600);
        std::fs::rename(&path, deep.join("new")).unwrap();
        let first = reader.read(&python.maps()).unwrap();
        assert!((1..100).contains(&named(&first, "/new")), "{}", named(&first, "/new"));
        for _ in 1..TURNS {
            reader.read(&python.maps()).unwrap();
        }
        let last = reader.read(&python.maps()).unwrap();
        assert_eq!((named(&last, "/new"), last[..] == text(&python)[..]), (600, true));
    }

    #[test]
    fn what_is_kept_of_the_names_has_the_same_bound_whether_they_are_read_or_asked_for() {
        or_skip!(kernel_answers());
        let (_directory, deep) = deep();
        let mut python = installed_or_skip!(Python::start());
        // Each file has a name of its own.
        let more = |from: u32| format!("for i in range({from}, {from} + 2000): more(2, {:?} + str(i))", deep.join("f"));
        python.does("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (16384, 16384))");
        python.does(&more(0));
        let mut reader = MappingReader::default();
        let bytes = |mappings: &[Mapping]| -> usize {
            let names: std::collections::HashSet<_> = mappings.iter().map(|mapping| &*mapping.name).collect();
            names.into_iter().map(str::len).sum()
        };
        assert!(bytes(&reader.read(&python.maps()).unwrap()) > 4 << 20);
        python.does(&more(2000));
        for _ in 0..TURNS {
            let asked = reader.read(&python.maps()).unwrap();
            assert!(asked.len() > 8000 && bytes(&asked) < (8 << 20) + 8000 * 70, "{}", bytes(&asked));
        }
    }

    #[test]
    fn a_process_that_has_ended_has_no_mappings() {
        or_skip!(kernel_answers());
        let (_directory, deep) = deep();
        let mut python = installed_or_skip!(Python::start());
        python.does(&format!("more(600, {:?})", deep.join("file")));
        let maps = python.maps();
        let mut reader = MappingReader::default();
        assert!(reader.read(&maps).unwrap().len() > 600);
        python.0.kill().unwrap();
        python.0.wait().unwrap();
        assert!(reader.read(&maps).unwrap().is_empty());
        assert!(reader.known.is_empty());
    }
}

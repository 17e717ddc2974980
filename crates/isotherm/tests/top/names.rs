//! Names that processes choose themselves.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use isotherm_testing::installed_or_skip;

use crate::common::{Kept, LEADERLESS, ODD_NAMES, Place, python};
use crate::user::{FAST, Shown, User};

/// A target whose name, arguments and files have odd names.
fn odd(place: &Place) -> Result<Kept, String> {
    let script = ODD_NAMES.replace(
        "print(",
        "
names = [b'<b>&amp;', '漢字かな漢字'.encode(), '\\u202e\\u200bx\\ufe0f'.encode(), b'\\x9b2J\\x07\\r\\x1b]0;x\\x1b\\\\']
kept = []
for name in names:
    file = os.open(b'odd' + name, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 8 << 20)
    kept.append(mmap.mmap(file, 8 << 20))
    kept[-1].write(b'x' * (8 << 20))
print(",
    );
    let arguments =
        [b"a\xff\x1b]0;x\x07".as_slice(), "漢\u{202e}字".as_bytes(), b"\x1b[31m\x1b[3J"].map(OsStr::from_bytes);
    let in_place = |command: &mut Command| _ = command.current_dir(place.dir.path()).args(arguments);
    python(&script, in_place)
}

/// What the terminal got that isotherm does not write itself: bytes that are no UTF-8, control characters other than
/// line ends and the start of sequences, sequences with another end than those of colours and the cursor, characters
/// that are invisible or change the direction of text.
fn foreign(raw: &[u8]) -> Option<String> {
    let Ok(text) = std::str::from_utf8(raw) else { return Some("no UTF-8".into()) };
    let mut parts = text.split('\x1b');
    let plain = |text: &str| text.chars().find(|&c| !"\r\n".contains(c) && isotherm_core::is_unsafe(c));
    let first = parts.next().and_then(plain).map(|c| format!("{c:?}"));
    first.or_else(|| {
        parts.find_map(|part| {
            let Some(sequence) = part.strip_prefix('[') else { return Some(format!("ESC {part:?}")) };
            let end = sequence.find(|c: char| c.is_ascii_alphabetic())?;
            let (parameters, rest) = sequence.split_at(end);
            let known = match rest.as_bytes()[0] {
                // 31, red of the terminal's own colours, comes from names only.
                b'm' => parameters != "31",
                // isotherm clears the screen.
                b'J' => parameters == "2",
                b'H' | b'h' | b'l' | b'A' | b'B' | b'C' | b'D' | b'K' => true,
                _ => false,
            };
            (!known).then(|| format!("ESC {part:?}")).or_else(|| plain(&rest[1..]).map(|c| format!("{c:?}")))
        })
    })
}

#[track_caller]
fn has_nothing_foreign(user: &User) {
    let seen = user.seen.lock().unwrap();
    // The last character may be a part of one.
    let whole = seen.raw.iter().rposition(|byte| *byte < 0x80).map_or(0, |at| at + 1);
    assert_eq!(foreign(&seen.raw[..whole]), None);
}

/// The column of the screen where `text` begins in the line that contains all of `words`.
fn column(screen: &Shown, text: &str, words: &[&str]) -> Option<u16> {
    let (rows, columns) = screen.0.size();
    (0..rows).find_map(|row| {
        let cells = (0..columns).map(|column| (column, screen.0.cell(row, column).map_or("", |cell| cell.contents())));
        // An empty cell is a space, or the second half of a wide character.
        let is_second = |column: u16| screen.0.cell(row, column).is_some_and(|cell| cell.is_wide_continuation());
        let mut line = String::new();
        let mut starts = Vec::new();
        for (column, cell) in cells.filter(|&(column, _)| !is_second(column)) {
            let cell = if cell.is_empty() { " " } else { cell };
            starts.extend(std::iter::repeat_n(column, cell.len()));
            line.push_str(cell);
        }
        words.iter().all(|word| line.contains(word)).then(|| line.find(text).map(|at| starts[at])).flatten()
    })
}

#[test]
fn odd_names_of_processes_and_files_are_harmless_and_columns_stay_aligned() {
    let place = Place::new();
    let (one, two) = (installed_or_skip!(odd(&place)), installed_or_skip!(odd(&place)));
    let pids = [&one, &two].map(|target| target.0.id().to_string());
    std::fs::write(
        place.path("odd.yaml"),
        "- {name: \"a\\e[31m\\u202e漢字\", action: stat}\n- {name: other, action: stat}\n",
    )
    .unwrap();
    let mut user =
        User::runs(&place, &[&FAST[..], &["--schemes", "odd.yaml", "-p", &pids[0], "-p", &pids[1]]].concat());
    user.reads("watched");
    user.sees("the titles are above the columns", |screen| {
        let command = column(&screen, "command", &["pid", "watched"]);
        command.is_some() && pids.iter().all(|pid| column(&screen, "python3 -c", &[pid, " s  "]) == command)
    });
    user.types("t");
    user.reads("work.set");
    // The largest mappings come first.
    user.types("ss");
    user.resizes(160, 60);
    user.types("\x0c");
    user.sees("all files have a line, and it begins below the title", |screen| {
        let names = ["odd<b>&amp;", "odd漢字かな漢字", "odd\\u{202e}\\u{200b}x\\u{fe0f}", "odd\\x9b2J"];
        let start = column(&screen, "mapping", &["▾size"]);
        start.is_some() && names.iter().all(|name| column(&screen, "/", &["8 MiB", name]) == start)
    });
    has_nothing_foreign(&user);
    // The views of schemes.
    for (keys, word) in [("a", "recently"), ("1", "1 a\\x1b[31m"), ("2", "other last at"), ("a", "mapping")] {
        user.types(keys);
        user.reads(word);
    }
    // The other target, the tree of cgroups, and one of the files alone.
    for (keys, word) in [("\t", "of 2, Tab]"), ("g", "(2)"), ("t", "mapping"), ("2", ": 8 MiB ")] {
        user.types(keys);
        user.reads(word);
    }
    has_nothing_foreign(&user);
    for (columns, rows) in [(40, 20), (30, 50), (200, 60)] {
        user.resizes(columns, rows);
        user.types("\x0c");
        user.sees("the title", |screen| screen.lines()[0].starts_with(" isotherm"));
    }
    drop((one, two));
    user.reads("no target is left");
    has_nothing_foreign(&user);
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
    has_nothing_foreign(&user);
}

#[test]
fn a_process_whose_main_thread_has_ended_is_shown_until_it_ends() {
    let place = Place::new();
    let mut target = installed_or_skip!(python(LEADERLESS, |_| {}));
    let pid = target.0.id().to_string();
    let mut user = User::runs(&place, &[&FAST[..], &["--pid", &pid]].concat());
    user.reads(&format!("pid {pid}: python3 -c"));
    user.sees("its memory has lines", |screen| screen.contains("[stack]") && screen.contains("MiB"));
    target.0.kill().unwrap();
    target.0.wait().unwrap();
    user.reads("no target is left");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

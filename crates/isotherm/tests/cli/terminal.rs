//! The output of isotherm on pseudo-terminals of different sizes, and its reaction to keys.

use std::io::{Read, Write};

use isotherm_record::{Ending, Recording};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};

use crate::common::{self, ISOTHERM, Place};

/// Runs isotherm on a terminal of this size. `type_after` has a text, and keys that are typed once the text is in the
/// output. Returns the output and the exit status.
fn on_terminal(
    place: &Place,
    (columns, rows): (u16, u16),
    arguments: &[&str],
    type_after: Option<(&str, &str)>,
) -> (String, u32) {
    let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
    let terminal = native_pty_system().openpty(size).unwrap();
    let mut command = CommandBuilder::new(ISOTHERM);
    command.args(arguments);
    command.cwd(place.dir.path());
    command.env("TERM", "xterm-256color");
    command.env("LC_ALL", "C.UTF-8");
    command.env_remove("COLORTERM");
    let mut child = terminal.slave.spawn_command(command).unwrap();
    drop(terminal.slave);
    let mut keyboard = terminal.master.take_writer().unwrap();
    let mut screen = terminal.master.try_clone_reader().unwrap();
    let mut output = Vec::new();
    let mut typed = false;
    let mut bytes = [0; 4096];
    // The read fails after the last process on the terminal has ended.
    while let Ok(count @ 1..) = screen.read(&mut bytes) {
        output.extend_from_slice(&bytes[..count]);
        if let Some((text, keys)) = type_after
            && !typed
            && String::from_utf8_lossy(&output).contains(text)
        {
            keyboard.write_all(keys.as_bytes()).unwrap();
            typed = true;
        }
    }
    let status = child.wait().unwrap().exit_code();
    (String::from_utf8_lossy(&output).into_owned(), status)
}

fn record(place: &Place) {
    assert_eq!(place.run(&["record", "--", "sleep", "1"]).status, 0);
}

#[test]
fn a_report_fits_terminals_of_any_width() {
    let place = Place::new();
    record(&place);
    for columns in [10, 20, 40, 80, 200] {
        for kind in ["heatmap", "wss", "regions", "summary", "overhead"] {
            let (output, status) = on_terminal(&place, (columns, 24), &["report", kind], None);
            assert_eq!(status, 0, "{kind} on {columns} columns: {output}");
            let mut screen = vt100::Parser::new(1000, 1000, 0);
            screen.process(output.as_bytes());
            let widest = screen.screen().rows(0, 1000).map(|row| row.trim_end().chars().count()).max().unwrap();
            // The labels of the report overhead are wider than ten columns.
            let limit = if kind == "overhead" { columns.max(20) } else { columns };
            assert!(widest <= usize::from(limit), "{kind} on {columns} columns is {widest} wide:\n{output}");
        }
    }
}

#[test]
fn a_heatmap_has_the_colours_of_the_terminal() {
    let place = Place::new();
    record(&place);
    let (output, _) = on_terminal(&place, (80, 24), &["report", "heatmap"], None);
    assert!(output.contains("\x1b[48;5;") || output.contains("\x1b[38;5;"), "256 colours: {output:?}");
    let plain = place.run(&["report", "heatmap"]).out;
    assert!(!plain.contains('\x1b') && plain.contains('0'), "digits where there is no terminal: {plain:?}");
}

#[test]
fn pictures_and_pages_are_not_written_to_a_terminal() {
    let place = Place::new();
    record(&place);
    let of = |format| ["report", "heatmap", "--format", format];
    for arguments in [&of("png")[..], &["report", "html"]] {
        let (output, status) = on_terminal(&place, (80, 24), arguments, None);
        assert_eq!(status, 2);
        assert!(output.contains("-o"), "{output}");
    }
}

#[test]
fn progress_is_shown_and_the_recording_is_complete_after_control_c() {
    for columns in [80, 10] {
        let place = Place::new();
        let mut sleep = common::Kept(std::process::Command::new("sleep").arg("1000").spawn().unwrap());
        let pid = sleep.0.id().to_string();
        let (output, status) = on_terminal(&place, (columns, 24), &["record", "--pid", &pid], Some(("0.", "\x03")));
        assert_eq!(status, 0, "{output}");
        assert!(columns < 80 || output.contains("regions") && output.contains("working set"), "{output}");
        assert!(output.contains("isotherm report"), "the next command is suggested: {output}");
        assert_eq!(Recording::open(&place.path("isotherm.rec")).unwrap().ending(), Ending::Whole);
        assert!(sleep.0.try_wait().unwrap().is_none(), "the target continues");
        let (quiet, _) = on_terminal(&place, (80, 24), &["record", "--quiet", "--pid", &pid, "--duration", "1s"], None);
        assert_eq!(quiet, "");
    }
}

#[test]
fn control_c_reaches_a_command_once() {
    let place = Place::new();
    // The terminal sends the signal to the command as well, so isotherm must not send it again.
    // isotherm handles signals once the script runs; the script is ready a little later.
    let script = "count=0; trap 'count=$((count + 1)); echo got $count' INT; sleep 0.5; echo ready; \
                  i=0; while [ $i -lt 20 ]; do sleep 0.1; i=$((i + 1)); done; exit 5";
    let (output, status) =
        on_terminal(&place, (80, 24), &["record", "--", "sh", "-c", script], Some(("ready", "\x03")));
    assert_eq!(status, 5, "{output}");
    assert!(output.contains("got 1") && !output.contains("got 2"), "{output}");
}

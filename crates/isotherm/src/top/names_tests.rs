//! Odd names leave everything else on the screen where it is, and reach the terminal only as harmless characters.

use std::sync::Arc;

use isotherm_core::{Mapping, is_unsafe};
use isotherm_record::TargetInfo;
use isotherm_report::{Colour, sanitise, width};
use isotherm_run::{Event, Severity};

use super::super::app::App;
use super::super::fixtures::{BASE, MIB, activity, app, notice, process, range, record, report};
use super::super::keys::Action;
use super::*;

/// Control characters, escape sequences, bytes that are no text, markup, wide and invisible characters, characters
/// that change the direction of text, and combining ones. Each is a word.
const ODD: [&str; 7] = [
    "a\x1b[31m\x1b]0;x\x07\r\n\u{9b}2Jz",
    "\\xff\\xfe\x7f",
    "<b>&amp;{red}%n",
    "漢字かな漢字",
    "\u{202e}\u{200b}\u{feff}\u{ad}x\u{fe0f}\u{e0041}",
    "e\u{301}\u{300}o\u{308}",
    "👍🏽❤️👩‍🚀",
];

/// A screen where a process, its command line, its cgroup, its memory, a scheme and a message have this name.
fn all_named(name: &str, size: (u16, u16), colour: Colour) -> App {
    let mut app = app(size, colour, 0, &[]);
    for nth in 1..=20 {
        let mut record = record(nth, &[7, 8]);
        let info = |pid| {
            let (command, cgroup) = (format!("{name} {name}"), Some(format!("/{name}")));
            (process(pid), Arc::new(TargetInfo { command, cgroup, ..TargetInfo::default() }))
        };
        record.infos = [info(7), info(8)].into();
        for target in &mut record.snapshot.targets {
            let mapping = Mapping::anonymous(range(BASE, 64 * MIB));
            target.mappings = [Mapping { name: format!("/{name}").into(), ..mapping }].into();
        }
        app.event(Event::Snapshot(Arc::new(record)));
    }
    for second in [1, 2] {
        let mut report = report(name);
        report.total.tried_bytes = second * MIB;
        app.event(Event::Activity(Arc::new(activity(second, vec![report]))));
    }
    app
}

fn drawn(app: &App) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, app.size.0, app.size.1));
    draw(app, &mut buffer);
    buffer
}

/// The text of each cell. That of a wide character has two.
fn cells(buffer: &Buffer) -> Vec<&str> {
    let mut cells: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
    for at in 1..cells.len() {
        if width(cells[at - 1]) == 2 {
            cells[at] = "";
        }
    }
    cells
}

#[test]
fn odd_names_are_harmless_and_leave_all_else_in_its_place() {
    let views: [&[Action]; 6] = [
        &[],
        &[Action::Processes],
        &[Action::Group],
        &[Action::Schemes],
        &[Action::Line(0), Action::Down, Action::Select],
        &[Action::Processes, Action::NextTarget, Action::Line(1)],
    ];
    for (name, colour) in ODD.into_iter().flat_map(|name| [(name, Colour::True), (name, Colour::None)]) {
        // A name of as many columns, of a character that nothing else on the screen has.
        let columns = if colour == Colour::None { sanitise(name).chars().count() } else { width(&sanitise(name)) };
        let plain = "Q".repeat(columns);
        for (size, actions) in [(80, 24), (100, 40), (120, 40)].into_iter().flat_map(|size| views.map(|a| (size, a))) {
            let [odd, plain] = [name, &plain].map(|name| {
                let mut app = all_named(name, size, colour);
                for &action in actions {
                    app.act(action);
                }
                drawn(&app)
            });
            let [odd, plain] = [&odd, &plain].map(cells);
            let bad = odd.iter().find(|cell| cell.contains(is_unsafe) || colour == Colour::None && !cell.is_ascii());
            assert_eq!(bad, None, "{name:?}");
            assert!(odd != plain, "{name:?} is shown in {actions:?}");
            for (at, (odd, plain)) in odd.iter().zip(&plain).enumerate() {
                // A name that is cut before a wide character ends one column earlier.
                let same = odd == plain || ["Q", "…", "~"].contains(plain);
                let (row, column) = (at / usize::from(size.0), at % usize::from(size.0));
                assert!(same, "{name:?} in {actions:?}, {size:?}: {odd:?} for {plain:?} at {column}, {row}");
            }
        }
    }
}

#[test]
fn odd_names_in_messages_are_harmless_and_within_their_lines() {
    for (name, colour) in ODD.into_iter().flat_map(|name| [(name, Colour::True), (name, Colour::None)]) {
        let mut app = app((100, 40), colour, 3, &[7]);
        app.event(notice(Severity::Warning, &format!("{}\nthe end of the message", name.repeat(12).replace('\n', ""))));
        app.ended = Some(format!("process 7 ({name}) has ended"));
        let buffer = drawn(&app);
        let shown = cells(&buffer).concat();
        assert!(!shown.contains(is_unsafe), "{name:?}");
        assert!(shown.contains("the end of the message"), "{name:?}");
        if colour == Colour::None {
            assert!(shown.is_ascii(), "{name:?}: {shown}");
            continue;
        }
        // Nothing of a line is beyond the edge.
        let expected = sanitise(&name.replace('\n', "")).repeat(12);
        assert!(shown.replace(' ', "").contains(&expected), "{name:?}: {shown}");
    }
}

#[test]
fn a_very_long_name_is_cut_in_one_pass() {
    // A search for the place of the cut that measures each rest takes minutes.
    let name = "漢".repeat(100_000);
    for (colour, cut) in [(Colour::True, "…漢漢"), (Colour::None, "~??")] {
        let mut app = all_named(&name, (120, 40), colour);
        // The table of mappings.
        app.act(Action::Processes);
        let shown = cells(&drawn(&app)).concat();
        assert!(shown.contains(cut), "{shown}");
    }
}

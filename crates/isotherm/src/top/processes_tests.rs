//! Which processes the table shows, and in which order.

use super::super::app::{App, Table};
use super::super::fixtures::{AGGREGATION, MIB, app, finding, named, process};
use super::super::keys::Action;
use super::super::sort::Column;
use super::*;

const SIZE: (u16, u16) = (100, 40);

fn made(aggregations: u32, pids: &[u32]) -> App {
    app(SIZE, isotherm_report::Colour::None, aggregations, pids)
}

/// The lines as text: process IDs, or the paths of cgroups with the number of their processes.
fn shown(app: &App) -> Vec<String> {
    let text = |line: &Line<'_>| {
        let text = match &line.what {
            Entry::Process(process) => process.id.pid().unwrap_or(0).to_string(),
            Entry::Cgroup(group) => format!("{} ({})", group.name, group.processes),
        };
        format!("{:1$}{text}", "", 2 * line.depth)
    };
    app.process_lines().iter().map(text).collect()
}

#[test]
fn a_run_of_several_targets_begins_with_their_table() {
    let mut one = made(1, &[7]);
    assert_eq!(one.view.table, Table::Mappings);
    one.event(finding(2, &[7, 8]));
    assert_eq!(one.view.table, Table::Mappings, "the table does not change while it is looked at");
    let mut two = made(1, &[7, 8]);
    assert_eq!(two.view.table, Table::Processes);
    for expected in [Table::Mappings, Table::Processes] {
        two.act(Action::Processes);
        assert_eq!(two.view.table, expected);
    }
}

#[test]
fn a_process_is_new_for_ten_seconds_unless_the_run_began_with_it() {
    let mut app = made(10, &[7]);
    let new = |app: &App| -> Vec<bool> {
        let new = |line: &Line<'_>| matches!(&line.what, Entry::Process(process) if process.new);
        app.process_lines().iter().map(new).collect()
    };
    (11..=109).for_each(|nth| app.event(finding(nth, &[7, 8])));
    assert_eq!(new(&app), [false, true]);
    let lines = app.process_lines();
    let Entry::Process(joined) = &lines[1].what else { panic!("a process") };
    assert_eq!((joined.id, joined.watched), (process(8), AGGREGATION * 99));
    drop(lines);
    app.event(finding(110, &[7, 8]));
    assert_eq!(new(&app), [false, false]);
}

#[test]
fn a_process_that_has_ended_leaves_the_table_and_keeps_its_history() {
    let mut app = made(10, &[7, 8]);
    app.event(finding(11, &[8]));
    assert_eq!(shown(&app), ["8"]);
    assert_eq!(app.model().tracks.len(), 2);
}

#[test]
fn processes_are_sorted_by_the_selected_column() {
    let mut app = made(0, &[]);
    app.event(named(1, &[(7, "/a/b", "/x", 3), (8, "/a/c", "/x", 9), (9, "/z/a", "/x", 1)]));
    for (column, order) in [
        (Column::Size, ["8", "7", "9"]),
        (Column::WorkingSet, ["8", "7", "9"]),
        (Column::Hot, ["8", "7", "9"]),
        // All have the same rate, so the names count: those of the programs, without directories.
        (Column::Rate, ["9", "7", "8"]),
        (Column::Name, ["9", "7", "8"]),
    ] {
        app.view.process_sort = Sort { column, reversed: false };
        assert_eq!(shown(&app), order, "{column:?}");
        app.act(Action::Reverse);
        assert_eq!(shown(&app), [order[2], order[1], order[0]], "{column:?}");
    }
    app.act(Action::NextSort);
    assert_eq!(app.view.process_sort.column, Column::Size, "the columns go round");
    assert_eq!(app.view.sort, Sort::default(), "that of mappings stays");
}

#[test]
fn groups_have_the_sums_of_their_processes() {
    let mut app = made(0, &[]);
    app.event(named(1, &[(7, "b", "/one", 3), (8, "a", "/two", 9), (9, "c", "/one", 8)]));
    app.act(Action::Group);
    assert_eq!(shown(&app), ["/ (3)", "  one (2)", "    9", "    7", "  two (1)", "    8"]);
    let lines = app.process_lines();
    let whole = lines[1].figures();
    assert_eq!((whole.total.size, whole.resident), ((11 * MIB) as f64, Some((11 * MIB) as f64)));
    assert_eq!(whole.rate, 1.0);
    assert_eq!(lines[1].target(), None);
    drop(lines);
    app.act(Action::Line(1));
    assert_eq!(app.track().map(|track| track.id), Some(process(7)), "groups have no number");
    app.act(Action::Group);
    assert_eq!(shown(&app), ["8", "9", "7"]);
}

#[test]
fn cgroups_are_a_tree_in_which_those_without_processes_are_joined_with_the_only_one_below() {
    let mut app = made(0, &[]);
    let made = [
        (1, "a", "/pods/one/app", 3),
        (2, "b", "/pods/one/app/worker", 9),
        (3, "c", "/pods/two/app", 8),
        (4, "d", "/pods/one", 1),
        (5, "e", "/pods/twofold", 2),
    ];
    app.event(named(1, &made));
    app.act(Action::Group);
    assert_eq!(app.view.table, Table::Processes, "the tree is shown from any table");
    let expected = [
        "/pods (5)",
        "  one (3)",
        "    4",
        "    app (2)",
        "      1",
        "      worker (1)",
        "        2",
        "  two/app (1)",
        "    3",
        "  twofold (1)",
        "    5",
    ];
    assert_eq!(shown(&app), expected);
    app.event(named(2, &[(1, "a", "/", 3), (2, "b", "/init", 1)]));
    assert_eq!(shown(&app), ["/ (2)", "  1", "  init (1)", "    2"]);
    app.event(named(3, &[(1, "a", "/init/", 3)]));
    assert_eq!(shown(&app), ["/init (1)", "  1"]);
}

#[test]
fn targets_without_a_history_are_in_the_table_and_cannot_be_selected() {
    let pids: Vec<u32> = (1..=1000).collect();
    let mut app = made(3, &pids);
    let lines = app.process_lines();
    assert_eq!(lines.len(), 1000);
    assert_eq!(lines.iter().filter(|line| line.target().is_some()).count(), app.model().tracks.len());
    let sizes = lines.iter().map(|line| line.figures().total.size / MIB as f64);
    assert!(sizes.into_iter().all(|size| size == 69.0), "all have figures");
    drop(lines);
    app.act(Action::Line(500));
    assert_eq!(app.track().map(|track| track.id), Some(process(1)));
    app.event(finding(4, &pids[..999]));
    assert_eq!(app.process_lines().len(), 999);
}

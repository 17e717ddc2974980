//! How events and keys change the state.

use super::super::fixtures::{AGGREGATION, BASE, MIB, STACK, acting, app, finding, notice, process, range, record};
use super::super::model::Model;
use super::super::sort::Column;
use super::*;

const SIZE: (u16, u16) = (100, 40);

fn made(aggregations: u32) -> App {
    app(SIZE, Colour::True, aggregations, &[7])
}

fn press(app: &mut App, actions: &[Action]) {
    for &action in actions {
        assert_eq!(app.act(action), Outcome::Stay);
    }
}

#[test]
fn figures_are_means_of_what_was_found() {
    let app = made(20);
    let total = app.track().unwrap().figures.total;
    let mib = |bytes: f64| bytes / MIB as f64;
    assert_eq!([total.size, total.hot, total.warm].map(mib), [69.0, 16.0, 5.0]);
    assert_eq!([total.cold, total.unobservable, total.working_set].map(mib), [32.0, 16.0, 21.0]);
    let mappings = &app.track().unwrap().figures.mappings;
    let anonymous = mappings.iter().find(|mapping| mapping.name.is_empty()).unwrap();
    assert_eq!((anonymous.range, anonymous.rate), (range(BASE, 64 * MIB), 1.0 / 3.0), "of what could be observed");
    let monitor = app.model().monitor;
    assert_eq!((monitor.regions, monitor.rounds, monitor.late_rounds), (6, 400, 20));
    assert!((monitor.cpu - 0.006).abs() < 1e-9 && (monitor.reads - 1200.0).abs() < 1e-6, "{monitor:?}");
}

#[test]
fn a_pause_freezes_the_screen_and_loses_nothing() {
    let mut app = made(10);
    press(&mut app, &[Action::Pause]);
    (11..=30).for_each(|nth| app.event(finding(nth, &[7])));
    assert_eq!((app.paused(), app.model().time), (true, AGGREGATION * 10));
    press(&mut app, &[Action::Pause]);
    assert_eq!((app.paused(), app.model().time), (false, AGGREGATION * 30));
    let frames = app.track().unwrap().history.frames(Duration::ZERO, Duration::MAX).count();
    assert_eq!(frames, 30);
}

#[test]
fn the_picture_goes_back_in_time_and_returns() {
    let mut app = made(600);
    assert_eq!((app.span(), app.until(), app.follows()), (Duration::from_secs(30), Duration::from_secs(60), true));
    press(&mut app, &[Action::LessTime, Action::LessTime, Action::Earlier]);
    assert_eq!((app.span(), app.until()), (Duration::from_secs(15), Duration::from_millis(56_250)));
    app.event(finding(601, &[7]));
    assert_eq!(app.until(), Duration::from_millis(56_250), "an earlier time stays");
    press(&mut app, &[Action::Earlier; 100]);
    assert!(app.until() > Duration::ZERO && app.until() < app.span(), "something is always visible");
    press(&mut app, &[Action::Later; 100]);
    assert!(app.follows());
    press(&mut app, &[Action::Earlier, Action::Now]);
    assert!(app.follows());
}

#[test]
fn the_first_time_span_depends_on_the_aggregation_interval() {
    let run = |aggregation| RunInfo { aggregation, ..made(0).run };
    let span = |aggregation| App::new(run(aggregation), made(0).appearance).span().as_secs();
    assert_eq!([10, 1_000, 10_000].map(|ms| span(Duration::from_millis(ms))), [30, 60, 900]);
    assert_eq!(span(Duration::from_secs(3600)), 3600);
}

#[test]
fn a_selection_can_be_zoomed_into_and_left() {
    let mut app = made(10);
    press(&mut app, &[Action::Line(0)]);
    assert_eq!(app.view.addresses, Some(range(BASE, 64 * MIB)), "the hottest mapping");
    press(&mut app, &[Action::PageUp, Action::PageUp, Action::Select, Action::Down, Action::Down, Action::ZoomIn]);
    let chosen = app.view.addresses.unwrap();
    assert!(chosen.end() == BASE + 64 * MIB && chosen.size() < 16 * MIB, "{chosen}");
    assert_eq!(app.view.anchor, None);
    press(&mut app, &[Action::ZoomOut; 8]);
    assert_eq!(app.view.addresses, None);
    press(&mut app, &[Action::Select, Action::Back]);
    assert_eq!(app.view.anchor, None);
    assert!(app.view.cursor.is_some(), "the cursor stays");
}

#[test]
fn the_cursor_moves_through_all_areas_and_past_the_edge_of_a_window() {
    let mut app = made(10);
    press(&mut app, &[Action::Up; 50]);
    assert!(app.view.cursor.unwrap() >= STACK);
    press(&mut app, &[Action::Down; 50]);
    assert_eq!(app.view.cursor, Some(0x1000_0000));
    press(&mut app, &[Action::Line(0), Action::ZoomIn, Action::ZoomIn, Action::Down]);
    let before = app.view.addresses.unwrap();
    press(&mut app, &[Action::Down; 60]);
    let after = app.view.addresses.unwrap();
    assert!(after.start() < before.start() && after.end() < before.end(), "{before} {after}");
    assert!(after.contains(app.view.cursor.unwrap()));
}

#[test]
fn the_table_is_sorted_by_the_selected_column() {
    let mut app = made(10);
    let first = |app: &App| app.view.sort.sorted(&app.track().unwrap().figures.mappings)[0].name.to_string();
    assert_eq!(first(&app), "", "the hottest");
    press(&mut app, &[Action::Reverse]);
    assert_eq!(first(&app), "[stack]", "the least hot, and of those the smaller working set");
    press(&mut app, &[Action::PreviousSort]);
    assert_eq!((app.view.sort.column, app.view.sort.reversed), (Column::Name, false));
    press(&mut app, &[Action::Reverse]);
    assert_eq!(first(&app), "[stack]");
    press(&mut app, &[Action::NextSort]);
    assert_eq!(app.view.sort, Sort::default());
}

#[test]
fn targets_can_be_selected_after_they_ended() {
    let mut app = app(SIZE, Colour::True, 10, &[7, 8]);
    press(&mut app, &[Action::NextTarget]);
    assert_eq!(app.track().unwrap().id, process(8));
    app.event(finding(11, &[7]));
    assert!(!app.model().lives(app.track().unwrap()));
    press(&mut app, &[Action::NextTarget]);
    assert_eq!(app.track().unwrap().id, process(7));
    press(&mut app, &[Action::PreviousTarget]);
    assert_eq!(app.track().unwrap().id, process(8));
}

#[test]
fn targets_that_come_and_go_need_bounded_memory() {
    let mut model = Model::default();
    (1..500).for_each(|nth| model.take(&record(nth, &[1, 1000 + nth])));
    assert!(model.tracks.len() <= 64, "{}", model.tracks.len());
    assert!(model.tracks.iter().any(|track| track.id == process(1)), "a live target is not forgotten");
    let many: Vec<u32> = (1..=100).collect();
    model.take(&record(500, &many));
    assert_eq!(model.tracks.len() + model.others.len(), 100);
}

#[test]
fn help_takes_the_keys_until_it_is_closed() {
    let mut app = made(10);
    press(&mut app, &[Action::Help, Action::Pause]);
    assert_eq!((app.help, app.paused()), (None, false));
    press(&mut app, &[Action::Help]);
    assert_eq!(app.act(Action::Quit), Outcome::Quit);
}

#[test]
fn a_gap_in_time_stays_a_gap() {
    let mut app = made(10);
    app.event(finding(100, &[7]));
    let layout = app.layout().unwrap();
    let (track, window) = (app.track().unwrap(), app.window(&layout));
    let address_lines = app.address_lines(track, &layout);
    let grid = app.grid(track, &address_lines, &window);
    let blank = (0..window.columns).filter(|&column| grid.working_set(column).is_none()).count();
    assert!(blank as f64 > window.columns as f64 * 0.9, "{blank} of {}", window.columns);
}

#[test]
fn without_schemes_there_is_no_table_of_them() {
    let mut app = made(10);
    press(&mut app, &[Action::Schemes]);
    assert_eq!(app.view.table, Table::Mappings);
    acting(&mut app, 2, 3);
    press(&mut app, &[Action::Schemes, Action::Line(1)]);
    assert_eq!((app.view.table, app.view.scheme, app.view.addresses), (Table::Schemes, 1, None));
    press(&mut app, &[Action::Schemes, Action::Line(0)]);
    assert_eq!(app.view.addresses, Some(range(BASE, 64 * MIB)), "a line is a mapping again");
}

#[test]
fn a_pause_freezes_what_schemes_did() {
    let mut app = made(10);
    acting(&mut app, 1, 3);
    press(&mut app, &[Action::Pause]);
    acting(&mut app, 1, 9);
    let applied = |app: &App| app.model().schemes.all()[0].report.total.applied_bytes;
    assert_eq!(applied(&app), 6 * MIB);
    press(&mut app, &[Action::Pause]);
    assert_eq!(applied(&app), 18 * MIB);
}

#[test]
fn different_warnings_are_kept_for_the_end_up_to_a_limit() {
    let mut app = made(10);
    app.event(notice(Severity::Warning, "first"));
    app.event(notice(Severity::Warning, "first"));
    app.event(notice(Severity::Info, "all is well"));
    assert_eq!((app.notices, app.warnings.len()), (3, 1));
    assert_eq!(app.notice, Some(Notice { text: "all is well".into(), warning: false }));
    (0..1000).for_each(|nth| app.event(notice(Severity::Warning, &nth.to_string())));
    assert_eq!(app.warnings.len(), MAX_WARNINGS);
    assert_eq!(app.warnings[0], "first");
}

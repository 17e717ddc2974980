//! What the screen shows for a state.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{Kinds, PageSums, WINDOWS};
use isotherm_core::{Figures, Pace};
use isotherm_record::{Cost, NotAfforded};
use isotherm_report::{Colour, colour};
use isotherm_run::{Event, Severity};
use ratatui::style::Color;

use super::super::fixtures::{
    AGGREGATION, MIB, acted, acting, app, finding, named, notice, on_two_nodes, record, report, surveyed,
};
use super::super::keys::Action;
use super::super::layout::ScreenLayout;
use super::*;

fn drawn(app: &App) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, app.size.0, app.size.1));
    draw(app, &mut buffer);
    buffer
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| row(y).trim_end().to_owned()).collect()
}

#[test]
fn digits_show_hot_cold_and_unobservable_memory() {
    let shown = lines(&drawn(&app((80, 24), Colour::None, 60, &[7])));
    let expected = [
        " isotherm pid 7: made --number 7                                            6 s",
        "working set  21 MiB of 69 MiB mapped (30 %)  ########++................????????",
        "     memory  hot 16 MiB  warm 5 MiB  cold 32 MiB  unobservable 16 MiB",
        "    monitor  bpf . 0.6 % CPU . 6/1,000 regions . 1,200 reads/s . 60 late",
        "   21 MiB |                                          ########### working set",
        "          - 0x7f0000000000 to 0x7ffc00100000: 65 MiB -----------",
        "   64 MiB |                                          11111111111\\ anonymous",
        "          |                                          00000000000|",
        "          |                                          ???????????|",
        "          |                                          ???????????|",
        "          |                                          99999999999|",
        "          |                                          88888888888|",
        "        0 |                                          00000000000/",
        "          - 0x10000000 to 0x10400000: 4 MiB --------------------",
        "          |                                          55555555555- [heap]",
        "          + -30 s -------- -20 s ---------- -10 s ---------- now",
        "          frequency: 0 none (cold) to 9 at 200 Hz, ? not observable, u no sample",
        "      *hot  work.set     size   rate    Hz        age  mapping",
        "1   16 MiB    16 MiB   64 MiB   0.33  >=67        3 s  anonymous 0x7f0000000000",
        "2        0     4 MiB    4 MiB   0.25   3.0        3 s  [heap]",
        "3        0     1 MiB    1 MiB   0.05  0.60        3 s  [stack]",
    ];
    assert_eq!(shown[..expected.len()], expected, "{shown:#?}");
}

#[test]
fn a_working_set_that_is_not_known_is_shown_by_its_bounds_and_what_is_freed_lazily_by_itself() {
    let memory = |unobservable: u64, lazily_freed: u64| {
        let mut app = app((120, 24), Colour::None, 60, &[7]);
        let kinds = Kinds { lazily_freed, ..Kinds::default() };
        let within = [8 * MIB; WINDOWS.len()];
        let sums = PageSums {
            figures: Figures { present: 64 * MIB, unobservable, ..Figures::default() },
            kinds,
            within,
            ..PageSums::default()
        };
        app.event(surveyed(7, sums));
        lines(&drawn(&app))[1..3].to_vec()
    };
    let known = memory(MIB, 0);
    assert!(known[0].starts_with("working set  8 MiB within 1 s, of 69 MiB mapped (12 %)"), "{known:#?}");
    assert!(!known[1].contains("freed"), "{known:#?}");
    let unknown = memory(56 * MIB, 448 * MIB);
    assert!(unknown[0].starts_with("working set  8.0 to 64.0 MiB within 1 s, of 69 MiB mapped "), "{unknown:#?}");
    assert!(!unknown[0].contains('%') && unknown[1].contains("freed lazily 448 MiB"), "{unknown:#?}");
}

#[test]
fn memory_without_a_sample_is_told_from_cold_memory() {
    let mut app = app((120, 24), Colour::None, 60, &[7]);
    for nth in 61..=120 {
        let mut unsampled = record(nth, &[7]);
        for region in &mut unsampled.snapshot.targets[0].regions {
            (region.nr_samples, region.nr_accesses, region.nr_unobservable) = (0, 0, 0);
            region.frequency = None;
        }
        app.event(Event::Snapshot(Arc::new(unsampled)));
    }
    let shown = lines(&drawn(&app));
    let cold_then_unknown = shown.iter().any(|line| line.contains("000u"));
    assert!(cold_then_unknown, "{shown:#?}");
    let legend = "frequency: 0 none (cold) to 9 at 200 Hz, ? not observable, u no sample, blank: absent";
    assert!(shown.iter().any(|line| line.trim_start() == legend), "{shown:#?}");
}

#[test]
fn the_memory_of_each_node_has_a_line_where_there_are_several() {
    let mut app = app((80, 24), Colour::None, 60, &[7]);
    app.event(on_two_nodes(7));
    let shown = lines(&drawn(&app));
    assert_eq!(shown[3], "      nodes  0: 48 MiB, 12 MiB touched · 1: 16 MiB, 4 MiB touched".replace('·', "."));
    assert!(shown[4].starts_with("    monitor"), "{shown:#?}");
    for size in [(80, 17), (24, 6), (30, 60), (200, 18)] {
        app.size = size;
        drawn(&app);
    }
}

#[test]
fn the_line_of_the_monitor_says_how_often_it_samples_and_what_cannot_be_relied_on() {
    let mut app = app((200, 24), Colour::None, 60, &[7]);
    let survey_interval = Some(Duration::from_millis(3217));
    let pace = Pace { survey_interval, sampling_interval: Some(AGGREGATION / 20), is_limited: true, ..Pace::default() };
    app.event(Event::Pace { pace, not_afforded: NotAfforded::default() });
    let shown = lines(&drawn(&app));
    assert!(shown[3].starts_with("    monitor  bpf . 0.6 % of a CPU . "), "{shown:#?}");
    assert!(shown[3].ends_with(" . survey every 3.2 s . sampling every 5 ms . limited by the budget"), "{shown:#?}");
    for nth in 61..=90 {
        let mut late = record(nth, &[7]);
        late.cost = late.cost.map(|cost| Cost { late_rounds: cost.rounds, ..cost });
        app.event(Event::Snapshot(Arc::new(late)));
    }
    let shown = lines(&drawn(&app));
    assert!(shown[3].starts_with("    monitor  rates and ages cannot be relied on . bpf . "), "{shown:#?}");
}

#[test]
fn frequencies_are_in_hertz_and_those_of_which_only_the_least_is_known_are_marked() {
    let shown = lines(&drawn(&app((120, 30), Colour::True, 60, &[7])));
    let legend = shown.iter().find(|line| line.contains("frequency 0")).unwrap();
    assert!(legend.contains(" 200 Hz "), "{legend}");
    // All of the heap is accessed in each sample, and samples become longer.
    let mut app = app((120, 30), Colour::True, 60, &[7]);
    for nth in 4..7 {
        let mut longer = record(nth * 20, &[7]);
        longer.snapshot.aggregation = Duration::from_secs(2);
        let heap = &mut longer.snapshot.targets[0].regions[0];
        (heap.nr_accesses, heap.frequency) = (20, None);
        app.event(Event::Snapshot(Arc::new(longer)));
    }
    let shown = lines(&drawn(&app));
    let heap = shown.iter().find(|line| line.contains("[heap]") && line.starts_with('2')).unwrap();
    assert!(heap.contains("1.00   ≥10 "), "{shown:#?}");
}

#[test]
fn colours_are_those_of_the_reports() {
    let hot = colour::of_rate(1.0);
    for (kind, colour) in
        [(Colour::True, Color::Rgb(hot[0], hot[1], hot[2])), (Colour::Ansi256, Color::Indexed(colour::ansi256(hot)))]
    {
        let buffer = drawn(&app((80, 24), kind, 60, &[7]));
        let cells = buffer.content.iter().filter(|cell| cell.bg == colour || cell.fg == colour);
        assert!(cells.count() >= 11, "{kind:?}");
    }
    let plain = drawn(&app((80, 24), Colour::None, 60, &[7]));
    assert!(plain.content.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
}

#[test]
fn every_state_can_be_drawn_at_every_size() {
    let states: [&[Action]; 10] = [
        &[Action::Processes],
        &[Action::Group, Action::Line(1)],
        &[Action::Schemes, Action::Line(1)],
        &[],
        &[Action::Help],
        &[Action::Pause, Action::Up, Action::Select, Action::PageUp],
        &[Action::Line(0), Action::ZoomIn, Action::ZoomIn, Action::ZoomIn, Action::Down],
        &[Action::Earlier, Action::Earlier, Action::LessTime],
        &[Action::MoreTime; 9],
        &[Action::Help, Action::Down, Action::Down],
    ];
    let sizes = (0..40).chain([60, 80, 81, 120, 300]);
    let sizes: Vec<(u16, u16)> = sizes.flat_map(|w| [0, 1, 3, 5, 6, 7, 9, 13, 24, 31, 60].map(|h| (w, h))).collect();
    for colour in [Colour::True, Colour::None] {
        for actions in states {
            for schemes in [0, 1, 5] {
                let mut app = app((80, 24), colour, 50, &[7, 8]);
                acting(&mut app, schemes, 5);
                app.event(notice(Severity::Warning, "mine.yaml:1:1: wrong\nthose in force stay so"));
                for &action in actions {
                    app.act(action);
                }
                for &size in &sizes {
                    app.size = size;
                    drawn(&app);
                }
            }
        }
        let mut empty = app((80, 24), colour, 0, &[]);
        for &size in &sizes {
            empty.size = size;
            drawn(&empty);
        }
    }
}

#[test]
fn a_screen_that_is_too_small_says_so() {
    assert_eq!(lines(&drawn(&app((10, 3), Colour::True, 5, &[7]))), ["too small;", "needs 24x6", ""]);
    let wide = lines(&drawn(&app((100, 2), Colour::True, 5, &[7])));
    assert_eq!(wide[0], "this terminal is too small: 100x2; isotherm needs 24x6 (q quits)");
}

#[test]
fn the_title_says_which_time_is_shown() {
    let mut app = app((100, 30), Colour::None, 50, &[7, 8]);
    let title = |app: &App| lines(&drawn(app))[0].clone();
    assert!(title(&app).starts_with(" isotherm [1 of 2, Tab] pid 7: made"), "{}", title(&app));
    app.act(Action::Pause);
    app.event(finding(51, &[7]));
    assert!(title(&app).ends_with("PAUSED at 5 s"), "{}", title(&app));
    app.act(Action::Pause);
    app.act(Action::NextTarget);
    assert!(title(&app).contains("(ended) pid 8"), "{}", title(&app));
    app.ended = Some("no target is left".into());
    assert!(title(&app).ends_with("ENDED after 5.1 s: no target is left"), "{}", title(&app));
}

#[test]
fn the_table_of_processes_marks_the_selected_and_the_new() {
    let mut app = app((80, 24), Colour::None, 0, &[]);
    let begun = [(7, "/usr/bin/redis-server *:6379", "/db.slice", 12), (8, "/bin/sh -c build", "/build.slice", 1)];
    (1..=20).for_each(|nth| app.event(named(nth, &begun)));
    let joined = [&begun[..], &[(1234, "/usr/lib/gcc/cc1 -quiet main.c", "/build.slice", 40)]].concat();
    (21..=50).for_each(|nth| app.event(named(nth, &joined)));
    app.act(Action::NextTarget);
    let table = |app: &App| lines(&drawn(app))[layout(app).table.y as usize..].to_vec();
    let expected = [
        "       pid  resident  work.set     *hot   rate    watched  command",
        "1     1234    40 MiB    40 MiB   40 MiB   1.00    new 3 s  cc1 -quiet main.c",
        "2        7    12 MiB    12 MiB   12 MiB   1.00        5 s  redis-server *:6379",
        "3>       8     1 MiB     1 MiB    1 MiB   1.00        5 s  sh -c build",
    ];
    let shown = table(&app);
    assert_eq!(shown[..expected.len()], expected, "{shown:#?}");
    app.size = (80, 30);
    app.act(Action::Group);
    let expected = [
        "       pid  resident  work.set     *hot   rate    watched  command",
        "       (3)    53 MiB    53 MiB   53 MiB   1.00             /",
        "       (2)    41 MiB    41 MiB   41 MiB   1.00               build.slice",
        "1     1234    40 MiB    40 MiB   40 MiB   1.00    new 3 s      cc1 -quiet main~",
        "2>       8     1 MiB     1 MiB    1 MiB   1.00        5 s      sh -c build",
        "       (1)    12 MiB    12 MiB   12 MiB   1.00               db.slice",
        "3        7    12 MiB    12 MiB   12 MiB   1.00        5 s      redis-server *:~",
    ];
    let shown = table(&app);
    assert_eq!(shown[..expected.len()], expected, "{shown:#?}");
    app.size = (80, 20);
    let shown = table(&app);
    assert_eq!(shown[4], "  ~ and 2 others", "{shown:#?}");
}

#[test]
fn of_many_processes_the_table_shows_as_many_as_fit() {
    let pids: Vec<u32> = (1..=1000).collect();
    let app = app((80, 24), Colour::None, 2, &pids);
    let shown = lines(&drawn(&app));
    assert!(shown[0].contains("[1 of 64, Tab] (and 936 others) pid 1"), "{shown:#?}");
    let table = &shown[layout(&app).table.y as usize..];
    assert!(table[0].contains("    mapped  work.set"), "no survey has found what is resident: {table:#?}");
    assert_eq!(table[1], "1>       1    69 MiB    21 MiB   16 MiB   0.32        0 s  made --number 1");
    assert_eq!(table[5], "  ~ and 996 others", "{table:#?}");
}

#[test]
fn names_of_processes_cannot_control_the_terminal() {
    let mut evil = record(1, &[7]);
    let info = isotherm_record::TargetInfo { command: "\x1b[31mred\u{202e}\u{9b}2J".into(), ..Default::default() };
    evil.infos = [(evil.infos[0].0, std::sync::Arc::new(info))].into();
    let name: std::sync::Arc<str> = "/tmp/\x1b]0;title\x07".into();
    let mappings = &mut evil.snapshot.targets[0].mappings;
    *mappings = mappings.iter().map(|m| isotherm_core::Mapping { name: name.clone(), ..m.clone() }).collect();
    let mut app = app((120, 40), Colour::True, 0, &[]);
    app.event(Event::Snapshot(Arc::new(evil)));
    let text = lines(&drawn(&app)).concat();
    assert!(text.contains("\\x1b[31mred"), "{text}");
    assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text}");
}

#[test]
fn before_the_first_snapshot_the_screen_says_what_it_waits_for() {
    let mut app = app((60, 20), Colour::True, 0, &[]);
    app.run.aggregation = Duration::from_secs(10);
    assert!(lines(&drawn(&app)).concat().contains("waiting for the first aggregation interval (10 s)"));
    app.ended = Some("the command ended with status 3".into());
    let text = lines(&drawn(&app)).concat();
    assert!(text.contains("status 3") && text.contains("before the first aggregation interval"), "{text}");
}

#[test]
fn what_lies_under_the_cursor_and_in_the_selection_is_told() {
    let mut app = app((100, 30), Colour::None, 50, &[7]);
    app.act(Action::Line(0));
    app.act(Action::PageDown);
    let legend = |app: &App| lines(&drawn(app))[layout(app).legend.y as usize].clone();
    for _ in 0..30 {
        if legend(&app).contains("accessed at 200 Hz") {
            break;
        }
        app.act(Action::Down);
    }
    assert!(legend(&app).contains("accessed at 200 Hz, anonymous"), "{}", legend(&app));
    app.act(Action::Select);
    app.act(Action::Down);
    assert!(legend(&app).contains("selected 0x7f") && legend(&app).contains("mapped"), "{}", legend(&app));
}

#[test]
fn a_line_for_each_scheme_says_what_it_does() {
    let mut app = app((120, 30), Colour::None, 60, &[7]);
    acting(&mut app, 3, 6);
    let shown = lines(&drawn(&app));
    let memory = "working set  21 MiB of 69 MiB mapped (30 %) . RSS 60 MiB . swap 4 MiB  #";
    assert!(shown[1].starts_with(memory), "{shown:#?}");
    let expected = [
        "    schemes  cold    pageout     2 MiB/s  12 MiB in all . 6 MiB refused: ENOMEM . quota 3 of 10 MiB/s",
        "             hot     hugepage          0  0 in all",
        "             count-1 stat              0  0 in all",
    ];
    assert_eq!(shown[4..7], expected, "{shown:#?}");

    let mut many = app_with(5, (80, 24));
    let shown = lines(&drawn(&many));
    assert_eq!(shown[6], "             ~ and 3 more: a shows all", "{shown:#?}");
    assert_eq!(
        shown[4], "    schemes  cold pageout     2 MiB/s  12 MiB in all . 6 MiB ENOMEM . quota 30 %",
        "{shown:#?}"
    );
    many.size = (80, 20);
    assert!(lines(&drawn(&many))[4].starts_with("    schemes  5 schemes . 2 MiB/s . 12 MiB in all . 6 MiB refused"));
}

fn app_with(schemes: usize, size: (u16, u16)) -> App {
    let mut app = app(size, Colour::None, 60, &[7]);
    acting(&mut app, schemes, 6);
    app
}

#[test]
fn the_table_of_schemes_has_what_they_did_and_what_one_did_last() {
    let mut app = app_with(2, (160, 50));
    app.act(Action::Schemes);
    let at = layout(&app).table.y as usize;
    let shown = lines(&drawn(&app));
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let table: Vec<String> = shown[at..].iter().map(|line| squeezed(line)).collect();
    let expected = [
        "scheme action state tried advised applied recently refused why quota exceeded time",
        "1 cold pageout awake 18 MiB 18 MiB 12 MiB 2 MiB/s 6 MiB ENOMEM 10 MiB 0 60 ms",
        "2 hot hugepage awake 0 0 0 0 0 - 0 0 s",
        "cold last at 6 s: 5 regions, 5 MiB; held back 20 MiB",
        "It acts on regions that are not accessed and whose age is at least 5 s.",
        "0x7f0000000000 to 0x7f0000100000 1 MiB anonymous",
    ];
    assert_eq!(table[..expected.len()], expected, "{table:#?}");
    app.act(Action::Line(1));
    let shown = lines(&drawn(&app));
    assert!(shown[at + 3].contains("hot has found nothing to act on"), "{shown:#?}");
    app.act(Action::Line(5));
    assert_eq!(lines(&drawn(&app)), shown, "there is no such scheme");
    app.act(Action::Schemes);
    assert!(lines(&drawn(&app))[at].contains("mapping"));

    // The newest application acted on nothing, as with a used-up quota.
    let mut activity = acted(8, 2);
    activity.schemes[0].last.regions.clear();
    app.event(Event::Activity(Arc::new(activity)));
    app.act(Action::Schemes);
    app.act(Action::Line(0));
    let shown = lines(&drawn(&app));
    assert!(shown[at + 3].contains("cold last at 6 s, 2 s ago: 5 regions, 5 MiB; held back 20 MiB"), "{shown:#?}");
}

#[test]
fn of_many_schemes_the_table_shows_those_around_the_chosen_one() {
    let mut app = app_with(5, (80, 24));
    app.act(Action::Schemes);
    app.act(Action::Line(4));
    let at = layout(&app).table.y as usize;
    let shown = lines(&drawn(&app));
    assert!(shown[at].contains("3-5 of 5") && shown[at + 3].starts_with("5 a-scheme-of-a~"), "{shown:#?}");
    assert!(shown[at + 4].contains("a-scheme-of-a-long-name has found nothing to act on"), "{shown:#?}");
}

#[test]
fn while_all_schemes_sleep_the_screen_says_so_and_its_clock_continues() {
    let mut app = app_with(1, (80, 24));
    let mut asleep = acted(9, 1);
    asleep.schemes[0].awake = false;
    app.event(Event::Activity(Arc::new(asleep)));
    let shown = lines(&drawn(&app));
    assert!(shown[0].ends_with("ASLEEP 9 s"), "{shown:#?}");
    assert_eq!(shown[3], "    monitor  all schemes sleep: nothing is monitored . free memory 43 %");
    assert!(shown[4].contains(" asleep  "), "{shown:#?}");
    assert!(!shown[0].contains("(ended)"), "the target lives, as far as anybody knows");
    app.event(finding(91, &[7]));
    app.event(Event::Activity(Arc::new(acted(10, 1))));
    let shown = lines(&drawn(&app));
    assert!(shown[0].ends_with(" 9.1 s") && shown[3].contains("reads/s"), "{shown:#?}");
}

#[test]
fn messages_are_drawn_over_the_lowest_lines() {
    let mut app = app_with(1, (60, 20));
    let text = "mine.yaml:3:13: there is no action \"melt\"; did you mean \x1b[31mmlock?\nthe schemes that were in \
        force before stay so";
    app.event(notice(Severity::Warning, text));
    let shown = lines(&drawn(&app));
    let expected = [
        " mine.yaml:3:13: there is no action \"melt\"; did you mean",
        " \\x1b[31mmlock?",
        " the schemes that were in force before stay so",
    ];
    assert_eq!(shown[16..19], expected, "{shown:#?}");
    app.event(notice(Severity::Info, &"word ".repeat(100)));
    let shown = lines(&drawn(&app));
    assert!(shown[12].contains("---") || !shown[12].contains("word"), "{shown:#?}");
    assert!(shown[18].ends_with('~') && shown[13].contains("word"), "{shown:#?}");
}

#[test]
fn names_of_schemes_cannot_control_the_terminal() {
    let mut app = app_with(1, (120, 40));
    app.event(Event::Activity(Arc::new(super::super::fixtures::activity(7, vec![report("\x1b[31mred\u{202e}")]))));
    for _ in 0..2 {
        let text = lines(&drawn(&app)).concat();
        assert!(text.contains("\\x1b[31mred") && !text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text}");
        app.act(Action::Schemes);
    }
}

fn layout(app: &App) -> ScreenLayout {
    app.layout().unwrap()
}

//! The state of the screen, and how events and keys change it. It uses no terminal and no clock.

use std::time::Duration;

use isotherm_core::{AddrRange, TargetId};
use isotherm_report::Colour;

use super::address_lines::AddressLines;
use super::cgroups;
use super::grid::{Grid, TimeWindow};
use super::keys::Action;
use super::layout::ScreenLayout;
use super::mapped_space::MappedSpace;
use super::model::{Model, Track};
use super::processes::{self, Line};
use super::sort::{Column, Sort};
use isotherm_run::{Event, Severity};

/// The time spans that can be shown, in seconds.
const SPANS: [u64; 8] = [15, 30, 60, 120, 300, 900, 1800, 3600];

/// The maximum number of warnings that are kept, to be printed at the end.
const MAX_WARNINGS: usize = 50;

/// Facts about the run.
#[derive(Clone, Debug)]
pub struct RunInfo {
    pub probe: String,
    /// Whether the probe answers for whole mappings.
    pub coarse: bool,
    /// Whether pages are sampled. If not, what surveys found touched takes the place of access rates.
    pub sampled: bool,
    pub aggregation: Duration,
    pub max_regions: usize,
    /// What happens to the output of the command, if there is one.
    pub output: Option<String>,
}

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appearance {
    pub colour: Colour,
    pub unicode: bool,
}

impl Appearance {
    /// Rows of cells per line: two with half blocks.
    pub fn group(&self) -> usize {
        if self.colour != Colour::None && self.unicode { 2 } else { 1 }
    }
}

/// What a key asks of the main loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Stay,
    Quit,
    Suspend,
    Redraw,
}

/// The selected part of the data, and how it is shown.
#[derive(Clone, Debug, Default)]
pub struct View {
    target: Option<TargetId>,
    span: usize,
    /// The end of the time shown; `None` follows the newest snapshot.
    until: Option<Duration>,
    /// The addresses shown; `None` means all.
    pub addresses: Option<AddrRange>,
    pub cursor: Option<u64>,
    /// The other end of a selection.
    pub anchor: Option<u64>,
    pub sort: Sort,
    /// The order of the table of processes.
    pub process_sort: Sort,
    /// Whether the table of processes is a tree of cgroups.
    pub by_cgroup: bool,
    pub table: Table,
    /// The table that is shown after that of schemes.
    back: Table,
    /// The index of the scheme whose last application is shown.
    pub scheme: usize,
}

/// The contents of the table at the bottom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    #[default]
    Mappings,
    Processes,
    Schemes,
}

/// A message to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub text: String,
    /// Whether it is a warning.
    pub warning: bool,
}

/// The state of the screen.
pub struct App {
    pub run: RunInfo,
    pub appearance: Appearance,
    pub view: View,
    /// The first visible line of the help, if the help is open.
    pub help: Option<usize>,
    /// Why the run has ended, if it has.
    pub ended: Option<String>,
    pub size: (u16, u16),
    /// The message over the lowest lines of the screen.
    pub notice: Option<Notice>,
    /// The number of messages so far.
    pub notices: u64,
    /// The first [`MAX_WARNINGS`] different warnings.
    pub warnings: Vec<String>,
    live: Model,
    frozen: Option<Model>,
}

impl App {
    /// An empty screen.
    pub fn new(run: RunInfo, appearance: Appearance) -> Self {
        // About 60 aggregations.
        let wanted = (run.aggregation * 60).as_secs().max(SPANS[1]);
        let span = SPANS.iter().position(|&span| span >= wanted).unwrap_or(SPANS.len() - 1);
        let view = View { span, ..View::default() };
        Self {
            run,
            appearance,
            view,
            help: None,
            ended: None,
            size: (0, 0),
            notice: None,
            notices: 0,
            warnings: vec![],
            live: Model::default(),
            frozen: None,
        }
    }

    /// Takes an event of the run.
    pub fn event(&mut self, event: Event) {
        let (text, warning) = match event {
            Event::Snapshot(record) => {
                if self.live.tracks.is_empty() && record.snapshot.targets.len() > 1 {
                    self.view.table = Table::Processes;
                }
                return self.live.take(&record);
            }
            Event::Schemes(schemes) => return self.live.schemes.set_in_force(&schemes),
            Event::Activity(activity) => return self.live.take_activity(&activity),
            Event::Attributes(attributes) => {
                self.run.aggregation = attributes.aggregation();
                self.run.max_regions = attributes.max_regions();
                return;
            }
            Event::Notice(notice) => (notice.text.to_string(), notice.severity == Severity::Warning),
            Event::Missed(missed) => {
                self.live.missed(&missed);
                (format!("this screen could not keep up, and lacks {missed}"), true)
            }
            Event::Survey(record) => return self.live.take_survey(&record.survey),
            Event::Panel(panel) => return self.live.take_panel(&panel),
            Event::Pace { pace, .. } => {
                self.live.monitor.pace = Some(pace);
                return;
            }
            Event::Mark(_) | Event::Allocations(_) | Event::Targets(_) | Event::End(_) => return,
        };
        if warning && self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(&text) {
            self.warnings.push(text.clone());
        }
        self.notice = Some(Notice { text, warning });
        self.notices += 1;
    }

    /// The layout of the screen; `None` if it is too small.
    pub fn layout(&self) -> Option<ScreenLayout> {
        self.layout_of(self.size.0, self.size.1)
    }

    /// The layout of a screen of this size; `None` if it is too small.
    pub fn layout_of(&self, width: u16, height: u16) -> Option<ScreenLayout> {
        let has_nodes = self.track().is_some_and(|track| !track.nodes.is_empty());
        ScreenLayout::new(width, height, self.model().schemes.count(), has_nodes)
    }

    /// Whether nothing is monitored because all schemes sleep.
    pub fn asleep(&self) -> bool {
        self.ended.is_none() && self.model().schemes.all_sleep()
    }

    /// Whether the screen is paused.
    pub fn paused(&self) -> bool {
        self.frozen.is_some()
    }

    /// The data that is shown: the current data, or those at the time of the pause.
    pub fn model(&self) -> &Model {
        self.frozen.as_ref().unwrap_or(&self.live)
    }

    /// The selected target, or the first.
    pub fn track(&self) -> Option<&Track> {
        let tracks = &self.model().tracks;
        tracks.iter().find(|track| Some(track.id) == self.view.target).or(tracks.first())
    }

    /// The lines of the table of processes.
    pub fn process_lines(&self) -> Vec<Line<'_>> {
        let sort = self.view.process_sort;
        let processes = processes::sorted(self.model(), sort);
        if self.view.by_cgroup {
            return cgroups::lines(processes, sort);
        }
        processes.into_iter().map(|process| Line::process(process, 0)).collect()
    }

    /// The time span that is shown.
    pub fn span(&self) -> Duration {
        Duration::from_secs(SPANS[self.view.span])
    }

    /// Whether the picture follows the newest snapshot.
    pub fn follows(&self) -> bool {
        self.view.until.is_none()
    }

    /// The end of the time that is shown.
    pub fn until(&self) -> Duration {
        self.view.until.unwrap_or(self.model().now)
    }

    /// The time that is shown, in columns.
    pub fn window(&self, layout: &ScreenLayout) -> TimeWindow {
        TimeWindow::new(self.span(), self.until(), layout.plot.into())
    }

    /// Everything that was mapped in the time that is shown.
    fn space(&self, track: &Track) -> MappedSpace {
        let from = self.until().saturating_sub(self.span());
        MappedSpace::new(track.mapped.between(from, self.until()))
    }

    /// The address axis and its lines.
    pub fn address_lines(&self, track: &Track, layout: &ScreenLayout) -> AddressLines {
        let mapped = self.space(track).inside(self.view.addresses);
        AddressLines::new(&mapped, layout.heatmap.height.into(), self.appearance.group())
    }

    /// The cells of the picture.
    pub fn grid(&self, track: &Track, address_lines: &AddressLines, window: &TimeWindow) -> Grid {
        Grid::new(&address_lines.axis, window, track.history.frames(window.from(), window.to().min(self.until())))
    }

    /// The addresses from cursor to anchor, in whole lines.
    pub fn selection(&self, address_lines: &AddressLines) -> Option<AddrRange> {
        let line = |addr| address_lines.cells().nth(address_lines.line_of(addr)?).map(|cells| cells.range);
        let (a, b) = (line(self.view.cursor?)?, line(self.view.anchor?)?);
        AddrRange::new(a.start().min(b.start()), a.end().max(b.end()))
    }

    /// Performs an action.
    pub fn act(&mut self, action: Action) -> Outcome {
        if let Some(line) = &mut self.help {
            match action {
                Action::Up => *line = line.saturating_sub(1),
                Action::Down => *line += 1,
                Action::Quit | Action::Suspend | Action::Redraw => return self.on_view(action),
                _ => self.help = None,
            }
            return Outcome::Stay;
        }
        self.on_view(action)
    }

    fn on_view(&mut self, action: Action) -> Outcome {
        match action {
            Action::Quit => return Outcome::Quit,
            Action::Suspend => return Outcome::Suspend,
            Action::Redraw => return Outcome::Redraw,
            Action::Help => self.help = Some(0),
            Action::Back if self.view.anchor.is_some() => self.view.anchor = None,
            Action::Back => self.view.cursor = None,
            Action::Pause => self.frozen = if self.paused() { None } else { Some(self.live.clone()) },
            Action::Earlier => self.move_in_time(false),
            Action::Later => self.move_in_time(true),
            Action::Now => self.view.until = None,
            Action::LessTime => self.view.span = self.view.span.saturating_sub(1),
            Action::MoreTime => self.view.span = (self.view.span + 1).min(SPANS.len() - 1),
            Action::Schemes if self.view.table == Table::Schemes => self.view.table = self.view.back,
            Action::Schemes if self.model().schemes.count() > 0 => {
                (self.view.back, self.view.table) = (self.view.table, Table::Schemes);
            }
            Action::Schemes => {}
            Action::Processes if self.view.table == Table::Processes => self.view.table = Table::Mappings,
            Action::Processes => self.view.table = Table::Processes,
            Action::Group if self.view.table == Table::Processes => self.view.by_cgroup = !self.view.by_cgroup,
            Action::Group => (self.view.table, self.view.by_cgroup) = (Table::Processes, true),
            Action::NextSort | Action::PreviousSort | Action::Reverse => self.change_order(action),
            Action::NextTarget => self.change_target(1),
            Action::PreviousTarget => self.change_target(self.model().tracks.len().saturating_sub(1)),
            Action::Line(line) if self.view.table == Table::Schemes => {
                if line < self.model().schemes.count() {
                    self.view.scheme = line;
                }
            }
            Action::Line(line) if self.view.table == Table::Processes => {
                let chosen = self.process_lines().iter().filter_map(Line::target).nth(line);
                chosen.into_iter().for_each(|id| self.select(id));
            }
            Action::Line(line) => self.zoom_into_mapping(line),
            Action::Up
            | Action::Down
            | Action::PageUp
            | Action::PageDown
            | Action::ZoomIn
            | Action::ZoomOut
            | Action::AllAddresses
            | Action::Select => self.move_in_space(action),
        }
        Outcome::Stay
    }

    fn move_in_time(&mut self, later: bool) {
        let step = self.span() / 4;
        let newest = self.model().now;
        let moved = if later { self.until() + step } else { self.until().saturating_sub(step) };
        let first = self.track().and_then(|track| track.history.start()).unwrap_or_default();
        self.view.until = (moved < newest).then(|| moved.max((first + step).min(newest)));
    }

    fn change_target(&mut self, steps: usize) {
        let tracks = &self.model().tracks;
        let here = tracks.iter().position(|track| Some(track.id) == self.view.target).unwrap_or(0);
        let Some(id) = tracks.get((here + steps) % tracks.len().max(1)).map(|track| track.id) else { return };
        if tracks.len() > 1 {
            self.select(id);
        }
    }

    fn select(&mut self, target: TargetId) {
        self.view.target = Some(target);
        self.reset_addresses();
    }

    fn change_order(&mut self, action: Action) {
        let (sort, columns) = match self.view.table {
            Table::Processes => (&mut self.view.process_sort, &Column::PROCESSES[..]),
            Table::Mappings | Table::Schemes => (&mut self.view.sort, &Column::MAPPINGS[..]),
        };
        match action {
            Action::Reverse => sort.reversed = !sort.reversed,
            _ => *sort = sort.next(columns, action == Action::PreviousSort),
        }
    }

    fn reset_addresses(&mut self) {
        (self.view.addresses, self.view.cursor, self.view.anchor) = (None, None, None);
    }

    fn zoom_into_mapping(&mut self, line: usize) {
        let Some(track) = self.track() else { return };
        let range = self.view.sort.sorted(&track.figures.mappings).get(line).map(|mapping| mapping.range);
        if range.is_some() {
            self.reset_addresses();
            self.view.addresses = range;
        }
    }

    fn move_in_space(&mut self, action: Action) {
        let (Some(layout), Some(track)) = (self.layout(), self.track()) else { return };
        let (space, address_lines) = (self.space(track), self.address_lines(track, &layout));
        let lines: Vec<AddrRange> = address_lines.cells().map(|cells| cells.range).collect();
        let Some(last) = lines.len().checked_sub(1) else { return };
        let line = self.view.cursor.and_then(|addr| address_lines.line_of(addr));
        let at = line.map_or_else(|| lines[last / 2].start(), |line| lines[line].start());
        let selection = self.selection(&address_lines);
        let view = &mut self.view;
        match action {
            Action::Up | Action::Down | Action::PageUp | Action::PageDown => {
                let up = matches!(action, Action::Up | Action::PageUp);
                let page = matches!(action, Action::PageUp | Action::PageDown);
                let steps = if page { (last / 2).max(1) } else { 1 };
                let Some(line) = line else {
                    view.cursor = Some(at);
                    return;
                };
                let moved = if up { line.saturating_sub(steps) } else { (line + steps).min(last) };
                view.cursor = Some(lines[moved].start());
                // Past the edge, the window moves.
                let over = steps - line.abs_diff(moved);
                if over > 0 && view.addresses.is_some() {
                    let bytes = space.bytes_in(view.addresses) / lines.len() as u64 * over as u64;
                    view.addresses = space.panned(view.addresses, bytes.max(4096), up);
                    view.cursor = view.addresses.map(|shown| if up { shown.end() - 1 } else { shown.start() });
                }
            }
            Action::ZoomIn => match selection {
                Some(selected) => (view.addresses, view.cursor, view.anchor) = (Some(selected), None, None),
                None => view.addresses = space.zoomed_in(view.addresses, at),
            },
            Action::ZoomOut => view.addresses = space.zoomed_out(view.addresses, at),
            Action::AllAddresses => self.reset_addresses(),
            Action::Select => (view.cursor, view.anchor) = (Some(at), Some(at)),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;

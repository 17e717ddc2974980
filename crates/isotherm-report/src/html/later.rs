//! The columns of the live page after those of its report, made by the accumulators of the report.

use std::ops::Range;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use isotherm_core::TargetId;
use isotherm_record::Event;
use serde_json::{Value, json};

use super::data::{age_code, hz_code};
use super::live::with_maps;
use super::moments::LastMoments;
use crate::ReportError;
use crate::heatmap::{Heatmap, IN_SWAP, IS_ABSENT, Memo, NOTHING, Shown, TargetMap};
use crate::source::{Accumulator, Feed, Selection, Source};

/// The most columns of a target, the fewest, and about the most cells of them.
const MOST: usize = 120;
const FEWEST: usize = 8;
const MOST_CELLS: usize = 60_000;

/// The least time of a column.
const LEAST: Duration = Duration::from_millis(100);

/// Where fewer targets than this have a lane, there is room for a new one.
const LANES: usize = 20;

/// With a larger share of the memory outside of the axis of addresses, the picture shows too little.
const OUTSIDE: f64 = 0.05;

/// A heatmap that goes on: what the live page draws of a recording, and then each column as it changes.
pub struct LiveHeatmap {
    feed: Feed,
    started_unix_ns: u64,
    heatmap: Heatmap,
    touched: Option<Heatmap>,
    moments: LastMoments,
    /// One for each target of the heatmap.
    states: Vec<State>,
    /// The time of the last snapshot, and of the last survey.
    newest: Duration,
    surveyed: Duration,
    stale: bool,
}

/// What of a target is not told yet.
struct State {
    /// The columns that have changed.
    changed: Option<Range<usize>>,
    /// For each row whether its memory was in swap or absent when that was known last, as the code of a cell.
    placed: Vec<u8>,
}

impl LiveHeatmap {
    /// What the live page draws of the time of `selection`, which has columns of `column` about. What follows has such
    /// columns, too.
    ///
    /// # Errors
    /// If the recording cannot be read, or has nothing in the selection.
    pub fn begin(source: &dyn Source, selection: &Selection, column: Duration) -> Result<(Self, Value), ReportError> {
        let (header, column) = (source.header(), column.max(LEAST));
        with_maps(source, selection, |maps, mut data| {
            let columns = |map: &TargetMap| (MOST_CELLS / map.axis.rows.max(1)).clamp(FEWEST, MOST) as u32;
            let states = maps.heatmap.targets.iter().map(State::after).collect();
            let heatmap = maps.heatmap.after(column, columns);
            let touched = maps.touched.as_ref().map(|touched| touched.after(column, columns));
            let targets = data["targets"].as_array_mut().into_iter().flatten();
            for (drawn, map) in targets.zip(&heatmap.targets) {
                drawn["later"] = json!({ "columns": map.columns.count, "each": column.as_secs_f64() });
            }
            let live = Self {
                feed: Feed::new(header, &Selection { time: None, ..selection.clone() }),
                started_unix_ns: header.started_unix_ns,
                newest: heatmap.start,
                surveyed: heatmap.placed_at().unwrap_or_default(),
                heatmap,
                touched,
                moments: maps.moments.into(),
                states,
                stale: false,
            };
            (live, data)
        })
    }

    /// Takes in an event of a run that began at `started_unix_ns`. `wanted` says whether [`columns`](Self::columns)
    /// follows, which then tells the regions of the event.
    ///
    /// # Errors
    /// If there is too much to keep.
    pub fn event(&mut self, event: Event, started_unix_ns: u64, wanted: bool) -> Result<(), ReportError> {
        let event = self.in_recording(event, started_unix_ns);
        match &event {
            Event::Snapshot(record) => {
                let snapshot = &record.snapshot;
                let since = self.newest.min(snapshot.time.saturating_sub(snapshot.aggregation));
                for target in &snapshot.targets {
                    self.change(target.id, since, snapshot.time);
                }
                self.newest = self.newest.max(snapshot.time);
                let has_place = |id: TargetId| self.heatmap.of_target(id).is_some();
                let is_new = snapshot.targets.iter().any(|target| !has_place(target.id));
                self.stale |= is_new && self.states.len() < LANES;
                self.stale |= self.newest > self.heatmap.end || wanted && self.is_outside(snapshot);
            }
            Event::Survey(record) => {
                let survey = &record.survey;
                let since = self.surveyed.min(survey.time.saturating_sub(survey.interval));
                for target in &survey.targets {
                    self.change(target.id, since, survey.time);
                }
                self.surveyed = self.surveyed.max(survey.time);
            }
            Event::Panel(_) | Event::Activity(_) | Event::Mark(_) | Event::Allocations(_) | Event::Missed(_) => {
                return Ok(());
            }
        }
        self.moments.wanted = wanted;
        let Self { heatmap, moments, touched, .. } = self;
        let touched = touched.as_mut().map(|touched| touched as &mut dyn Accumulator);
        let all = [heatmap as &mut dyn Accumulator, moments].into_iter().chain(touched);
        self.feed.hand(&event, &mut all.collect::<Vec<_>>())
    }

    /// Notes that events are missing.
    pub fn missed(&mut self) {
        self.stale = true;
    }

    /// The columns that have changed since they were told last, and the regions of the last event that was wanted.
    /// `stale` says that a new report would show more.
    pub fn columns(&mut self) -> Value {
        let mut targets = Vec::new();
        let (newest, surveyed) = (self.newest, self.surveyed);
        for (nth, (state, map)) in self.states.iter_mut().zip(&self.heatmap.targets).enumerate() {
            let Some(changed) = state.changed.take() else { continue };
            let touched = self.touched.as_ref().and_then(|touched| touched.of_target(map.id));
            let layers = Layers::of(map, touched, state, &changed, (newest, surveyed));
            let (moment, regions) = match self.moments.found.remove(&map.id) {
                Some((moment, bytes)) => (Some(moment), BASE64.encode(bytes)),
                None => (None, String::new()),
            };
            targets.push(json!({
                "target": nth,
                "first": changed.start,
                "count": changed.len(),
                "cells": BASE64.encode(layers.cells),
                "touched": layers.touched.map(|touched| BASE64.encode(touched)),
                "hz": BASE64.encode(layers.hz),
                "ages": BASE64.encode(layers.ages),
                "moment": moment,
                "regions": regions,
            }));
        }
        json!({ "time": newest.as_secs_f64(), "stale": self.stale, "targets": targets })
    }

    /// The event with its time in the recording.
    fn in_recording(&self, mut event: Event, started_unix_ns: u64) -> Event {
        let began = self.started_unix_ns;
        let moved = |time: Duration| match started_unix_ns.checked_sub(began) {
            Some(later) => time + Duration::from_nanos(later),
            None => time.saturating_sub(Duration::from_nanos(began - started_unix_ns)),
        };
        match &mut event {
            Event::Snapshot(record) => record.snapshot.time = moved(record.snapshot.time),
            Event::Survey(record) => record.survey.time = moved(record.survey.time),
            Event::Panel(_) | Event::Activity(_) | Event::Mark(_) | Event::Allocations(_) | Event::Missed(_) => {}
        }
        event
    }

    /// Notes that the columns of a time change.
    fn change(&mut self, id: TargetId, from: Duration, to: Duration) {
        let found = self.heatmap.targets.iter().zip(&mut self.states).find(|(map, _)| map.id == id);
        let Some((map, state)) = found else { return };
        let columns = if to > map.columns.start { map.columns.overlaps(from, to) } else { vec![] };
        let (Some(&(first, _)), Some(&(last, _))) = (columns.first(), columns.last()) else { return };
        let before = state.changed.take().unwrap_or(first..last + 1);
        state.changed = Some(before.start.min(first)..before.end.max(last + 1));
    }

    /// Whether much of the memory of a snapshot has no place in the picture.
    fn is_outside(&self, snapshot: &isotherm_core::Snapshot) -> bool {
        snapshot.targets.iter().any(|target| {
            let Some(map) = self.heatmap.of_target(target.id) else { return false };
            let (mut all, mut outside) = (0, 0);
            for region in &target.regions {
                let present = region.pages.map_or(region.range.size(), |pages| pages.present);
                all += present;
                outside += if map.axis.rows_of(region.range).next().is_none() { present } else { 0 };
            }
            outside as f64 > all as f64 * OUTSIDE
        })
    }
}

/// What of the code of a cell holds on until the next survey.
fn lasting(code: u8) -> u8 {
    match code {
        placed @ (IN_SWAP | IS_ABSENT) => placed,
        _ => NOTHING,
    }
}

impl State {
    /// That of a target after its report.
    fn after(map: &TargetMap) -> Self {
        let last = map.columns.count.saturating_sub(1);
        let codes = map.codes();
        let of_row = |row: usize| codes.get(row * map.columns.count + last).copied().unwrap_or(NOTHING);
        Self { changed: None, placed: (0..map.axis.rows).map(|row| lasting(of_row(row))).collect() }
    }
}

/// The cells of some columns as bytes, row by row from the lowest addresses.
struct Layers {
    cells: Vec<u8>,
    touched: Option<Vec<u8>>,
    hz: Vec<u8>,
    ages: Vec<u8>,
}

impl Layers {
    fn of(
        map: &TargetMap,
        touched: Option<&TargetMap>,
        state: &mut State,
        columns: &Range<usize>,
        (newest, surveyed): (Duration, Duration),
    ) -> Self {
        let count = columns.len();
        let cells = || vec![NOTHING; map.axis.rows * count];
        let mut layers = Self { cells: cells(), touched: touched.map(|_| cells()), hz: cells(), ages: cells() };
        let (mut of_age, mut of_hz) = (Memo::new(age_code), Memo::new(hz_code));
        for (nth, column) in columns.clone().enumerate().filter(|(_, column)| map.columns.start_of(*column) < newest) {
            let is_surveyed = map.columns.start_of(column) < surveyed;
            for row in 0..map.axis.rows {
                let (at, code) = (row * count + nth, Shown::code(map.shown(row, column)));
                // Where no region is, nothing has come since the last survey.
                let code = if code == NOTHING && !is_surveyed { state.placed[row] } else { code };
                state.placed[row] = lasting(code);
                layers.cells[at] = code;
                if let (Some(cells), Some(touched)) = (&mut layers.touched, touched) {
                    let share = Shown::code(touched.shown(row, column));
                    cells[at] = if lasting(code) == NOTHING { share } else { code };
                }
                if let Some((hz, age)) = map.hz_and_age(row, column) {
                    (layers.hz[at], layers.ages[at]) = (of_hz.of(hz), of_age.of(age));
                }
            }
        }
        layers
    }
}

//! Readings of the panel, and looks at its pages before others clear them.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;

use super::survey::began;
use super::{Monitor, MonitorError};
use crate::survey::ClearPages;
use crate::{AccessProbe, AddressSpace, PAGE_SIZE, PageLook, Sample, Sink, TargetId};

/// Buffers whose memory is used again in each reading.
#[derive(Debug, Default)]
pub(super) struct PanelBuffers {
    samples: Vec<Sample>,
    looks: Vec<PageLook>,
    cleared: Vec<bool>,
    /// The target whose resident memory is read next.
    turn: usize,
}

/// Targets whose resident memory a reading of the panel reads, at most: this takes 1 to 2 ms.
const MOST_RESIDENT: usize = 64;

impl<S: AddressSpace, P: AccessProbe, K: Sink, R: Rng> Monitor<S, P, K, R> {
    /// When the panel is read next. `None` if there is none.
    pub(super) fn panel_due(&self) -> Option<Duration> {
        self.has_panel.then(|| self.panel.due())
    }

    /// Reads all pages of the panel, clears those that were accessed, and draws more if they are too few.
    pub(super) fn read_panel(&mut self, now: Duration) -> Result<(), MonitorError> {
        self.has_panel = self.survey.is_some() && self.probe.pages().is_some();
        let Some(settings) = self.survey.as_ref().map(|plan| plan.settings).filter(|_| self.has_panel) else {
            return Ok(());
        };
        self.work.panel = true;
        let began = self.cpu_time();
        self.panel.begin(now, self.pass.is_some());
        self.find_rests()?;
        self.read_resident();
        self.find_kin()?;
        self.draw_panel();
        let spent = self.cpu_since(began);
        self.panel.prepared(spent.unwrap_or_default());
        let began = self.cpu_time();
        let (reads, clears) = self.look_at_panel(false)?;
        self.find_missing();
        if self.space.has_parties() {
            let ids: Vec<TargetId> = self.regions.targets().iter().map(|target| target.space.id).collect();
            self.panel.set_parties(ids.into_iter().map(|id| (id, self.space.parties(id))).collect());
        }
        let snapshot = self.panel.snapshot(reads as u64, clears as u64);
        let spent = self.cpu_since(began);
        self.panel.spent(spent.unwrap_or_default(), reads, self.panel.is_first());
        if !self.panel.is_first() {
            self.sink.panel_read(&snapshot).map_err(MonitorError::Sink)?;
        }
        if self.panel.resize(&settings) {
            let began = self.cpu_time();
            self.draw_panel();
            let (reads, _) = self.look_at_panel(true)?;
            let spent = self.cpu_since(began);
            self.panel.spent(spent.unwrap_or_default(), reads, true);
        }
        self.panel.plan(now, settings.panel);
        Ok(())
    }

    /// Finds out which targets have run since the last reading.
    pub(super) fn find_rests(&mut self) -> Result<(), MonitorError> {
        if let Some(activity) = self.probe.activity() {
            let targets = self.regions.targets().iter().map(|target| target.space.id);
            if self.panel.looks_for_rests() {
                activity.look().map_err(MonitorError::Probe)?;
                self.panel.rest(targets.map(|id| (id, activity.rest(id))));
            } else {
                self.panel.rest(targets.map(|id| (id, None)));
            }
        }
        Ok(())
    }

    /// Reads how much of the targets that have run is in memory: of many targets, a part at a time.
    fn read_resident(&mut self) {
        let targets = self.regions.targets();
        let count = targets.len().min(MOST_RESIDENT);
        let turn = targets.iter().cycle().skip(self.panel_buffers.turn).take(count).map(|target| target.space.id);
        for id in turn.filter(|id| self.panel.has_run(*id)).collect::<Vec<_>>() {
            if let Some(bytes) = self.space.resident(id) {
                self.panel.is_resident(id, bytes / PAGE_SIZE);
            }
        }
        self.panel.find_added();
        self.panel_buffers.turn = (self.panel_buffers.turn + count) % targets.len().max(1);
    }

    /// Finds what is in memory that the panel was not drawn from. Memory that has gone since its size was read, as that
    /// of a process that ends, is not: its size is read again.
    fn find_missing(&mut self) {
        self.panel.find_missing();
        let lacking: Vec<TargetId> = self.panel.lacking().take(MOST_RESIDENT).collect();
        for &id in &lacking {
            let pages = self.space.resident(id).unwrap_or_default() / PAGE_SIZE;
            self.panel.has_at_most(id, pages);
        }
        if !lacking.is_empty() {
            self.panel.find_missing();
        }
    }

    /// Finds out which new targets share pages with others.
    fn find_kin(&mut self) -> Result<(), MonitorError> {
        let PanelBuffers { samples, looks, .. } = &mut self.panel_buffers;
        let targets = self.regions.targets().iter();
        self.panel.kin_probes(targets.map(|target| (&target.space, target.pages().map(Arc::as_ref))), samples);
        if let Some(pages) = self.probe.pages().filter(|_| !samples.is_empty()) {
            looks.clear();
            pages.look(samples, looks).map_err(MonitorError::Probe)?;
            self.panel.relate(samples, looks);
        }
        Ok(())
    }

    fn draw_panel(&mut self) {
        let started = self.started;
        let targets = self.regions.targets().iter();
        self.panel.draw(targets.map(|target| (&target.space, target.pages(), began(started, target.space.id))));
    }

    /// Reads pages of the panel and clears those that were accessed. Returns how many.
    fn look_at_panel(&mut self, only_drawn: bool) -> Result<(usize, usize), MonitorError> {
        let PanelBuffers { samples, looks, cleared, .. } = &mut self.panel_buffers;
        let Some(pages) = self.probe.pages() else { return Ok((0, 0)) };
        self.panel.samples(only_drawn, samples);
        looks.clear();
        pages.look(samples, looks).map_err(MonitorError::Probe)?;
        let reads = samples.len();
        self.panel.read(only_drawn, looks, samples);
        cleared.clear();
        pages.clear_pages(samples, cleared).map_err(MonitorError::Probe)?;
        self.panel.cleared(samples, cleared);
        let clears = cleared.iter().filter(|&&cleared| cleared).count();
        // What is drawn is in use as rarely as the rest.
        if !only_drawn
            && !self.panel.is_first()
            && let Some(plan) = &mut self.survey
        {
            plan.sampled(clears as u64);
        }
        Ok((reads, clears))
    }

    /// Looks at the pages of the panel whose accessed bits are lost when the samples are cleared.
    pub(super) fn look_beside_samples(&mut self) -> Result<(), MonitorError> {
        self.panel_buffers.samples.clear();
        self.panel.beside(&self.samples, &mut self.panel_buffers.samples);
        self.look_at_found()
    }

    /// Looks at the pages of the panel whose accessed bits are lost when a survey clears these.
    pub(super) fn look_among(&mut self, target: TargetId, chosen: &[ClearPages]) -> Result<(), MonitorError> {
        self.panel_buffers.samples.clear();
        self.panel.among(target, chosen, &mut self.panel_buffers.samples);
        self.look_at_found()
    }

    fn look_at_found(&mut self) -> Result<(), MonitorError> {
        let PanelBuffers { samples, looks, .. } = &mut self.panel_buffers;
        if let Some(pages) = self.probe.pages().filter(|_| !samples.is_empty()) {
            looks.clear();
            pages.look(samples, looks).map_err(MonitorError::Probe)?;
            self.panel.seen(samples, looks);
        }
        Ok(())
    }
}

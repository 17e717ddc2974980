//! Readings of the panel, and looks at its pages before others clear them.

use std::sync::Arc;
use std::time::Duration;

use super::{MonitorError, Surveyor, Watched};
use crate::survey::ClearPages;
use crate::{AccessProbe, AddressSpace, PAGE_SIZE, PageLook, PanelSnapshot, Sample, TargetId};

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

impl Surveyor {
    /// The time of the next reading of the panel. `None` without a panel.
    pub(in crate::monitor) fn panel_due(&self) -> Option<Duration> {
        self.has_panel.then(|| self.panel.due())
    }

    /// Reads all pages of the panel, clears those that were accessed, and draws more if they are too few. The first
    /// reading tells nothing.
    pub(in crate::monitor) fn read_panel(
        &mut self,
        on: &mut Watched<'_>,
        now: Duration,
    ) -> Result<Option<PanelSnapshot>, MonitorError> {
        self.has_panel = on.probe.pages().is_some();
        if !self.has_panel {
            return Ok(None);
        }
        let settings = self.plan.settings;
        on.work.panel = true;
        let began = on.cpu_clock.now();
        self.panel.begin(now, self.pass.is_some());
        self.find_rests(on)?;
        self.read_resident(on);
        self.find_kin(on)?;
        self.draw_panel(on);
        let spent = on.cpu_clock.since(began);
        self.panel.prepared(spent.unwrap_or_default());
        let began = on.cpu_clock.now();
        let (reads, clears) = self.look_at_panel(on.probe, false)?;
        self.find_missing(on.space);
        if on.space.has_parties() {
            let ids = on.regions.targets().iter().map(|target| target.space.id);
            self.panel.set_parties(ids.map(|id| (id, on.space.parties(id))).collect());
        }
        let snapshot = self.panel.snapshot(reads as u64, clears as u64);
        let spent = on.cpu_clock.since(began);
        let is_first = self.panel.is_first();
        self.panel.spent(spent.unwrap_or_default(), reads, is_first);
        if self.panel.resize(&settings) {
            let began = on.cpu_clock.now();
            self.draw_panel(on);
            let (reads, _) = self.look_at_panel(on.probe, true)?;
            let spent = on.cpu_clock.since(began);
            self.panel.spent(spent.unwrap_or_default(), reads, true);
        }
        self.panel.plan(now, settings.panel);
        Ok((!is_first).then_some(snapshot))
    }

    /// Finds out which targets have run since the last reading.
    pub(in crate::monitor) fn find_rests(&mut self, on: &mut Watched<'_>) -> Result<(), MonitorError> {
        if let Some(activity) = on.probe.activity() {
            let targets = on.regions.targets().iter().map(|target| target.space.id);
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
    fn read_resident(&mut self, on: &mut Watched<'_>) {
        let targets = on.regions.targets();
        let count = targets.len().min(MOST_RESIDENT);
        let turn = targets.iter().cycle().skip(self.panel_buffers.turn).take(count).map(|target| target.space.id);
        for id in turn.filter(|id| self.panel.has_run(*id)).collect::<Vec<_>>() {
            if let Some(bytes) = on.space.resident(id) {
                self.panel.is_resident(id, bytes / PAGE_SIZE);
            }
        }
        self.panel.find_added();
        self.panel_buffers.turn = (self.panel_buffers.turn + count) % targets.len().max(1);
    }

    /// Finds what is in memory that the panel was not drawn from. Memory that has gone since its size was read, as that
    /// of a process that ends, is not: its size is read again.
    fn find_missing(&mut self, space: &mut dyn AddressSpace) {
        self.panel.find_missing();
        let lacking: Vec<TargetId> = self.panel.lacking().take(MOST_RESIDENT).collect();
        for &id in &lacking {
            let pages = space.resident(id).unwrap_or_default() / PAGE_SIZE;
            self.panel.has_at_most(id, pages);
        }
        if !lacking.is_empty() {
            self.panel.find_missing();
        }
    }

    /// Finds out which new targets share pages with others.
    fn find_kin(&mut self, on: &mut Watched<'_>) -> Result<(), MonitorError> {
        let PanelBuffers { samples, looks, .. } = &mut self.panel_buffers;
        let targets = on.regions.targets().iter();
        self.panel.kin_probes(targets.map(|target| (&target.space, target.pages().map(Arc::as_ref))), samples);
        if let Some(pages) = on.probe.pages().filter(|_| !samples.is_empty()) {
            looks.clear();
            pages.look(samples, looks).map_err(MonitorError::Probe)?;
            self.panel.relate(samples, looks);
        }
        Ok(())
    }

    fn draw_panel(&mut self, on: &Watched<'_>) {
        let targets = on.regions.targets().iter();
        self.panel.draw(targets.map(|target| (&target.space, target.pages(), on.began(target.space.id))));
    }

    /// Reads pages of the panel and clears those that were accessed. Returns how many.
    fn look_at_panel(&mut self, probe: &mut dyn AccessProbe, only_drawn: bool) -> Result<(usize, usize), MonitorError> {
        let PanelBuffers { samples, looks, cleared, .. } = &mut self.panel_buffers;
        let Some(pages) = probe.pages() else { return Ok((0, 0)) };
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
        if !only_drawn && !self.panel.is_first() {
            self.plan.sampled(clears as u64);
        }
        Ok((reads, clears))
    }

    /// Looks at the pages of the panel whose accessed bits are lost when these samples are cleared.
    pub(in crate::monitor) fn look_beside(
        &mut self,
        probe: &mut dyn AccessProbe,
        cleared: &[Sample],
    ) -> Result<(), MonitorError> {
        self.panel_buffers.samples.clear();
        self.panel.beside(cleared, &mut self.panel_buffers.samples);
        self.look_at_found(probe)
    }

    /// Looks at the pages of the panel whose accessed bits are lost when a survey clears these.
    pub(super) fn look_among(
        &mut self,
        probe: &mut dyn AccessProbe,
        target: TargetId,
        chosen: &[ClearPages],
    ) -> Result<(), MonitorError> {
        self.panel_buffers.samples.clear();
        self.panel.among(target, chosen, &mut self.panel_buffers.samples);
        self.look_at_found(probe)
    }

    fn look_at_found(&mut self, probe: &mut dyn AccessProbe) -> Result<(), MonitorError> {
        let PanelBuffers { samples, looks, .. } = &mut self.panel_buffers;
        if let Some(pages) = probe.pages().filter(|_| !samples.is_empty()) {
            looks.clear();
            pages.look(samples, looks).map_err(MonitorError::Probe)?;
            self.panel.seen(samples, looks);
        }
        Ok(())
    }
}

//! Rounds: a page of each region is chosen, and read a sampling interval later.

use std::time::Duration;

use rand::Rng;

use super::{Monitor, MonitorError};
use crate::frequency::LENGTHS;
use crate::{AccessProbe, AddressSpace, Observation, Sample, Sink};

/// The time from choosing pages to reading them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OpenRound {
    /// When the pages were cleared.
    pub(super) cleared: Duration,
    /// How long that took.
    clearing: Duration,
    /// Whether the samples of this round have the first of the [`LENGTHS`], and every other one after it, or the
    /// second.
    odd: bool,
    /// How many of the [`LENGTHS`] have passed or are left out.
    lengths: usize,
    /// When the round is over.
    pub(super) due: Duration,
    /// Whether the answers so far were read, because a survey may have cleared the pages since.
    pub(super) looked: bool,
    /// Whether its samples were counted, and go on while no page is chosen.
    pub(super) counted: bool,
}

impl OpenRound {
    /// The time since its pages were cleared.
    fn passed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.cleared + self.clearing)
    }

    /// Leaves out the lengths up to this one.
    fn leave_out(&mut self, longest: Duration) {
        while LENGTHS.get(self.lengths).is_some_and(|length| *length <= longest) {
            self.lengths += 2;
        }
    }
}

impl<S: AddressSpace, P: AccessProbe, K: Sink, R: Rng> Monitor<S, P, K, R> {
    /// Chooses one present page of each region, uniformly at random, and clears it. A steady region is left out of most
    /// rounds.
    fn prepare_access_checks(&mut self) -> Result<(), MonitorError> {
        self.samples.clear();
        self.views.begin();
        if !self.sampling {
            return Ok(());
        }
        for target in self.regions.targets_mut() {
            let first = self.samples.len();
            for i in 0..target.regions.len() {
                let region = &target.regions[i];
                let mut sample = None;
                if region.is_due((self.aggregations, self.rounds), &self.attributes, self.every) {
                    sample = Some(self.samples.len() as u32);
                    let addr = target.random_page(region, &mut self.rng);
                    self.samples.push(Sample { target: target.space.id, addr });
                }
                target.regions[i].set_sample(sample);
            }
            self.views.add(&self.samples[first..], first, &target.views);
        }
        if self.samples.is_empty() {
            return Ok(());
        }
        if let Some(surveyor) = &mut self.surveyor {
            surveyor.look_beside(&mut self.probe, &self.samples)?;
        }
        self.views.clear(&mut self.probe).map_err(MonitorError::Probe)
    }

    /// Whether no region has a sample in the next round, so that the samples of the last one can go on.
    fn samples_go_on(&self) -> bool {
        let place = (self.aggregations, self.rounds);
        self.by_lengths
            && !self.samples.is_empty()
            && !self.ends_early
            && !self.regions.iter().any(|region| region.is_due(place, &self.attributes, self.every))
    }

    /// Chooses the pages of the next round, and determines when it is over: after one sampling interval, or at the next
    /// round with something to do, which is to choose pages or to end the aggregation. Where no page is chosen, those
    /// of the round before are read at further lengths.
    pub(super) fn begin_round(&mut self, now: Duration) -> Result<(), MonitorError> {
        if self.samples_go_on() {
            let due = self.beat(now) + self.attributes.sampling().saturating_mul(self.rounds_without_samples());
            self.round = OpenRound { due, counted: true, ..self.round };
            self.round.leave_out(self.round.passed(now).div_f64(MOST_PART));
            return Ok(());
        }
        let (before, began) = (self.probe.clears(), self.cpu_clock.now());
        self.prepare_access_checks()?;
        let clearing = self.cpu_clock.since(began).unwrap_or_default();
        self.work.chosen = self.samples.len();
        self.work.cleared = self.probe.clears().saturating_sub(before);
        if let Some(surveyor) = &mut self.surveyor {
            surveyor.sampled(self.work.cleared);
        }
        let length = if self.samples.is_empty() && !self.ends_early { self.rounds_without_samples() } else { 1 };
        let due = self.beat(now) + self.attributes.sampling().saturating_mul(length);
        let odd = !self.round.odd;
        self.round =
            OpenRound { cleared: now, clearing, odd, lengths: usize::from(odd), due, looked: false, counted: false };
        Ok(())
    }

    /// How many rounds there are until the next with samples, or until the end of the aggregation. All regions are
    /// steady, or not each round has samples.
    fn rounds_without_samples(&self) -> u32 {
        let strides = self.regions.iter().map(|region| region.stride(&self.attributes).saturating_mul(self.every));
        let to_choose = strides.map(|stride| stride - self.rounds % stride).min().unwrap_or(u32::MAX);
        to_choose.min(self.attributes.samples().saturating_sub(self.rounds)).max(1)
    }

    /// When a round begins. Rounds keep to their beat as long as that leaves half an interval between clearing and
    /// reading. No round counts from a time before its aggregation.
    fn beat(&self, now: Duration) -> Duration {
        self.round.due.clamp(now.saturating_sub(self.attributes.sampling() / 2), now).max(self.aggregation_began)
    }

    /// When the samples are read next, before their round is over.
    pub(super) fn length_due(&self) -> Option<Duration> {
        let OpenRound { cleared, clearing, lengths, due, counted, .. } = self.round;
        let next = cleared + clearing + *LENGTHS.get(lengths)?;
        let latest = if counted { due } else { cleared + (due - cleared).mul_f64(MOST_PART) };
        (self.by_lengths && !self.samples.is_empty() && next <= latest).then_some(next)
    }

    /// Reads the samples before their round is over, which tells the frequency of what is accessed in each round.
    pub(super) fn read_length(&mut self, now: Duration) -> Result<(), MonitorError> {
        self.round.leave_out(self.round.passed(now));
        self.look_at_samples()?;
        self.take_in_samples(now, None);
        self.work.length = true;
        Ok(())
    }

    /// Takes in what the samples say at `now`, each for as long as it was cleared: they were cleared one by one. At the
    /// end of a round, they are counted as samples of this many sampling intervals.
    fn take_in_samples(&mut self, now: Duration, ended: Option<u32>) {
        let OpenRound { cleared, clearing, counted, .. } = self.round;
        let count = self.samples.len();
        for region in self.regions.iter_mut() {
            // The region may have other borders than when its page was chosen.
            let Some(nth) = region.sample().map(|nth| nth as usize) else { continue };
            if region.range().contains(self.samples[nth].addr) {
                let cleared = cleared + clearing.mul_f64((nth as f64 + 0.5) / count as f64);
                region.look(self.answers[nth], now.saturating_sub(cleared), counted);
                if let Some(intervals) = ended {
                    region.count(self.answers[nth], intervals);
                }
            }
        }
    }

    /// Ends the aggregation with the round under way, or with the next one if this is over. The round is no longer than
    /// one sampling interval.
    pub(super) fn end_aggregation_soon(&mut self, now: Duration) {
        self.ends_early = true;
        self.round.due = self.round.due.min(now.max(self.round.cleared + self.attributes.sampling()));
    }

    /// Reads what the pages that were chosen say so far. A survey is going to clear some of them.
    pub(super) fn look_at_samples(&mut self) -> Result<(), MonitorError> {
        if self.samples.is_empty() {
            return Ok(());
        }
        let before = self.round.looked.then(|| std::mem::take(&mut self.answers));
        self.answers.clear();
        self.answers.resize(self.samples.len(), Observation::Idle);
        self.views.read(&mut self.probe, &mut self.answers).map_err(MonitorError::Probe)?;
        if let Some(before) = before {
            let both = self.answers.iter_mut().zip(before).filter(|(_, before)| *before == Observation::Accessed);
            both.for_each(|(answer, _)| *answer = Observation::Accessed);
        }
        self.round.looked = true;
        Ok(())
    }

    /// The sampling intervals that have passed since the aggregation began.
    pub(super) fn rounds_until(&self, now: Duration) -> u32 {
        whole(now.saturating_sub(self.aggregation_began), self.attributes.sampling())
    }

    /// Reads the pages that were chosen, and counts for each region whether its page was accessed. A round that ends
    /// late counts as the sampling intervals that have passed.
    pub(super) fn check_accesses(&mut self, now: Duration) -> Result<(), MonitorError> {
        let sampling = self.attributes.sampling();
        let intervals = whole(now.saturating_sub(self.round.cleared) + sampling / 2, sampling).max(1);
        // Ages are no longer than the time that has passed, however late rounds are.
        self.rounds = self.rounds.max(self.rounds_until(now));
        if self.samples.is_empty() || self.round.counted {
            return Ok(());
        }
        self.work.samples = self.samples.len();
        self.look_at_samples()?;
        self.take_in_samples(now, Some(intervals));

        let round = crate::Round {
            reads: self.samples.len(),
            accessed: (self.answers.iter()).filter(|&&answer| answer == Observation::Accessed).count(),
        };
        self.snapshot.sampled_rounds += 1;
        // A round may be a little shorter than the sampling interval, and more so after an aggregation that was cut
        // short. It counts as a whole one, so that no region has more samples than there are rounds.
        self.rounds = self.rounds.max(self.snapshot.sampled_rounds);
        self.snapshot.reads += round.reads as u64;
        self.snapshot.max_reads = self.snapshot.max_reads.max(round.reads as u32);
        self.sink.sampled(round).map_err(MonitorError::Sink)
    }
}

/// Samples are read before their round is over, unless it is over soon: at this part of its length at most.
const MOST_PART: f64 = 0.6;

/// How many whole intervals there are in a time.
fn whole(time: Duration, interval: Duration) -> u32 {
    u32::try_from(time.as_nanos() / interval.as_nanos()).unwrap_or(u32::MAX)
}

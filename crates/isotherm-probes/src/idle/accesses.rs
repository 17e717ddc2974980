//! Frames that were accessed and that the probe has marked as idle since, so that a survey, and a check before an
//! action, learn of the accesses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bitmap::WORD;

/// The accessed frames of a probe. Its clones are the same: looks on other threads share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Accesses(Arc<Mutex<AccessedFrames>>);

impl Accesses {
    pub(super) fn lock(&self) -> MutexGuard<'_, AccessedFrames> {
        // Each change is complete, whatever happens after it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frames that count as accessed, whatever their idle bit says.
///
/// An access is an access for all targets that map the frame, so it is forgotten only when all of them were read. Each
/// frame is added before its bit is set: who reads the bit first and these frames after it misses no access.
#[derive(Debug, Default)]
pub(super) struct AccessedFrames {
    /// Since the current survey has begun, for the next one. By the word of the bitmap, a bit for each frame.
    next: HashMap<u64, u64>,
    /// For the current survey.
    now: HashMap<u64, u64>,
}

impl AccessedFrames {
    /// Begins a survey.
    pub(super) fn begin(&mut self) {
        std::mem::swap(&mut self.now, &mut self.next);
        self.next.clear();
    }

    /// The frame was accessed before sampling marks it.
    pub(super) fn before_a_sample(&mut self, frame: u64) {
        *self.next.entry(frame / WORD).or_default() |= 1 << (frame % WORD);
    }

    /// The survey has found the frame accessed and marks it. Targets that are read later in this survey learn of it.
    pub(super) fn in_this_survey(&mut self, frame: u64) {
        *self.now.entry(frame / WORD).or_default() |= 1 << (frame % WORD);
    }

    /// Whether the frame counts as accessed in this survey.
    pub(super) fn contain(&self, frame: u64) -> bool {
        contain(&self.now, frame)
    }

    /// Whether the frame was accessed since the survey before this one has read it. Which of the two is the last that
    /// has ended is not known here.
    pub(super) fn contain_lately(&self, frame: u64) -> bool {
        contain(&self.now, frame) || contain(&self.next, frame)
    }
}

fn contain(words: &HashMap<u64, u64>, frame: u64) -> bool {
    words.get(&(frame / WORD)).is_some_and(|bits| bits >> (frame % WORD) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_counts_in_one_survey() {
        let shared = Accesses::default();
        let mut accesses = shared.lock();
        accesses.before_a_sample(70);
        assert!(!accesses.contain(70), "it belongs to the next survey");
        accesses.begin();
        accesses.in_this_survey(3);
        assert!(accesses.contain(70) && accesses.contain(3) && !accesses.contain(6));
        accesses.begin();
        assert!(!accesses.contain(70) && !accesses.contain(3));
    }

    #[test]
    fn a_look_learns_at_once_of_what_a_sample_or_a_survey_has_marked() {
        let shared = Accesses::default();
        shared.lock().before_a_sample(70);
        let look = shared.clone();
        assert!(look.lock().contain_lately(70));
        shared.lock().begin();
        shared.lock().in_this_survey(3);
        assert!([3, 70].iter().all(|&frame| look.lock().contain_lately(frame)) && !look.lock().contain_lately(4));
        shared.lock().begin();
        assert!(![3, 70].iter().any(|&frame| look.lock().contain_lately(frame)));
    }
}

//! Which mappings are looked at for [huge pages ahead](isotherm_core::scheme::Action::HugePageAhead), and when.

use std::collections::HashMap;
use std::time::Duration;

use isotherm_core::{AddrRange, TargetId};

/// A mapping that did not fill up is looked at again after this time, then after twice of it, and so on to the longest
/// time. A look takes about a millisecond.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(64);

/// At most this many mappings of a target are remembered. The oldest are forgotten.
const MOST: usize = 1024;

/// What was found of the mappings of each target.
#[derive(Debug, Default)]
pub(super) struct Ahead(HashMap<TargetId, Vec<Seen>>);

/// What was found of a mapping.
#[derive(Clone, Copy, Debug)]
struct Seen {
    mapping: AddrRange,
    /// How long it is to be left alone after this time. `None` if huge pages were allowed in it.
    left_alone: Option<(Duration, Duration)>,
}

impl Seen {
    fn is_due(&self, mapping: AddrRange, now: Duration) -> bool {
        match self.left_alone {
            // One that has grown or shrunk may be another one.
            _ if self.mapping != mapping => true,
            Some((since, wait)) => now.saturating_sub(since) >= wait,
            None => false,
        }
    }
}

impl Ahead {
    /// Whether a mapping is to be looked at.
    pub(super) fn is_due(&self, target: TargetId, mapping: AddrRange, now: Duration) -> bool {
        let seen =
            self.0.get(&target).and_then(|seen| seen.iter().find(|seen| seen.mapping.start() == mapping.start()));
        seen.is_none_or(|seen| seen.is_due(mapping, now))
    }

    /// Notes whether huge pages were allowed in a mapping that was looked at.
    pub(super) fn saw(&mut self, target: TargetId, mapping: AddrRange, is_allowed: bool, now: Duration) {
        let all = self.0.entry(target).or_default();
        let before = all.iter().position(|seen| seen.mapping.start() == mapping.start()).map(|nth| all.remove(nth));
        let waited = before.filter(|seen| seen.mapping == mapping).and_then(|seen| seen.left_alone);
        let wait = waited.map_or(FIRST_WAIT, |(_, wait)| (wait * 2).min(LONGEST_WAIT));
        all.push(Seen { mapping, left_alone: (!is_allowed).then_some((now, wait)) });
        if all.len() > MOST {
            all.remove(0);
        }
    }

    /// Forgets targets that do not live.
    pub(super) fn retain(&mut self, lives: impl Fn(&TargetId) -> bool) {
        self.0.retain(|target, _| lives(target));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_looked_at_again_ever_later_until_it_changes() {
        let (id, other) = (TargetId::process(7, Duration::ZERO), TargetId::process(8, Duration::ZERO));
        let (mapping, grown) = (AddrRange::new(0, 64 << 20).unwrap(), AddrRange::new(0, 65 << 20).unwrap());
        let mut ahead = Ahead::default();
        let (mut now, mut waits) = (Duration::ZERO, Vec::new());
        for _ in 0..9 {
            assert!(ahead.is_due(id, mapping, now));
            ahead.saw(id, mapping, false, now);
            let wait = (1..200).find(|wait| ahead.is_due(id, mapping, now + Duration::from_secs(*wait))).unwrap();
            waits.push(wait);
            now += Duration::from_secs(wait);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        ahead.saw(id, mapping, false, now);
        assert!(ahead.is_due(other, mapping, now) && ahead.is_due(id, grown, now) && !ahead.is_due(id, mapping, now));
        ahead.saw(id, grown, true, now);
        assert!(!ahead.is_due(id, grown, now + LONGEST_WAIT * 100), "allowed once and for all");
        ahead.retain(|target| *target != id);
        assert!(ahead.is_due(id, grown, now));
        for nth in 0..3 * MOST as u64 {
            ahead.saw(id, AddrRange::new(nth << 30, (nth << 30) + (64 << 20)).unwrap(), false, now);
        }
        assert_eq!(ahead.0[&id].len(), MOST);
    }
}

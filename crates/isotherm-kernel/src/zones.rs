//! Reads how much memory each node can take before the kernel reclaims there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use isotherm_core::{NodeId, PAGE_SIZE};
use thiserror::Error;

const ZONEINFO: &str = "proc/zoneinfo";

/// The zones of memory cannot be read.
#[derive(Debug, Error)]
#[error("the zones of memory cannot be read from {path} (is /proc mounted?)")]
pub struct ZoneError {
    path: PathBuf,
    source: io::Error,
}

/// The bytes that each node can take before the free memory of one of its zones falls to the zone's high watermark, at
/// which the kernel ends a reclaim. `root` stands for `/`.
///
/// What a zone keeps for allocations that cannot use another zone (`protection`) counts as in use. A node without a
/// zone that has pages is left out. (Linux `Documentation/admin-guide/sysctl/vm.rst`, `lowmem_reserve_ratio` and
/// `watermark_scale_factor`.)
///
/// # Errors
/// Fails if the file cannot be read.
pub fn room_by_node(root: &Path) -> Result<BTreeMap<NodeId, u64>, ZoneError> {
    let path = root.join(ZONEINFO);
    let text = fs::read_to_string(&path).map_err(|source| ZoneError { path, source })?;
    Ok(parse(&text))
}

/// The figures of one zone, in pages.
#[derive(Default)]
struct Zone {
    node: Option<NodeId>,
    free: u64,
    high: u64,
    protection: u64,
    managed: u64,
}

impl Zone {
    fn add_to(&self, room: &mut BTreeMap<NodeId, u64>) {
        if let Some(node) = self.node.filter(|_| self.managed > 0) {
            let pages = self.free.saturating_sub(self.high.saturating_add(self.protection));
            *room.entry(node).or_default() += pages.saturating_mul(PAGE_SIZE);
        }
    }
}

fn parse(text: &str) -> BTreeMap<NodeId, u64> {
    let mut room = BTreeMap::new();
    let mut zone = Zone::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).unwrap_or(0);
        match words.next() {
            // `Node 0, zone   Normal`
            Some("Node") => {
                zone.add_to(&mut room);
                let node = words.next().and_then(|word| word.trim_end_matches(',').parse().ok());
                zone = Zone { node: node.map(NodeId), ..Zone::default() };
            }
            // `pages free     3840`
            Some("pages") if words.next() == Some("free") => zone.free = number(words.next()),
            // The lists of pages of each CPU have a line `high:`.
            Some("high") => zone.high = number(words.next()),
            Some("managed") => zone.managed = number(words.next()),
            // `protection: (0, 2985, 15936)`
            Some("protection:") => {
                let kept = words.map(|word| number(Some(word.trim_matches(['(', ')', ',']))));
                zone.protection = kept.max().unwrap_or(0);
            }
            _ => {}
        }
    }
    zone.add_to(&mut room);
    room
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const TEXT: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 100
  pages free     3840
        boost    0
        min      66
        low      82
        high     98
        spanned  4095
        present  3998
        managed  3840
        protection: (0, 700, 1700, 1700)
      nr_free_pages 3840
  pagesets
    cpu: 0
              count:    5
              high:     42
Node 0, zone   Normal
  pages free     9000
        high     1000
        managed  200000
        protection: (0, 0, 0, 0)
Node 0, zone  Movable
  pages free     0
        high     32
        managed  0
        protection: (0, 0, 0, 0)
Node 1, zone   Normal
  pages free     500
        high     1000
        managed  100000
        protection: (0, 0, 0, 0)
";

    #[test]
    fn the_room_of_a_node_ends_at_the_high_watermarks_of_its_zones() {
        let room = parse(TEXT);
        let normal = 9000 - 1000;
        let dma = 3840 - 98 - 1700;
        assert_eq!(room[&NodeId(0)], (normal + dma) * PAGE_SIZE);
        assert_eq!(room[&NodeId(1)], 0, "the kernel reclaims there already");
        assert_eq!(room.len(), 2);
    }

    #[test]
    fn the_room_of_this_machine_is_less_than_its_memory() {
        let room = room_by_node(Path::new("/")).unwrap();
        assert!(room.values().all(|bytes| *bytes < 1 << 50), "{room:?}");
        assert!(!room.is_empty());
        let error = room_by_node(Path::new("/no/such/root")).unwrap_err();
        assert!(error.to_string().contains("zoneinfo"), "{error}");
    }
}

//! On which node each page of a process is, and which pages have moved.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use isotherm_core::{NodeId, PAGE_SIZE};
use isotherm_kernel::pages::{FrameNodes, PageBuffer, Pagemap, SystemRam};
use procfs::process::{MMPermissions, MMapPath, Process};
use serde::{Deserialize, Serialize};

/// The fast node.
pub const FAST: NodeId = NodeId(0);

/// The slow node.
pub const SLOW: NodeId = NodeId(1);

/// A move counts as wrong if the page moves back within this time, in seconds.
const SOON: f64 = 60.0;

/// Where a page is, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Absent,
    Fast,
    Slow,
}

/// Pages that moved between nodes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// From the slow node to the fast one.
    pub up: u64,
    /// From the fast node to the slow one.
    pub down: u64,
    /// Of both, those whose page moved back within a minute, and those that are themselves such a move back.
    pub back: u64,
}

impl Moves {
    /// Bytes that moved in either direction.
    pub fn all(self) -> u64 {
        self.up + self.down
    }

    /// The sums of both.
    pub fn plus(self, other: Self) -> Self {
        Self { up: self.up + other.up, down: self.down + other.down, back: self.back + other.back }
    }
}

/// The pages of a process, and their places when they were read last.
#[derive(Debug)]
pub struct Pages {
    pagemap: Pagemap,
    nodes: FrameNodes,
    buffer: PageBuffer,
    addresses: Vec<u64>,
    places: Vec<Place>,
    /// For pages that have moved: the time of the last move, in seconds.
    moved: HashMap<usize, f64>,
    /// What has moved since the start.
    pub moves: Moves,
}

/// The writable anonymous mappings of a process, from and to, in ascending order.
///
/// # Errors
/// If they cannot be read.
pub fn anonymous_mappings(pid: u32) -> Result<Vec<(u64, u64)>> {
    let maps = Process::new(pid as i32)?.maps().context("the mappings cannot be read")?;
    let is_own = |path: &MMapPath| matches!(path, MMapPath::Anonymous | MMapPath::Heap);
    let writable = |perms: MMPermissions| perms.contains(MMPermissions::WRITE | MMPermissions::PRIVATE);
    Ok(maps.iter().filter(|map| writable(map.perms) && is_own(&map.pathname)).map(|map| map.address).collect())
}

impl Pages {
    /// The pages of the anonymous memory that the process has now.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn of(pid: u32) -> Result<Self> {
        let root = Path::new("/");
        let mappings = anonymous_mappings(pid)?;
        let pages = |(start, end): (u64, u64)| (start..end).step_by(PAGE_SIZE as usize);
        let mut new = Self {
            pagemap: Pagemap::open(root, &pid.to_string())?,
            nodes: FrameNodes::new(&SystemRam::new(root).read()?),
            buffer: PageBuffer::default(),
            addresses: mappings.into_iter().flat_map(pages).collect(),
            places: Vec::new(),
            moved: HashMap::new(),
            moves: Moves::default(),
        };
        // A mapping may be much larger than the memory in it.
        let places = new.read()?;
        let present = |index: &usize| places[*index] != Place::Absent;
        new.addresses = (0..places.len()).filter(present).map(|index| new.addresses[index]).collect();
        new.places = places.into_iter().filter(|place| *place != Place::Absent).collect();
        Ok(new)
    }

    fn read(&mut self) -> Result<Vec<Place>> {
        let mut places = Vec::with_capacity(self.addresses.len());
        self.pagemap.frames(self.addresses.iter().copied(), &mut self.buffer, |frame| {
            places.push(match frame.and_then(|frame| self.nodes.node(frame)) {
                Some(SLOW) => Place::Slow,
                Some(_) => Place::Fast,
                None => Place::Absent,
            });
        })?;
        Ok(places)
    }

    /// Reads the places again, `time` seconds after the start. A page that is just being moved is where it was.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn update(&mut self, time: f64) -> Result<()> {
        let places = self.read()?;
        for (index, new) in places.into_iter().enumerate() {
            let old = self.places[index];
            if new == Place::Absent || new == old {
                continue;
            }
            self.places[index] = new;
            *(if new == Place::Slow { &mut self.moves.down } else { &mut self.moves.up }) += PAGE_SIZE;
            if self.moved.insert(index, time).is_some_and(|before| time - before <= SOON) {
                self.moves.back += PAGE_SIZE;
            }
        }
        Ok(())
    }

    /// The bytes in memory.
    pub fn bytes(&self) -> u64 {
        self.places.len() as u64 * PAGE_SIZE
    }

    /// The bytes on the slow node.
    pub fn slow_bytes(&self) -> u64 {
        self.places.iter().filter(|place| **place == Place::Slow).count() as u64 * PAGE_SIZE
    }

    /// The index of the page at this address.
    pub fn index(&self, address: u64) -> Option<usize> {
        self.addresses.binary_search(&(address - address % PAGE_SIZE)).ok()
    }

    /// The sum of the weights of the pages on the slow node. `weights` has one for each page.
    pub fn slow_weight(&self, weights: &[f64]) -> f64 {
        let slow = self.places.iter().zip(weights).filter(|(place, _)| **place == Place::Slow);
        slow.fold(0.0, |sum, (_, weight)| sum + weight)
    }
}

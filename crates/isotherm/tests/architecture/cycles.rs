//! Finds cyclic dependencies between the modules of a crate.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt::Write;

use crate::source::{Crate, ItemPath, Use};

/// The dependencies between the modules of one parent: user, used module, and the first use.
type Siblings = BTreeMap<String, BTreeMap<String, Use>>;

/// The cycles of modules that have the same parent. Each is a text with one line for each use.
pub fn cycles(of: &Crate) -> Vec<String> {
    let mut by_parent: BTreeMap<ItemPath, Siblings> = BTreeMap::new();
    for (from, module) in &of.modules {
        for used in &module.uses {
            let to = of.module_of(&used.path);
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                let siblings = by_parent.entry(from[..shared].to_vec()).or_default();
                siblings.entry(a.clone()).or_default().entry(b.clone()).or_insert_with(|| used.clone());
            }
        }
    }
    by_parent.iter().flat_map(|(parent, siblings)| among_siblings(parent, siblings)).collect()
}

/// One cycle for each group of modules that depend on each other, directly or indirectly.
fn among_siblings(parent: &[String], siblings: &Siblings) -> Vec<String> {
    let mut grouped = HashSet::new();
    let mut found = Vec::new();
    for start in siblings.keys() {
        if !grouped.contains(start)
            && let Some(cycle) = shortest(start, start, siblings)
        {
            let connected = |other: &&String| {
                shortest(start, other, siblings).is_some() && shortest(other, start, siblings).is_some()
            };
            grouped.extend(siblings.keys().filter(connected));
            found.push(describe(parent, &cycle, siblings));
        }
    }
    found
}

/// The modules on the shortest path from one module to another, without the last one.
fn shortest<'a>(start: &'a String, end: &String, siblings: &'a Siblings) -> Option<Vec<&'a String>> {
    let mut queue = VecDeque::from([vec![start]]);
    let mut seen = HashSet::new();
    while let Some(path) = queue.pop_front() {
        for next in path.last().and_then(|last| siblings.get(*last)).into_iter().flat_map(BTreeMap::keys) {
            if next == end {
                return Some(path);
            }
            if seen.insert(next) {
                queue.push_back([&path[..], &[next]].concat());
            }
        }
    }
    None
}

fn describe(parent: &[String], cycle: &[&String], siblings: &Siblings) -> String {
    let full = |name: &String| [parent, std::slice::from_ref(name)].concat().join("::");
    let mut text = String::new();
    for (index, from) in cycle.iter().enumerate() {
        let to = cycle[(index + 1) % cycle.len()];
        let used = &siblings[*from][to];
        let (path, file, line) = (used.path.join("::"), used.file.display(), used.line);
        let _ = writeln!(text, "  {} uses {}: crate::{path} at {file}:{line}", full(from), full(to));
    }
    text
}

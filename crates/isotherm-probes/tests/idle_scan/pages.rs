//! Pages: which of them count, how large they are, and for how long they have been idle.

use std::collections::BTreeMap;

use isotherm_core::PAGE_SIZE;
use proptest::prelude::*;

use crate::made::{ANON, BUDDY, HEAD, HUGETLB, LRU, Made, TAIL, UNEVICTABLE, of};

#[test]
fn pages_count_by_their_kind_and_size() {
    let made = Made::new(4096);
    let (a, c) = (made.cgroup("sys/fs/cgroup/a"), made.cgroup("sys/fs/cgroup/b/c"));
    made.page(0..10, LRU | ANON, a);
    made.page(10..14, LRU, a);
    made.page(14..17, LRU | UNEVICTABLE, a);
    made.page([17, 18], ANON, a);
    made.page([19], LRU, 0);
    made.compound(512, 512, LRU | ANON, c);
    made.compound(1024, 16, LRU, c);
    made.compound(2048, 512, HUGETLB, c);
    made.page([3000], BUDDY, c);

    let mut scan = made.marked();
    let marked: Vec<u64> = (0..14).chain([19, 512, 1024]).collect();
    assert_eq!(made.idle(), marked, "the heads of compound pages are marked; locked and unlisted pages are not");
    made.access([0, 1, 2, 512]);
    let findings = made.read(&mut scan);
    assert_eq!(of(&findings, "/a"), Some([11, 3, 2, 3]));
    assert_eq!(of(&findings, "/b/c"), Some([16, 512, 0, 0]));
    let total = &findings.total;
    assert_eq!((total.idle, total.accessed), (28 * PAGE_SIZE, 515 * PAGE_SIZE));
    let none = findings.cgroups.iter().find(|cgroup| cgroup.path.is_none()).unwrap();
    assert_eq!((none.inode, none.own.idle), (None, PAGE_SIZE), "the page without a cgroup");
    assert_eq!(made.idle(), marked, "accessed pages are marked again");
}

#[test]
fn memory_is_shown_by_node_if_there_are_several() {
    let made = Made::new(192);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page(0..100, LRU, a);
    let by_node = |nodes: [u32; 3]| {
        // Blocks of 64 frames.
        made.write("sys/devices/system/memory/block_size_bytes", "40000\n");
        for (block, node) in nodes.iter().enumerate() {
            let _ = std::fs::remove_dir_all(made.path(&format!("sys/devices/system/memory/memory{block}")));
            made.write(&format!("sys/devices/system/memory/memory{block}/state"), "online\n");
            made.write(&format!("sys/devices/system/memory/memory{block}/node{node}/x"), "");
        }
        let mut scan = made.marked();
        made.access([1, 64, 65]);
        let nodes = made.read(&mut scan).nodes.into_iter();
        nodes
            .map(|node| (node.node.map(|node| node.0), node.tally.idle / PAGE_SIZE, node.tally.accessed / PAGE_SIZE))
            .collect::<Vec<_>>()
    };
    assert_eq!(by_node([0, 1, 0]), [(Some(0), 63, 1), (Some(1), 34, 2)]);
    assert_eq!(by_node([0, 0, 0]), []);
}

#[test]
fn new_pages_are_accessed_and_pages_that_could_not_be_marked_are_unobservable() {
    let made = Made::new(256);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page([1], ANON, a);
    made.page([2], LRU | UNEVICTABLE, a);
    let mut scan = made.marked();
    made.page([1, 2, 3], LRU | ANON, a);
    assert_eq!(of(&made.read(&mut scan), "/a"), Some([0, 1, 2, 0]));
    assert_eq!(of(&made.read(&mut scan), "/a"), Some([3, 0, 0, 0]));
    made.page([3], BUDDY, 0);
    assert_eq!(of(&made.read(&mut scan), "/a"), Some([2, 0, 0, 0]));
}

#[test]
fn intervals_are_counted_from_the_last_access_of_each_page() {
    let made = Made::new(128);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page(0..10, LRU, a);
    let mut scan = made.marked();
    for interval in 0..5 {
        made.access([interval]);
        let findings = made.read(&mut scan);
        let expected: Vec<u64> = (0..=interval).map(|age| if age < interval { 1 } else { 9 - interval }).collect();
        let ages: Vec<u64> = findings.cgroups[0].own.by_intervals().iter().map(|bytes| bytes / PAGE_SIZE).collect();
        assert_eq!(ages, expected, "after {} intervals", interval + 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The findings agree with a simple count of the pages.
    #[test]
    fn every_page_is_counted_once_in_its_cgroup(
        pages in prop::collection::vec((0_u32..4, 0_usize..3, any::<bool>()), 1..60),
    ) {
        let made = Made::new(4096);
        let cgroup = |name: &&str| made.cgroup(&format!("sys/fs/cgroup/{name}"));
        let cgroups: Vec<u64> = ["a", "b", "b/c"].iter().map(cgroup).collect();
        let mut truth: BTreeMap<usize, [u64; 2]> = BTreeMap::new();
        let mut accessed = Vec::new();
        let mut frame = 0_u64;
        for &(order, cgroup, hot) in &pages {
            let count = 1 << order;
            frame = frame.next_multiple_of(count);
            if order == 0 {
                made.page([frame], LRU, cgroups[cgroup]);
            } else {
                made.compound(frame, count, LRU, cgroups[cgroup]);
            }
            truth.entry(cgroup).or_default()[usize::from(hot)] += count;
            accessed.extend(hot.then_some(frame));
            frame += count;
        }
        let mut scan = made.marked();
        made.access(accessed);
        let findings = made.read(&mut scan);
        for (index, name) in ["/a", "/b", "/b/c"].iter().enumerate() {
            let expected = truth.get(&index).map(|&[idle, accessed]| [idle, accessed, 0, 0]);
            prop_assert_eq!(of(&findings, name), expected);
        }
    }
}

#[test]
fn tails_without_a_head_are_not_counted() {
    let made = Made::new(128);
    let a = made.cgroup("sys/fs/cgroup/a");
    made.page(4..8, TAIL | LRU, a);
    made.page([9], HEAD | LRU, a);
    let mut scan = made.marked();
    assert_eq!(of(&made.read(&mut scan), "/a"), Some([1, 0, 0, 0]));
}

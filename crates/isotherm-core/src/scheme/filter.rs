//! Filters: which memory a scheme may act on, by properties other than access frequency and age.

use std::sync::Arc;

use crate::{AddrRange, Mapping, TargetId};

use super::{PageKind, ProcessFacts};

/// One filter of a list. The first filter that matches some memory decides whether the scheme may act on it.
///
/// Memory that no filter matches is rejected if the last filter allows, and allowed if the last filter rejects.
/// Without filters, all memory is allowed. This is DAMON's rule (Linux `Documentation/mm/damon/design.rst`,
/// "Filters"), except that filters of all kinds are evaluated in one order here.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The kind of memory.
    pub kind: FilterKind,
    /// Whether the filter matches memory of this kind (true) or all other memory (false).
    pub matching: bool,
    /// Whether the filter allows (true) or rejects (false) the memory that it matches.
    pub allow: bool,
}

/// The kinds of memory that a filter can tell apart.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterKind {
    /// Mappings without a file: those with an empty name, or with a name in brackets such as `[heap]`.
    Anonymous,
    /// Mappings of a file.
    File,
    /// Mappings whose name matches. The name of a mapped file is its path.
    Mapping(Pattern),
    /// Memory at these addresses.
    Address(AddrRange),
    /// The process with this pid.
    Process(u32),
    /// Processes whose short name matches.
    Command(Pattern),
    /// Processes in this cgroup or in one below it.
    Cgroup(Arc<str>),
    /// Pages that are of this kind just before the action.
    Pages(PageKind),
}

/// A pattern of names: `*` stands for any number of characters, `?` for one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// Makes a pattern. Every text is one.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let pattern: &[u8] = self.0.as_bytes();
        let name = name.as_bytes();
        let (mut p, mut n) = (0, 0);
        // The place after the last star in the pattern, and the part of the name that it matches so far.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(b'?') => {
                    p += 1;
                    // One character has one to four bytes.
                    n += 1 + name[n + 1..].iter().take_while(|&&byte| byte & 0xc0 == 0x80).count();
                }
                Some(byte) if *byte == name[n] => {
                    p += 1;
                    n += 1;
                }
                _ => {
                    let Some((at, reach)) = &mut star else {
                        return false;
                    };
                    *reach += 1;
                    (p, n) = (*at + 1, *reach);
                }
            }
        }
        pattern[p..].iter().all(|&byte| byte == b'*')
    }
}

impl FilterKind {
    /// Whether the filter needs the facts of a process.
    pub(crate) const fn needs_process(&self) -> bool {
        matches!(self, Self::Command(_) | Self::Cgroup(_))
    }

    /// Whether only memory of processes can be of the kind.
    pub(crate) const fn is_of_processes(&self) -> bool {
        self.needs_process() || matches!(self, Self::Process(_))
    }

    /// The kind of pages that an inspector has to find, if the filter is one of pages.
    pub const fn pages(&self) -> Option<PageKind> {
        match self {
            Self::Pages(kind) => Some(*kind),
            _ => None,
        }
    }
}

/// What filters know of a range in one mapping without inspecting its pages.
#[derive(Clone, Copy)]
pub(crate) struct FilterContext<'a> {
    pub target: TargetId,
    pub mapping: &'a Mapping,
    pub process: Option<&'a ProcessFacts>,
    /// The index of a filter that is skipped, because it is known already that it does not reject the range.
    pub passed: Option<usize>,
}

/// The decision of the filters on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    Rejected,
    /// The filter of this index has to inspect the pages of the range.
    Pages(usize),
}

/// Passes a range through `filters` from index `from` on, as far as no pages have to be inspected. Calls `decide`
/// with each part of the range and the decision on it. No pages are inspected of what is rejected, whatever they are.
pub(crate) fn filter_range(
    filters: &[Filter],
    from: usize,
    context: FilterContext<'_>,
    range: AddrRange,
    decide: &mut dyn FnMut(AddrRange, Verdict),
) {
    for (nth, filter) in filters.iter().enumerate().skip(from).filter(|(nth, _)| context.passed != Some(*nth)) {
        let verdict = if filter.allow { Verdict::Allowed } else { Verdict::Rejected };
        match &filter.kind {
            FilterKind::Pages(_) if filter.allow => return decide(range, Verdict::Pages(nth)),
            FilterKind::Pages(_) => {
                return filter_range(filters, nth + 1, context, range, &mut |part, of_others| match of_others {
                    Verdict::Rejected => decide(part, Verdict::Rejected),
                    Verdict::Allowed | Verdict::Pages(_) => decide(part, Verdict::Pages(nth)),
                });
            }
            FilterKind::Address(bounds) => {
                let inside = range.intersection(*bounds);
                let below = AddrRange::new(range.start(), range.end().min(bounds.start()));
                let above = AddrRange::new(range.start().max(bounds.end()), range.end());
                for (part, is_inside) in [(below, false), (inside, true), (above, false)] {
                    match part {
                        Some(part) if is_inside == filter.matching => decide(part, verdict),
                        Some(part) => filter_range(filters, nth + 1, context, part, decide),
                        None => {}
                    }
                }
                return;
            }
            kind => {
                if is_of_kind(kind, context) == filter.matching {
                    return decide(range, verdict);
                }
            }
        }
    }
    decide(range, if allowed_by_default(filters) { Verdict::Allowed } else { Verdict::Rejected });
}

/// Whether memory that no filter matches is allowed.
fn allowed_by_default(filters: &[Filter]) -> bool {
    filters.last().is_none_or(|last| !last.allow)
}

fn is_of_kind(kind: &FilterKind, context: FilterContext<'_>) -> bool {
    let is_file = |name: &str| !name.is_empty() && !name.starts_with('[');
    match kind {
        FilterKind::Anonymous => !is_file(&context.mapping.name),
        FilterKind::File => is_file(&context.mapping.name),
        FilterKind::Mapping(pattern) => pattern.matches(&context.mapping.name),
        FilterKind::Process(pid) => context.target.pid() == Some(*pid),
        FilterKind::Command(pattern) => context.process.is_some_and(|process| pattern.matches(&process.name)),
        FilterKind::Cgroup(path) => context.process.is_some_and(|process| is_below(&process.cgroup, path)),
        FilterKind::Address(_) | FilterKind::Pages(_) => false,
    }
}

/// Whether the cgroup `path` is `above` or one below it.
fn is_below(path: &str, above: &str) -> bool {
    let above = above.trim_end_matches('/');
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn mapping(name: &str) -> Mapping {
        Mapping { name: name.into(), ..Mapping::anonymous(AddrRange::new(0, 0x10_0000).unwrap()) }
    }

    fn filter(allow: bool, kind: FilterKind) -> Filter {
        Filter { kind, matching: true, allow }
    }

    fn decisions(filters: &[Filter], name: &str, range: (u64, u64)) -> Vec<(u64, u64, Verdict)> {
        let mapping = mapping(name);
        let process = ProcessFacts { name: "redis-server".into(), cgroup: "/system.slice/redis".into() };
        let context = FilterContext {
            target: TargetId::process(7, Duration::from_secs(1)),
            mapping: &mapping,
            process: Some(&process),
            passed: None,
        };
        let mut parts = Vec::new();
        let range = AddrRange::new(range.0, range.1).unwrap();
        filter_range(filters, 0, context, range, &mut |part, verdict| parts.push((part.start(), part.end(), verdict)));
        parts
    }

    #[test]
    fn the_first_filter_that_matches_decides() {
        let heap = filter(true, FilterKind::Mapping(Pattern::new("[heap]")));
        let anonymous = filter(false, FilterKind::Anonymous);
        let filters = [heap, anonymous];
        assert_eq!(decisions(&filters, "[heap]", (0, 4096)), [(0, 4096, Verdict::Allowed)]);
        assert_eq!(decisions(&filters, "", (0, 4096)), [(0, 4096, Verdict::Rejected)]);
    }

    #[test]
    fn memory_that_no_filter_matches_gets_the_opposite_of_the_last_filter() {
        assert_eq!(decisions(&[], "", (0, 1)), [(0, 1, Verdict::Allowed)]);
        assert_eq!(decisions(&[filter(true, FilterKind::File)], "", (0, 1)), [(0, 1, Verdict::Rejected)]);
        assert_eq!(decisions(&[filter(false, FilterKind::File)], "", (0, 1)), [(0, 1, Verdict::Allowed)]);
    }

    #[test]
    fn a_filter_of_addresses_passes_the_rest_of_a_range_on() {
        let inside = FilterKind::Address(AddrRange::new(0x2000, 0x3000).unwrap());
        let filters = [filter(false, inside.clone()), filter(false, FilterKind::Pages(PageKind::Young))];
        assert_eq!(
            decisions(&filters, "", (0x1000, 0x4000)),
            [
                (0x1000, 0x2000, Verdict::Pages(1)),
                (0x2000, 0x3000, Verdict::Rejected),
                (0x3000, 0x4000, Verdict::Pages(1))
            ]
        );
        let outside = [Filter { kind: inside, matching: false, allow: false }];
        assert_eq!(
            decisions(&outside, "", (0x1000, 0x2800)),
            [(0x1000, 0x2000, Verdict::Rejected), (0x2000, 0x2800, Verdict::Allowed)]
        );
    }

    #[test]
    fn no_pages_are_inspected_of_memory_that_a_later_filter_rejects() {
        let young = filter(false, FilterKind::Pages(PageKind::Young));
        let filters = [young.clone(), filter(true, FilterKind::File)];
        assert_eq!(decisions(&filters, "", (0, 4096)), [(0, 4096, Verdict::Rejected)]);
        assert_eq!(decisions(&filters, "/lib/libc.so", (0, 4096)), [(0, 4096, Verdict::Pages(0))]);
        let allowed = [Filter { allow: true, ..young }, filter(true, FilterKind::File)];
        assert_eq!(decisions(&allowed, "", (0, 4096)), [(0, 4096, Verdict::Pages(0))]);
    }

    #[test]
    fn processes_are_matched_by_pid_name_and_cgroup() {
        let allowed = |kind| decisions(&[filter(true, kind)], "", (0, 1))[0].2 == Verdict::Allowed;
        assert!(allowed(FilterKind::Process(7)));
        assert!(!allowed(FilterKind::Process(8)));
        assert!(allowed(FilterKind::Command(Pattern::new("redis-*"))));
        assert!(allowed(FilterKind::Cgroup("/system.slice".into())));
        assert!(allowed(FilterKind::Cgroup("/".into())));
        assert!(!allowed(FilterKind::Cgroup("/system.slice/red".into())));
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        for (pattern, name, matches) in [
            ("", "", true),
            ("*", "", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("*.so*", "/usr/lib/libc.so.6", true),
            ("/usr/*/lib?.so", "/usr/lib/x/libc.so", true),
            ("a?c", "aäc", true),
            ("a??c", "aäc", false),
            ("*a*a*b", "aaaaaaaaaaaaaaac", false),
            ("[heap]", "[heap]", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name), matches, "{pattern} {name}");
        }
    }
}

//! Filters: which memory a scheme may act on, by other properties than its temperature.

use std::sync::Arc;

use crate::{AddrRange, Mapping, TargetId};

use super::{PageKind, ProcessFacts};

/// One filter of a list. The first that matches decides, and those after it are not looked at.
///
/// Memory that none matches is decided by the last filter, the other way round: after a last `allow` it is rejected, after a last
/// `reject` allowed; so the last one decides about all that comes to it. Without filters, everything is allowed. (As DAMON has
/// it, Linux `Documentation/mm/damon/design.rst`, "Filters"; but all kinds of filters are looked at in one order here.)
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// What memory it speaks of.
    pub kind: FilterKind,
    /// False if it speaks of all memory but that.
    pub matching: bool,
    /// Whether that memory is allowed or rejected.
    pub allow: bool,
}

/// What memory a filter speaks of.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterKind {
    /// Mappings without a file: without a name, or with one in brackets such as `[heap]`.
    Anonymous,
    /// Mappings of a file.
    File,
    /// Mappings context name, the file's path for one, is like this.
    Mapping(Pattern),
    /// Addresses.
    Address(AddrRange),
    /// The process with this pid.
    Process(u32),
    /// Processes context name is like this.
    Command(Pattern),
    /// Processes in this cgroup or below it.
    Cgroup(Arc<str>),
    /// Pages that are so at the moment of the action.
    Pages(PageKind),
}

/// A name with `*` for any letters and `?` for any one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// Names like this; every text is a pattern.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole of `name` is like it.
    pub fn matches(&self, name: &str) -> bool {
        let pattern: &[u8] = self.0.as_bytes();
        let name = name.as_bytes();
        let (mut p, mut n) = (0, 0);
        // Where the last star was, and how far into the name it reaches so far.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(b'?') => {
                    p += 1;
                    // Any one letter, however many bytes it has.
                    n += 1 + name[n + 1..].iter().take_while(|&&byte| byte & 0xc0 == 0x80).count();
                }
                Some(letter) if *letter == name[n] => {
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
    /// Whether it needs to know of the process.
    pub(crate) const fn needs_process(&self) -> bool {
        matches!(self, Self::Command(_) | Self::Cgroup(_))
    }

    /// The kind of pages that must be asked for, if it is one of pages.
    pub const fn pages(&self) -> Option<PageKind> {
        match self {
            Self::Pages(kind) => Some(*kind),
            _ => None,
        }
    }
}

/// What there is to know of a range of one mapping without looking at its pages.
#[derive(Clone, Copy)]
pub(crate) struct FilterContext<'a> {
    pub target: TargetId,
    pub mapping: &'a Mapping,
    pub process: Option<&'a ProcessFacts>,
}

/// What the filters say of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    Rejected,
    /// Its pages must be looked at, for the filter of this index.
    Ask(usize),
}

/// Takes a range through `filters` from the one of index `from` on, as far as it goes without looking at pages, and says of each
/// part of it what they say.
pub(crate) fn filter_range(
    filters: &[Filter],
    from: usize,
    context: FilterContext<'_>,
    range: AddrRange,
    say: &mut impl FnMut(AddrRange, Verdict),
) {
    for (nth, filter) in filters.iter().enumerate().skip(from) {
        let verdict = if filter.allow { Verdict::Allowed } else { Verdict::Rejected };
        match &filter.kind {
            FilterKind::Pages(_) => return say(range, Verdict::Ask(nth)),
            FilterKind::Address(bounds) => {
                let inside = range.intersection(*bounds);
                let below = AddrRange::new(range.start(), range.end().min(bounds.start()));
                let above = AddrRange::new(range.start().max(bounds.end()), range.end());
                for (part, is_inside) in [(below, false), (inside, true), (above, false)] {
                    match part {
                        Some(part) if is_inside == filter.matching => say(part, verdict),
                        Some(part) => filter_range(filters, nth + 1, context, part, say),
                        None => {}
                    }
                }
                return;
            }
            kind => {
                if holds(kind, context) == filter.matching {
                    return say(range, verdict);
                }
            }
        }
    }
    say(range, if allowed_by_default(filters) { Verdict::Allowed } else { Verdict::Rejected });
}

/// What becomes of memory that no filter matches.
fn allowed_by_default(filters: &[Filter]) -> bool {
    filters.last().is_none_or(|last| !last.allow)
}

fn holds(kind: &FilterKind, context: FilterContext<'_>) -> bool {
    let is_file = |name: &str| !name.is_empty() && !name.starts_with('[');
    match kind {
        FilterKind::Anonymous => !is_file(&context.mapping.name),
        FilterKind::File => is_file(&context.mapping.name),
        FilterKind::Mapping(pattern) => pattern.matches(&context.mapping.name),
        FilterKind::Process(pid) => context.target.pid() == Some(*pid),
        FilterKind::Command(pattern) => context.process.is_some_and(|process| pattern.matches(&process.name)),
        FilterKind::Cgroup(path) => context.process.is_some_and(|process| lies_in(&process.cgroup, path)),
        FilterKind::Address(_) | FilterKind::Pages(_) => false,
    }
}

/// Whether the cgroup `path` is `above` or below it.
fn lies_in(path: &str, above: &str) -> bool {
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

    fn said(filters: &[Filter], name: &str, range: (u64, u64)) -> Vec<(u64, u64, Verdict)> {
        let mapping = mapping(name);
        let process = ProcessFacts { name: "redis-server".into(), cgroup: "/system.slice/redis".into() };
        let context = FilterContext {
            target: TargetId::process(7, Duration::from_secs(1)),
            mapping: &mapping,
            process: Some(&process),
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
        assert_eq!(said(&filters, "[heap]", (0, 4096)), [(0, 4096, Verdict::Allowed)]);
        assert_eq!(said(&filters, "", (0, 4096)), [(0, 4096, Verdict::Rejected)]);
    }

    #[test]
    fn what_none_matches_is_decided_by_the_last_one_the_other_way_round() {
        assert_eq!(said(&[], "", (0, 1)), [(0, 1, Verdict::Allowed)]);
        assert_eq!(said(&[filter(true, FilterKind::File)], "", (0, 1)), [(0, 1, Verdict::Rejected)]);
        assert_eq!(said(&[filter(false, FilterKind::File)], "", (0, 1)), [(0, 1, Verdict::Allowed)]);
    }

    #[test]
    fn addresses_cut_a_range_and_the_filters_after_them_see_the_rest() {
        let inside = FilterKind::Address(AddrRange::new(0x2000, 0x3000).unwrap());
        let filters = [filter(false, inside.clone()), filter(false, FilterKind::Pages(PageKind::Young))];
        assert_eq!(
            said(&filters, "", (0x1000, 0x4000)),
            [(0x1000, 0x2000, Verdict::Ask(1)), (0x2000, 0x3000, Verdict::Rejected), (0x3000, 0x4000, Verdict::Ask(1))]
        );
        let outside = [Filter { kind: inside, matching: false, allow: false }];
        assert_eq!(
            said(&outside, "", (0x1000, 0x2800)),
            [(0x1000, 0x2000, Verdict::Rejected), (0x2000, 0x2800, Verdict::Allowed)]
        );
    }

    #[test]
    fn processes_are_told_by_id_name_and_cgroup() {
        let allowed = |kind| said(&[filter(true, kind)], "", (0, 1))[0].2 == Verdict::Allowed;
        assert!(allowed(FilterKind::Process(7)));
        assert!(!allowed(FilterKind::Process(8)));
        assert!(allowed(FilterKind::Command(Pattern::new("redis-*"))));
        assert!(allowed(FilterKind::Cgroup("/system.slice".into())));
        assert!(allowed(FilterKind::Cgroup("/".into())));
        assert!(!allowed(FilterKind::Cgroup("/system.slice/red".into())));
    }

    #[test]
    fn patterns_match_whole_names() {
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

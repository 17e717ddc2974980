//! The names of the programs that processes run. Programs of the same name are told apart by their paths.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use isotherm_core::TargetId;
use isotherm_record::TargetInfo;

use crate::command::{executed, program};
use crate::escape::sanitise;

/// The name of the program of each target, without control characters.
///
/// A process that was executed by a name without a directory, or that changed its command line, counts as one of the
/// program with that name, if there is one such program only.
pub(super) fn names(targets: &[(TargetId, Arc<TargetInfo>)]) -> Vec<String> {
    let mut paths: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, info) in targets {
        let path = executed(&info.command);
        let known = paths.entry(program(&info.command)).or_default();
        if path.contains('/') {
            known.insert(path);
        }
    }
    let name = |(id, info): &(TargetId, Arc<TargetInfo>)| {
        if id.pid().is_none() {
            return id.to_string();
        }
        let (name, path) = (program(&info.command), executed(&info.command));
        let same = paths.get(name).filter(|same| same.len() > 1 && path.contains('/'));
        match same.map_or(name, |same| distinct_end(path, same)) {
            "" => "(no command)".into(),
            name => sanitise(name).into_owned(),
        }
    };
    targets.iter().map(name).collect()
}

/// Whether the targets run more than one program.
pub(super) fn are_several(targets: &[(TargetId, Arc<TargetInfo>)]) -> bool {
    let names = names(targets);
    names.iter().any(|name| *name != names[0])
}

/// The shortest end of `path`, in whole parts but at least two, that no other of `paths` has.
fn distinct_end<'a>(path: &'a str, paths: &BTreeSet<&str>) -> &'a str {
    let ends = path.rmatch_indices('/').skip(1).map(|(at, _)| &path[at + 1..]);
    let has =
        |other: &str, end: &str| other.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    let is_distinct = |end: &&str| !paths.iter().any(|other| *other != path && has(other, end));
    ends.filter(|end| !end.is_empty()).find(is_distinct).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn named(commands: &[&str]) -> Vec<String> {
        let target = |command: &&str| {
            let info = TargetInfo { command: (*command).to_owned(), ..TargetInfo::default() };
            (TargetId::process(1, Duration::ZERO), Arc::new(info))
        };
        names(&commands.iter().map(target).collect::<Vec<_>>())
    }

    #[test]
    fn processes_of_one_program_have_one_name_however_they_were_executed() {
        let postgres = ["/usr/lib/postgresql/15/bin/postgres -D /var/lib", "postgres: checkpointer ", "postgres"];
        assert_eq!(named(&postgres), ["postgres"; 3]);
        assert_eq!(named(&["gcc a.c", "/usr/lib/gcc/12/cc1 a.c", "gcc b.c"]), ["gcc", "cc1", "gcc"]);
        assert_eq!(named(&["", "\x1b x"]), ["(no command)", "\\x1b"]);
    }

    #[test]
    fn programs_of_one_name_are_told_apart_by_as_much_of_their_paths_as_differs() {
        let python = ["/usr/bin/python3 a", "/opt/web/bin/python3 b", "/srv/web/bin/python3", "python3 c"];
        assert_eq!(named(&python), ["usr/bin/python3", "opt/web/bin/python3", "srv/web/bin/python3", "python3"]);
        assert_eq!(named(&["/a/x", "/b/x", "./x"]), ["a/x", "b/x", "./x"]);
        assert_eq!(named(&["/x", "/a/x"]), ["/x", "a/x"]);
    }
}
